//! Lists of hosts, URLs and networks: how they are, whether one covers something, and a look at their sources now.

use super::{Admin, Reply, api};
use crate::clock;
use crate::lists::{self, ListState, RefreshAsked, Shrinking};
use crate::purge::parts;
use larder_lists::Subject;
use larder_wire::{Host, Url};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// All lists.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListsShown {
    /// In the order of their names.
    pub lists: Vec<OfList>,
}

/// One list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfList {
    /// Its name.
    pub name: String,
    /// Its source.
    pub source: String,
    /// The file and line where it is configured.
    pub said: String,
    /// Its format.
    pub format: String,
    /// `loading`, `good`, `stale` or `failed`.
    pub state: String,
    /// Entries, exceptions of the source included.
    pub entries: u64,
    /// Lines of the source that a proxy can't decide.
    pub left_out: u64,
    /// Lines that are not right.
    pub malformed: u64,
    /// The first of these, with file and line.
    pub samples: Vec<String>,
    /// Its bytes in memory.
    pub memory_bytes: u64,
    /// Seconds since the content that is in force was read.
    pub age_seconds: Option<u64>,
    /// Seconds since the source was last found to be as it is in force.
    pub checked_seconds: Option<u64>,
    /// Seconds until the source is looked at again.
    pub next_seconds: Option<u64>,
    /// Why the last look at the source failed.
    pub error: Option<String>,
    /// Looks at the source since the start.
    pub looks: u64,
    /// Those of them that failed.
    pub failures: u64,
    /// Those of them that brought another content.
    pub changes: u64,
}

/// Whether a list covers something.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Judged {
    /// The name of the list.
    pub list: String,
    /// The host, URL or address.
    pub of: String,
    /// Whether the list covers it.
    pub covered: bool,
    /// Why, in words.
    pub why: String,
}

/// Seconds since the source of a list was last found to be as it is in force, or since it was read.
pub(super) fn age(state: &ListState) -> Option<u64> {
    let at = state.checked_at.or(state.read_at)?;
    Some(clock::wall().saturating_sub(at).as_secs())
}

/// `GET /lists`.
pub(super) fn all(admin: &Admin) -> Reply {
    Reply::json(200, &ListsShown { lists: admin.common.lists.states().into_iter().map(OfList::from).collect() })
}

impl From<ListState> for OfList {
    fn from(state: ListState) -> OfList {
        let now = clock::wall();
        let since = |at: Option<Duration>| at.map(|at| now.saturating_sub(at).as_secs());
        OfList {
            state: state.as_str().to_owned(),
            samples: state.samples.lines().map(str::to_owned).collect(),
            memory_bytes: state.memory_bytes as u64,
            age_seconds: since(state.read_at),
            checked_seconds: since(state.checked_at),
            next_seconds: state.next_at.map(|at| at.saturating_sub(now).as_secs()),
            name: state.name,
            source: state.source,
            said: state.place,
            format: state.format,
            entries: state.entries,
            left_out: state.left_out,
            malformed: state.malformed,
            error: state.error,
            looks: state.looks,
            failures: state.failures,
            changes: state.changes,
        }
    }
}

/// `GET /lists/test?list=NAME&of=…`.
pub(super) fn test(admin: &Admin, query: &str) -> Reply {
    let refused = |error: String| Reply::json(422, &api::Refused { error });
    let (mut list, mut of) = (None, None);
    let read = parts(query, &[]).and_then(|parts| {
        for (name, value) in parts {
            match name {
                "list" => list = Some(value),
                "of" => of = Some(value),
                other => return Err(format!("{other}: only list and of are known")),
            }
        }
        list.zip(of).ok_or_else(|| "list and of are needed: /lists/test?list=ads&of=www.example.com".to_owned())
    });
    let (list, of) = match read {
        Ok(read) => read,
        Err(error) => return refused(error),
    };
    let Some(state) = admin.common.lists.state(&list) else { return refused(unknown(admin, &list)) };
    let set = admin.common.lists.live().value();
    let Some(loaded) = set.find(&list) else {
        let why = state.error.unwrap_or_else(|| "its first look is under way".to_owned());
        return Reply::json(
            200,
            &Judged { list, of, covered: false, why: format!("not covered: the list was not loaded: {why}") },
        );
    };
    match Asked::parse(&of) {
        Some(asked) => {
            let (covered, why) = loaded.judge(asked.subject());
            Reply::json(200, &Judged { list, of, covered, why })
        }
        None => refused(format!("{of:?} is no host, URL or address")),
    }
}

fn unknown(admin: &Admin, name: &str) -> String {
    let names: Vec<String> = admin.common.lists.states().into_iter().map(|state| state.name).collect();
    match names.is_empty() {
        true => format!("there is no list {name:?}: none is configured"),
        false => format!("there is no list {name:?}; there is {}", names.join(", ")),
    }
}

/// `POST /lists/refresh?list=NAME&accept=yes`.
pub(super) fn refresh(admin: &Admin, query: &str) -> Reply {
    let refused = |error: String| Reply::json(422, &api::Refused { error });
    let (mut list, mut shrinking) = (None, Shrinking::Refused);
    let read = parts(query, &["accept"]).and_then(|parts| {
        for (name, value) in parts {
            match name {
                "list" => list = Some(value),
                "accept" => shrinking = Shrinking::Accepted,
                other => return Err(format!("{other}: only list and accept are known")),
            }
        }
        Ok(())
    });
    if let Err(error) = read {
        return refused(error);
    }
    match admin.list_keeper.refresh(list.as_deref(), shrinking) {
        RefreshAsked::Begun => Reply::json(200, &api::Done { done: true }),
        RefreshAsked::Unknown => refused(unknown(admin, list.as_deref().unwrap_or_default())),
    }
}

/// A question in a person's spelling.
#[derive(Debug, PartialEq)]
enum Asked {
    Address(IpAddr),
    Url(Url),
    Host(String),
}

impl Asked {
    fn parse(text: &str) -> Option<Asked> {
        let text = text.trim();
        if let Ok(address) = text.trim_start_matches('[').trim_end_matches(']').parse() {
            return Some(Asked::Address(address));
        }
        if text.contains("://") {
            return Url::parse(text).map(Asked::Url);
        }
        match text.split_once('/') {
            Some(_) => Url::parse(&format!("http://{text}")).map(Asked::Url),
            None if text.is_ascii() => Host::parse(text).map(|host| Asked::Host(host.as_str().to_owned())),
            None => larder_lists::ascii_name(text).map(Asked::Host),
        }
    }

    fn subject(&self) -> Subject<'_> {
        match self {
            Asked::Address(address) => Subject::Address(*address),
            Asked::Host(host) => Subject::Host(host),
            Asked::Url(url) => lists::subject(url),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_of_people() {
        let host = |text: &str| Some(Asked::Host(text.to_owned()));
        for (text, wanted) in [
            ("www.Example.com", host("www.example.com")),
            ("bücher.example", host("xn--bcher-kva.example")),
            ("[::1]", Some(Asked::Address("::1".parse().unwrap()))),
            ("192.0.2.1", Some(Asked::Address("192.0.2.1".parse().unwrap()))),
            ("example.com/a", Url::parse("http://example.com/a").map(Asked::Url)),
            ("https://example.com/a?b", Url::parse("https://example.com/a?b").map(Asked::Url)),
            ("two words", None),
            ("", None),
        ] {
            assert_eq!(Asked::parse(text), wanted, "{text}");
        }
    }
}
