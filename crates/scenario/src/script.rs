//! A script as values: origins, clients, their steps and the checks of each. No socket here.

use crate::target::Way;
use crate::text::{Payload, Text};
use std::time::Duration;

/// A script that was read without an error.
#[derive(Debug, Clone)]
pub struct Script {
    pub(crate) path: String,
    pub(crate) about: String,
    pub(crate) ways: Vec<Way>,
    pub(crate) needs: Vec<String>,
    pub(crate) config: Option<String>,
    pub(crate) limit: Duration,
    pub(crate) origins: Vec<Part>,
    pub(crate) acts: Vec<Act>,
}

impl Script {
    /// The file it came from.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The comment at its top: what it shows, and which section of which RFC says so.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// The ways in which it is to be played, each with a fresh proxy.
    pub fn ways(&self) -> &[Way] {
        &self.ways
    }

    /// The features beyond HTTP that the proxy must have (`larder`), by name.
    pub fn needs(&self) -> &[String] {
        &self.needs
    }

    /// Settings that the proxy must be started with, in its own language, verbatim.
    pub fn config(&self) -> Option<&str> {
        self.config.as_deref()
    }

    /// The names of its origins, in order.
    pub fn origins(&self) -> impl Iterator<Item = &str> {
        self.origins.iter().map(|part| part.name.as_str())
    }
}

/// All steps of one origin.
#[derive(Debug, Clone)]
pub struct Part {
    pub name: String,
    pub steps: Vec<Step>,
}

/// A part of the play on the clients' side; they follow one after the other.
#[derive(Debug, Clone)]
pub enum Act {
    /// A client, or `count` equal ones at once, plays; a later act waits for it unless `background`.
    Client { name: String, count: usize, background: bool, steps: Vec<Step> },
    /// Waits for a client that plays in the background.
    Wait { name: String },
}

/// One step, with its place in the script.
#[derive(Debug, Clone)]
pub struct Step {
    pub line: usize,
    pub text: String,
    pub what: Action,
}

/// The action of a step.
#[derive(Debug, Clone)]
pub enum Action {
    /// Client: send a request.
    Ask(Ask),
    /// Client: the whole answer, with one of these statuses.
    Got(Statuses, Vec<Check>),
    /// Client: the head of the answer.
    GotHead(Statuses, Vec<Check>),
    /// Client: an answer with one of these statuses, then the proxy closes; or only the close, where allowed.
    Refused { statuses: Statuses, or_closed: bool },
    /// Client: a 5xx answer, or a connection that ends before the answer is whole.
    Failed(Statuses),
    /// Client: the same, but an end of the connection before anything was said does not do.
    FailedAloud(Statuses),
    /// Client: leave this connection and make a new one.
    Reconnect,
    /// Origin: the next request.
    Expect(Expect),
    /// Origin: take the next connection, without waiting for a request.
    Accept,
    /// Origin: answer.
    Reply(Reply),
    /// Origin: the head of an answer, the body by later steps.
    Begin(Reply),
    /// Origin: from here on, treat these requests so whenever they come.
    Whenever(Standing),
    /// Origin: go on with the exchange of this label.
    With(String),
    /// Origin: stop listening and close every connection.
    Down,
    /// The origin is down, and connections to it are neither accepted nor refused.
    Unreachable,
    /// Origin: no request comes for so long.
    NoRequest(Duration),
    /// Origin: connections or requests so far.
    Count { requests: bool, least: usize, most: usize },
    /// Both: raw bytes.
    Send(Vec<Payload>),
    /// Both: raw bytes, one at a time with a pause between.
    Dribble(Duration, Vec<Payload>),
    /// Both: a chunk of a chunked body.
    Chunk(Vec<Payload>),
    /// Both: the last chunk, with trailers.
    LastChunk(Vec<(Text, Text)>),
    /// Both: the next bytes of the body under way.
    Piece(Vec<Payload>),
    /// Both: the rest of the body under way, and its proper end.
    Rest(Option<Vec<Payload>>, Vec<Check>),
    /// Both: the body under way ends improperly.
    Cut,
    /// Both: exactly these raw bytes come next.
    Receive(Vec<Payload>),
    /// Both: the other side closes, without another byte.
    Closed,
    /// Both: nothing comes for so long, and the connection stays.
    Quiet(Duration),
    /// Both: close the connection.
    Close,
    /// Both: close it with a TCP reset.
    Reset,
    /// Both: close the sending direction.
    HalfClose,
    /// Both: meet all other parties that name this barrier.
    Barrier(String),
    /// Both: let time pass, for slow peers.
    Pause(Duration),
    /// Both: stop or go on taking bytes from the connection.
    Reading(bool),
}

/// A request as a client writes it.
#[derive(Debug, Clone)]
pub struct Ask {
    pub method: String,
    pub path: Text,
    pub origin: String,
    pub target: Option<Text>,
    pub message: Message,
}

/// An answer as an origin writes it.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub reason: Option<String>,
    pub message: Message,
}

/// The parts that requests and answers share.
#[derive(Debug, Clone, Default)]
pub struct Message {
    pub version: Option<String>,
    pub fields: Vec<(Text, Text)>,
    pub without: Vec<String>,
    pub body: Option<Vec<Payload>>,
    pub chunks: Option<Vec<Vec<Payload>>>,
    pub trailers: Vec<(Text, Text)>,
    pub until_close: bool,
    pub honours_range: bool,
    pub body_later: bool,
}

/// A request as an origin expects it.
#[derive(Debug, Clone)]
pub struct Expect {
    pub method: String,
    pub path: Text,
    pub label: Option<String>,
    pub body_later: bool,
    pub checks: Vec<Check>,
}

/// An origin's answer to requests that may come or not, and any number of times; later ones go first.
#[derive(Debug, Clone)]
pub struct Standing {
    pub method: String,
    pub path: Text,
    pub reaction: Reaction,
}

/// The origin's reaction to such a request.
#[derive(Debug, Clone)]
pub enum Reaction {
    /// It is answered.
    Reply(Box<Reply>),
    /// The connection is closed without an answer.
    Close,
    /// It must never become whole: the proxy saw too late that it must refuse it.
    Cut,
}

/// A set of statuses: `200|206|4xx`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statuses(pub Vec<(u16, u16)>);

impl Statuses {
    /// Whether a status is one of them.
    pub fn has(&self, status: u16) -> bool {
        self.0.iter().any(|(low, high)| (*low..=*high).contains(&status))
    }

    /// As written.
    pub fn show(&self) -> String {
        let one = |(low, high): &(u16, u16)| if low == high { low.to_string() } else { format!("{}xx", low / 100) };
        self.0.iter().map(one).collect::<Vec<_>>().join("|")
    }
}

/// One thing that must hold of a message.
#[derive(Debug, Clone)]
pub enum Check {
    /// All lines of the field, joined by a comma, are one of these values.
    Is(String, Vec<Text>),
    /// All lines of the field, joined by a comma, match this pattern, where `*` stands for anything.
    Matches(String, Text),
    /// The value contains this text.
    Contains(String, Text),
    /// The value, if any, does not contain this text.
    Excludes(String, Text),
    /// The value is a whole number in this range.
    Within(String, i64, i64),
    /// The field has so many lines.
    Lines(String, usize),
    /// The field is there.
    Has(String),
    /// The field is not there.
    Lacks(String),
    /// Names with exactly this case come in this order.
    Order(Vec<String>),
    /// The whole body is one of these.
    Body(Vec<Vec<Payload>>),
    /// Its length.
    BodyLength(u64),
    /// It contains this text.
    BodyContains(Text),
    /// It does not contain this text.
    BodyLacks(Text),
    /// How its end is told.
    Framed(String),
    /// A trailer with this value.
    Trailer(String, Text),
    /// A multipart body of so many parts.
    Parts(usize),
    /// One of its parts: number from 1, Content-Range, body.
    Part(usize, String, Vec<Payload>),
    /// The head's raw bytes contain this text.
    RawContains(Text),
    /// The head's raw bytes do not contain this text.
    RawLacks(Text),
    /// The version in the first line.
    Version(String),
    /// The reason phrase.
    Reason(String),
    /// Faults of form that the reader saw are forgiven.
    Lenient,
}
