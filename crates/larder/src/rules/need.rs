//! Facts that must be found out before the rules can decide: the verdict waits for them, and the worker does not.

/// A fact that a rule asked for and that is not known. No rule of today asks for one; those about users, helpers and scripts will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The group of the client, for tests of the wait.
    #[cfg(test)]
    Group,
}

/// The facts that were found out for one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct FoundFacts {
    #[cfg(test)]
    pub(super) group: Option<&'static str>,
}

/// A request is judged at most so often: each time with one more fact.
pub(super) const NEEDS_MAX: usize = 8;

impl Need {
    /// Finds the fact out. Cancel-safe: nothing is kept of a search that is given up.
    #[cfg_attr(not(test), expect(clippy::unused_async, reason = "no fact of today has to be waited for"))]
    pub(super) async fn find_out(self, _found: &mut FoundFacts) {
        match self {
            #[cfg(test)]
            Need::Group => {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                _found.group = Some("friends");
            }
        }
    }
}
