//! The stages of a request at which hooks are called.

/// When hooks are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// After the rules, before the key is made.
    Request,
    /// When a stored response is about to be used.
    Found,
    /// Before the caching rules see the head of an origin's answer.
    Fetched,
    /// Before an answer goes to its client.
    Respond,
}

impl Stage {
    /// All stages, in the order in which a request meets them.
    pub const ALL: [Stage; 4] = [Stage::Request, Stage::Found, Stage::Fetched, Stage::Respond];

    /// The word of the wire, the log and the pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Request => "request",
            Stage::Found => "found",
            Stage::Fetched => "fetched",
            Stage::Respond => "respond",
        }
    }

    /// The stage of a decorator.
    pub(super) fn of_decorator(name: &str) -> Option<Stage> {
        match name {
            "page" => Some(Stage::Request),
            name => Stage::ALL.into_iter().find(|stage| stage.as_str() == name),
        }
    }
}
