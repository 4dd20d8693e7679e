//! The fields of a request that a judgement has read.

/// Names of fields that were read, each once.
#[derive(Clone, Copy, Default)]
pub(super) struct FieldNames {
    names: [Option<&'static str>; FIELDS_MAX],
    /// There were more than fit.
    has_more: bool,
}

/// A verdict that depends on more fields has no memo.
const FIELDS_MAX: usize = 8;

impl FieldNames {
    pub fn with(mut self, name: &'static str) -> FieldNames {
        for place in &mut self.names {
            match place {
                Some(known) if *known == name => return self,
                Some(_) => {}
                None => {
                    *place = Some(name);
                    return self;
                }
            }
        }
        self.has_more = true;
        self
    }

    /// All of them; `None` when there were more than fit.
    pub fn all(&self) -> Option<impl Iterator<Item = &'static str>> {
        (!self.has_more).then(|| self.names.into_iter().flatten())
    }
}
