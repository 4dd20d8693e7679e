//! Lists of hosts, URLs and networks in a running server, and the countries of addresses: which entries hold now ([`ListSet`]), how each
//! list is ([`ListState`]), and the [`Keeper`], whose thread reads their sources again. No request waits for it: workers look up an edition, and get the next one whole.

mod country_file;
pub mod download;
mod keeper;
mod source;
mod state;

pub use country_file::CountryFile;
pub use keeper::{Keeper, PreparedLists, RefreshAsked};
pub use source::{Shrinking, examine, for_rehearsal};
pub use state::ListState;

use crate::config;
use crate::live::Live;
use larder_lists::countries::Country;
use larder_lists::entry::Side;
use larder_lists::{Compiled, Countries, Found, Subject};
use larder_wire::Url;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The lists of a server.
#[derive(Debug, Default)]
pub struct Lists {
    live: Live<ListSet>,
    states: Mutex<BTreeMap<String, ListState>>,
}

impl Lists {
    /// The lists in force. Workers hold a [`Copy`](crate::live::Copy) of it, and memos compare its edition.
    pub fn live(&self) -> &Live<ListSet> {
        &self.live
    }

    /// Whether a list covers a subject now, for callers without a copy. A list that there is not covers nothing.
    pub fn covers(&self, list: &str, subject: Subject<'_>) -> bool {
        self.live.value().covers(list, subject)
    }

    /// How each list is, in the order of their names.
    pub fn states(&self) -> Vec<ListState> {
        self.states.lock().values().cloned().collect()
    }

    /// How the list of this name is.
    pub fn state(&self, name: &str) -> Option<ListState> {
        self.states.lock().get(name).cloned()
    }
}

/// The lists of one edition.
#[derive(Debug, Default)]
pub struct ListSet {
    lists: BTreeMap<String, Arc<LoadedList>>,
    countries: Option<Arc<Countries>>,
}

impl ListSet {
    /// The countries of addresses; `None` where no file of them is configured.
    pub fn countries(&self) -> Option<&Arc<Countries>> {
        self.countries.as_ref()
    }

    /// The country of an address; `None` where no file of countries is configured.
    pub fn country_of(&self, address: IpAddr) -> Option<Country> {
        Some(self.countries.as_ref()?.of(address))
    }

    /// The list of this name, where it was loaded.
    pub fn find(&self, name: &str) -> Option<&LoadedList> {
        self.lists.get(name).map(|list| &**list)
    }

    /// Whether a list covers a subject. A list that there is not, or that was not loaded yet, covers nothing.
    pub fn covers(&self, name: &str, subject: Subject<'_>) -> bool {
        self.find(name).is_some_and(|list| list.covers(subject))
    }

    /// Whether a list has entries for which the path of a URL counts.
    pub fn asks_path(&self, name: &str) -> bool {
        self.find(name).is_some_and(|list| list.compiled.asks_path())
    }

    /// The list and its entry that covers the subject, in words: looked up again, for the few who ask why.
    pub fn cite(&self, name: &str, subject: Subject<'_>) -> Option<String> {
        let list = self.find(name)?;
        let found = list.compiled.find(subject)?;
        let entry = list.compiled.entry(found, Side::Covers, subject);
        if matches!(found, Found::Filter) {
            return Some(format!("list '{name}', by a filter for web browsers"));
        }
        // A URL of the client's is a part of it.
        let mut shown: String = entry
            .chars()
            .take(ENTRY_CHARS)
            .map(|letter| if letter.is_control() { '\u{fffd}' } else { letter })
            .collect();
        if shown.len() < entry.len() && entry.chars().nth(ENTRY_CHARS).is_some() {
            shown.push('…');
        }
        let covered = match (found, subject) {
            (Found::NameAbove(_) | Found::Addresses(_), Subject::Host(host) | Subject::Url { host, .. })
                if !entry.eq_ignore_ascii_case(host) =>
            {
                format!(" (covers {host})")
            }
            _ => String::new(),
        };
        Some(format!("list '{name}' entry '{shown}'{covered}"))
    }
}

/// Of an entry longer than this, the beginning is shown.
const ENTRY_CHARS: usize = 120;

/// The question about a URL.
pub fn subject(url: &Url) -> Subject<'_> {
    Subject::Url { scheme: url.scheme.as_str(), host: url.host.as_str(), path: &url.path }
}

/// A list that is looked up.
#[derive(Debug)]
pub struct LoadedList {
    compiled: Arc<Compiled>,
    allow: Option<Compiled>,
}

impl LoadedList {
    fn new(compiled: Arc<Compiled>, configured: &config::List) -> LoadedList {
        let allow = (!configured.allow.is_empty()).then(|| config::list::exceptions(&configured.allow)).flatten();
        LoadedList { compiled, allow }
    }

    /// Whether it covers a subject.
    pub fn covers(&self, subject: Subject<'_>) -> bool {
        self.compiled.covers(subject) && !self.allow.as_ref().is_some_and(|allow| allow.covers(subject))
    }

    /// Whether it covers a subject and why, in words.
    pub fn judge(&self, subject: Subject<'_>) -> (bool, String) {
        if let Some(allow) = &self.allow
            && let Some(found) = allow.find(subject)
        {
            return (false, format!("not covered: `allow` has {}", allow.describe(found, Side::Covers, subject)));
        }
        match (self.compiled.find(subject), self.compiled.excepts(subject)) {
            (Some(found), _) => (true, format!("covered by {}", self.compiled.describe(found, Side::Covers, subject))),
            (None, Some(found)) => {
                let exception = self.compiled.describe(found, Side::Excepts, subject);
                (false, format!("not covered: the list has an exception for {exception}"))
            }
            (None, None) => (false, "not covered".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
