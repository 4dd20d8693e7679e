//! The work of ICAP services on a request or its answer. Few requests have any, so it lies apart from the record.

use larder_wire::icap::Vector;
use std::sync::Arc;

/// The work of a service in a word, or the fate of a message without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcapDid {
    /// The message stayed as it was.
    Unchanged,
    /// It changed the message.
    Changed,
    /// It answered the request.
    Answered,
    /// It gave no usable word.
    Failed,
    /// The message went on without it, by the settings.
    Bypassed,
}

impl IcapDid {
    /// All words, in the order of the counters.
    pub const ALL: [IcapDid; 5] =
        [IcapDid::Unchanged, IcapDid::Changed, IcapDid::Answered, IcapDid::Failed, IcapDid::Bypassed];

    /// The word of log, metrics and explanations.
    pub fn as_str(self) -> &'static str {
        match self {
            IcapDid::Unchanged => "unchanged",
            IcapDid::Changed => "changed",
            IcapDid::Answered => "answered",
            IcapDid::Failed => "failed",
            IcapDid::Bypassed => "bypassed",
        }
    }
}

/// The work of one service on one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IcapNote {
    /// The name of the service.
    pub service: Arc<str>,
    /// The message: a request or a response.
    pub vector: Vector,
    /// Its work.
    pub did: IcapDid,
    /// How long the message waited, in microseconds: until the head of the service's reply was here.
    pub micros: u64,
    /// Its trouble, or why it was not asked.
    pub trouble: Option<Box<str>>,
}

/// Longer sentences are cut.
const TROUBLE_BYTES_MAX: usize = 144;

impl IcapNote {
    /// A note.
    pub fn new(service: &Arc<str>, vector: Vector, did: IcapDid, micros: u64, trouble: Option<&str>) -> IcapNote {
        let trouble = trouble.map(|text| text[..text.floor_char_boundary(TROUBLE_BYTES_MAX)].into());
        IcapNote { service: Arc::clone(service), vector, did, micros, trouble }
    }

    /// The service and what it did, as in the log: `av:unchanged`.
    pub fn word(&self) -> String {
        format!("{}:{}", self.service, self.did.as_str())
    }
}

/// The work of services on a request and its answer, in the order in which they were asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IcapTrail(Vec<IcapNote>);

/// More are not noted.
const NOTES_MAX: usize = 8;

impl IcapTrail {
    /// Adds a note.
    pub fn push(&mut self, note: IcapNote) {
        if self.0.len() < NOTES_MAX {
            self.0.push(note);
        }
    }

    /// Whether no service was asked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of it.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &IcapNote> {
        self.0.iter()
    }

    /// Bytes that it holds.
    pub(super) fn count_bytes(&self) -> usize {
        let texts: usize = self.0.iter().map(|note| note.trouble.as_ref().map_or(0, |text| text.len())).sum();
        self.0.capacity() * size_of::<IcapNote>() + texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_few_and_short() {
        let service: Arc<str> = "av".into();
        let note = IcapNote::new(&service, Vector::Respmod, IcapDid::Failed, 7, Some(&"ö".repeat(200)));
        assert_eq!(note.word(), "av:failed");
        assert_eq!(note.trouble.as_ref().map(|text| text.len()), Some(TROUBLE_BYTES_MAX));
        let mut trail = IcapTrail::default();
        (0..20).for_each(|_| trail.push(note.clone()));
        assert_eq!(trail.iter().count(), NOTES_MAX);
    }

    #[test]
    fn counters_are_found_by_their_word() {
        for (at, did) in IcapDid::ALL.into_iter().enumerate() {
            assert_eq!(did as usize, at);
        }
    }
}
