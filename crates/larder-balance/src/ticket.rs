//! A request at a member.

/// A member, in a group that may get other settings while its requests are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberId(pub(crate) u64);

/// A request at a member; its end is told by [`Group::end`](crate::Group::end).
#[derive(Debug)]
#[must_use = "a request whose end is not told stays under way"]
pub struct Ticket {
    pub(crate) member: MemberId,
    pub(crate) errand: Errand,
}

impl Ticket {
    /// The member that the request was sent to.
    pub fn member(&self) -> MemberId {
        self.member
    }
}

/// The meaning of a request for the health of its member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Errand {
    /// One among many.
    #[default]
    Plain,
    /// It finds out whether a member that was ejected works again.
    Trial,
    /// No member could be asked, and this one was all the same: its success counts, its failure was to be expected.
    LeastBad,
}
