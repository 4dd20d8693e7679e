//! The decisions, as values with a word each; `text` has their sentences.

use crate::config::application::Application;
use crate::config::next_hop::HopsOrder;
use crate::config::url::group_name;
use crate::hook::HookNote;
use crate::record::{GroupNote, IcapNote, ParentOrder, Peer, TakenWay, TryEnd, TryNote, WayNote};
use larder_cache::policy::{Asked, Coding, FreshnessFacts, Grace};
use larder_people::note::HelperNote;
use larder_wire::Host;
use larder_wire::date::Stamp;
use larder_wire::directives::MaxStale;
use serde::{Deserialize, Serialize};

/// One decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "snake_case")]
pub enum Decision {
    /// Where the request came in.
    Listener {
        /// The address, as the configuration has it.
        address: String,
        /// Where that is said.
        place: String,
    },
    /// By which rule it is served, or not.
    Rule {
        /// Which kind of rule.
        rule: RuleKind,
        /// Where that is said.
        place: String,
        /// The rule as it is written.
        text: String,
    },
    /// The certificate that the client has shown to the listener.
    Certificate {
        /// The names in it, in words.
        text: String,
    },
    /// The country of the client's address, where a file of countries is configured.
    Country {
        /// The address, and its country, in words.
        text: String,
    },
    /// The user who has logged in, or would have to.
    User {
        /// The user, and by which login, in words.
        text: String,
    },
    /// Under which key was looked.
    Key {
        /// The key.
        key: String,
        /// How it was made: `url`, `site` (the origin stands before the URL), `no-vary-search`.
        made: Vec<String>,
    },
    /// A store rule that made something of the request or its answer.
    StoreRule {
        /// Its work, and where the rule stands.
        text: String,
    },
    /// Hooks of the site that were asked, or would be.
    Hook {
        /// When: request, found, fetched or respond.
        stage: String,
        /// The hook that decided or changed last; one that would be asked.
        hook: String,
        /// The file of that hook.
        hook_script: String,
        /// The line of it that decided or changed last; of one that would be asked, where it begins.
        hook_line: u32,
        /// Microseconds that the request waited; nothing for one that would be asked.
        hook_micros: Option<u64>,
        /// The decision was a remembered one.
        hook_remembered: bool,
        /// The work of the hooks, in words; nothing for one that would be asked.
        did: Option<String>,
        /// The path and the query that they asked for in place of the client's.
        asks_for: Option<String>,
    },
    /// A helper that was asked, or would be.
    Helper {
        /// Its name.
        helper: String,
        /// The protocol that it speaks: external_acl, url_rewrite, store_id.
        helper_kind: String,
        /// Its answer in a word: ok, err, failed, passed-over; nothing for one that would be asked.
        helper_did: Option<String>,
        /// Microseconds that the request waited for it; nothing where its answer was remembered.
        helper_micros: Option<u64>,
        /// Its answer was a remembered one.
        helper_remembered: bool,
        /// The outcome of the answer, in words.
        helper_text: String,
    },
    /// A service of ICAP that was asked, or would be.
    Icap {
        /// The name of the service.
        icap: String,
        /// About a request (REQMOD) or a response (RESPMOD).
        icap_method: String,
        /// Its work in a word; empty for one that would be asked.
        icap_did: String,
        /// Microseconds until the head of its reply was here; nothing for one that would be asked.
        icap_micros: Option<u64>,
        /// Its trouble, or why the message went on without it.
        icap_trouble: Option<String>,
    },
    /// Larder has coded the body.
    Compression {
        /// The coding: gzip, br, zstd.
        coding: String,
    },
    /// The request's cache directives.
    Directives {
        /// The directives that count.
        asked: OfAsked,
    },
    /// The responses stored under the key.
    Variants {
        /// Each of them.
        variants: Vec<OfVariant>,
        /// Those that are not listed.
        more: usize,
        /// They were loaded from disk for this request.
        taken_up: bool,
    },
    /// How fresh the chosen one is.
    Freshness {
        /// The numbers.
        numbers: Numbers,
        /// The conclusion: fresh, stale, max-stale, …
        usable: String,
    },
    /// No stored response can be used.
    Absent {
        /// How the response that was stored before ended.
        fate: Option<String>,
        /// When: seconds since 1970.
        since: Option<u64>,
        /// Why the last answer was not stored.
        not_stored_before: Option<String>,
    },
    /// The request waits for a fetch that another request began.
    Followed {
        /// The number of lookups.
        looks: u8,
    },
    /// The origin is asked.
    Upstream {
        /// Why.
        cause: String,
        /// The cause in a sentence.
        about: String,
        /// The kind of fetch: whole, part, hole, relay.
        kind: String,
        /// Where to.
        origin: Option<String>,
        /// The kind of origin.
        #[serde(default)]
        origin_kind: OriginKind,
        /// The target and the `Host` that it sees, of a request that might come.
        asks: Option<String>,
        /// On a connection that had served before.
        reused: Option<bool>,
        /// On a stream of HTTP/2.
        #[serde(default)]
        by_http2: bool,
        /// The header of the PROXY protocol with which its connection began, or would begin.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proxy_header: Option<String>,
        /// How often it was tried.
        attempts: u8,
        /// Whether a stored response was named, to be validated.
        conditional: bool,
        /// The status of the answer.
        status: Option<u16>,
        /// Microseconds until there was a connection.
        connected_micros: Option<u64>,
        /// Microseconds until the head of the answer was here.
        answered_micros: Option<u64>,
        /// The trouble, in a sentence.
        trouble: Option<String>,
        /// The source of the digest that the body was found to have.
        digest: Option<String>,
        /// The further range requests for the same download, where any were thought of.
        parallel: Option<ParallelRanges>,
    },
    /// Those through whom the origin is asked, where parents, siblings or nodes of the cluster are meant.
    Way {
        /// The one that was taken, as `parent office`, `sibling second`, `node cache-2` or `direct`.
        taken: Option<String>,
        /// Those that would be tried, in this order.
        hops: Vec<String>,
        /// Why the first one is the first one, in words.
        by: Option<String>,
        /// Neighbours that would be asked first whether they have the response, as `sibling second`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        asked: Vec<String>,
        /// Parents and nodes that were tried in vain, each with its trouble.
        failed: Vec<String>,
        /// Parents that were not tried, because they had failed of late.
        left_out: Vec<String>,
    },
    /// Members of a group of origins were asked.
    OriginGroup {
        /// The name of the group.
        group: String,
        /// The requests that were sent.
        tries: Vec<OfTry>,
        /// Why no further member could be asked.
        refused: Option<String>,
    },
    /// Whether the answer is stored.
    Stored {
        /// It is.
        stored: bool,
        /// Why not.
        why: Option<String>,
        /// On which terms.
        numbers: Option<Numbers>,
        /// The disk admitted it; nothing where there is no disk or it was not asked.
        on_disk: Option<bool>,
        /// It did not, because it was behind with its writes.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        disk_is_behind: bool,
        /// The fields by which variants would be told apart, of an answer that might come.
        vary: Vec<String>,
    },
    /// The outcome.
    Answer(Settled),
}

/// A request to a member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfTry {
    /// The member.
    pub member: String,
    /// Why it was chosen: balance, cookie, trial, backup, least-bad.
    pub why: String,
    /// It was sent beside a late one.
    pub hedge: bool,
    /// The members that could not be asked, and why.
    pub passed_over: Vec<String>,
    /// The status of the answer.
    pub status: Option<u16>,
    /// The word for the trouble; `outrun` where another member answered first, `given-up` where the client left.
    pub trouble: Option<String>,
    /// Microseconds that it took.
    pub micros: Option<u64>,
}

impl From<&GroupNote> for Decision {
    fn from(note: &GroupNote) -> Decision {
        Decision::OriginGroup {
            group: note.group.to_string(),
            tries: note.tries.iter().map(OfTry::from).collect(),
            refused: note.refused.map(str::to_owned),
        }
    }
}

impl From<&WayNote> for Decision {
    fn from(note: &WayNote) -> Decision {
        let by = match &note.taken {
            Some(TakenWay::Parent(_, order)) => by_order(*order),
            _ => None,
        };
        let homes = note.homes_failed.iter().map(|(name, why)| format!("node {name}: {why}"));
        let failed = note.failed.iter().map(|(parent, why)| format!("{}: {why}", parent.name)).chain(homes);
        Decision::Way {
            taken: note.taken.as_ref().map(ToString::to_string),
            hops: Vec::new(),
            asked: Vec::new(),
            by: by.map(str::to_owned),
            failed: failed.collect(),
            left_out: note.left_out.iter().map(|parent| parent.name.clone()).collect(),
        }
    }
}

/// Why a parent goes before others, in words; nothing where it is the first of a list.
pub(super) fn by_order(order: ParentOrder) -> Option<&'static str> {
    match order {
        ParentOrder::By(HopsOrder::Listed) => None,
        ParentOrder::By(HopsOrder::Carp) => Some("the URL has it by CARP"),
        ParentOrder::By(HopsOrder::Hit) => Some("it said that it has the response"),
        ParentOrder::By(HopsOrder::FirstMiss) => Some("it was the first one to say that it does not have the response"),
        ParentOrder::AllDead => Some("no other led there, so those were tried that had failed of late"),
    }
}

impl From<&TryNote> for OfTry {
    fn from(note: &TryNote) -> OfTry {
        let (status, trouble) = match note.end {
            TryEnd::Answered(status) => (Some(status), None),
            TryEnd::Failed(word) => (None, Some(word)),
            TryEnd::Outrun => (None, Some("outrun")),
            TryEnd::GivenUp => (None, Some("given-up")),
        };
        OfTry {
            member: note.member.name.clone(),
            why: note.why.as_str().to_owned(),
            hedge: note.is_hedge,
            passed_over: note.passed_over.iter().map(|(member, why)| format!("{}: {why}", member.name)).collect(),
            status,
            trouble: trouble.map(str::to_owned),
            micros: (note.micros > 0).then_some(note.micros),
        }
    }
}

impl From<&IcapNote> for Decision {
    fn from(note: &IcapNote) -> Decision {
        Decision::Icap {
            icap: note.service.to_string(),
            icap_method: note.vector.as_str().to_owned(),
            icap_did: note.did.as_str().to_owned(),
            icap_micros: Some(note.micros),
            icap_trouble: note.trouble.as_ref().map(ToString::to_string),
        }
    }
}

impl From<&HelperNote> for Decision {
    fn from(note: &HelperNote) -> Decision {
        Decision::Helper {
            helper: note.helper.to_string(),
            helper_kind: note.kind.as_str().to_owned(),
            helper_did: Some(note.did.as_str().to_owned()),
            helper_micros: note.micros,
            helper_remembered: note.micros.is_none(),
            helper_text: note.words.to_string(),
        }
    }
}

impl From<&HookNote> for Decision {
    fn from(note: &HookNote) -> Decision {
        Decision::Hook {
            stage: note.stage.as_str().to_owned(),
            hook: note.place.name.clone(),
            hook_script: note.place.script.clone(),
            hook_line: note.line,
            hook_micros: Some(note.micros),
            hook_remembered: note.remembered,
            did: Some(note.did.to_string()),
            asks_for: note.target.as_ref().map(ToString::to_string),
        }
    }
}

/// A kind of origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OriginKind {
    /// A host of the network.
    #[default]
    Network,
    /// A server behind a Unix socket.
    Socket,
    /// An application that this server runs.
    Application,
    /// A group of origins.
    Group,
}

impl OriginKind {
    /// The kind of the origin of this name.
    pub fn of(host: &Host) -> OriginKind {
        match host {
            host if Application::is_origin(host) => OriginKind::Application,
            host if group_name(host).is_some() => OriginKind::Group,
            host if host.is_local() => OriginKind::Socket,
            _ => OriginKind::Network,
        }
    }
}

impl From<Peer> for OriginKind {
    fn from(peer: Peer) -> OriginKind {
        match peer {
            Peer::Address(_) | Peer::Parent(_) | Peer::Sibling(_) | Peer::Home => OriginKind::Network,
            Peer::Socket => OriginKind::Socket,
            Peer::Process(_) => OriginKind::Application,
        }
    }
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// How the answer came about, as in the metrics.
    pub outcome: String,
    /// Why the origin is asked, when it is.
    pub cause: Option<String>,
    /// The status, where it is known.
    pub status: Option<u16>,
    /// Bytes of the body that were sent.
    pub bytes: Option<u64>,
    /// How long all of it took.
    pub micros: Option<u64>,
    /// The answer went out to its end.
    pub complete: Option<bool>,
}

/// A kind of rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleKind {
    /// `access.clients`.
    Forward,
    /// The origin of the listener.
    Listener,
    /// A `[[site]]`.
    Site,
    /// Through a tunnel that was opened.
    Tunnel,
    /// By a URL in the path.
    Mirror,
    /// No route: Larder answers by itself.
    Own,
}

/// Cache directives of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfAsked {
    /// The greatest age wanted.
    pub max_age: Option<u64>,
    /// The least freshness wanted.
    pub min_fresh: Option<u64>,
    /// The staleness that is accepted: a number of seconds, or -1 for any.
    pub max_stale: Option<i64>,
    /// Only a validated response is wanted.
    pub no_cache: bool,
    /// Nothing is to be kept.
    pub no_store: bool,
    /// Only what is in the cache is wanted.
    pub only_if_cached: bool,
    /// Staleness that is accepted in place of an error.
    pub stale_if_error: Option<u64>,
    /// Sent by a run that does not use the network.
    #[serde(default)]
    pub offline: bool,
}

impl From<Asked> for OfAsked {
    fn from(asked: Asked) -> OfAsked {
        OfAsked {
            max_age: asked.max_age,
            min_fresh: asked.min_fresh,
            max_stale: asked.max_stale.map(|most| match most {
                MaxStale::Any => -1,
                MaxStale::Seconds(seconds) => i64::try_from(seconds).unwrap_or(i64::MAX),
            }),
            no_cache: asked.no_cache,
            no_store: asked.no_store,
            only_if_cached: asked.only_if_cached,
            stale_if_error: asked.stale_if_error,
            offline: asked.offline,
        }
    }
}

impl OfAsked {
    /// The directives in the policy's own type, so that a decision can be repeated.
    pub fn asked(&self) -> Asked {
        Asked {
            max_age: self.max_age,
            min_fresh: self.min_fresh,
            max_stale: self.max_stale.map(|most| u64::try_from(most).map_or(MaxStale::Any, MaxStale::Seconds)),
            no_cache: self.no_cache,
            no_store: self.no_store,
            only_if_cached: self.only_if_cached,
            stale_if_error: self.stale_if_error,
            offline: self.offline,
        }
    }
}

/// Several range requests for one download.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParallelRanges {
    /// Requests at once, the first one included: the most that brought more than fewer.
    pub most: u8,
    /// Range requests ahead of the first one, in all.
    pub requests: u16,
    /// Why there were no more: open, setting, no-gain, short, forbidden, busy, trouble, changed, permits, not-wanted.
    pub limit: String,
}

/// The arithmetic of freshness (RFC 9111 section 4.2), in seconds and seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    /// When it was looked at.
    pub now: u64,
    /// When the response arrived.
    pub received: u64,
    /// Its `Date`.
    pub date: u64,
    /// How old it was when it arrived.
    pub initial_age: u64,
    /// How old it is: `initial_age` and the time since `received`.
    pub age: u64,
    /// How long it is fresh.
    pub lifetime: u64,
    /// The source of the lifetime: max-age, s-maxage, expires, heuristic, …
    pub source: String,
    /// How long it is fresh still; below 0 how long it has been stale.
    pub remaining: i64,
    /// Once stale, never served without validation.
    pub must_revalidate: bool,
    /// Never served without validation.
    pub no_cache: bool,
    /// How long it may be served while it is validated.
    pub stale_while_revalidate: Option<u64>,
    /// How long it may stand in for an error.
    pub stale_if_error: Option<u64>,
}

impl From<FreshnessFacts> for Numbers {
    fn from(weighed: FreshnessFacts) -> Numbers {
        Numbers {
            now: weighed.now.0,
            received: weighed.received.0,
            date: weighed.date.0,
            initial_age: weighed.initial_age,
            age: weighed.age(),
            lifetime: weighed.lifetime,
            source: weighed.source.as_str().to_owned(),
            remaining: weighed.remaining(),
            must_revalidate: weighed.must_revalidate,
            no_cache: weighed.no_cache,
            stale_while_revalidate: weighed.grace.as_ref().and_then(|grace| grace.stale_while_revalidate()),
            stale_if_error: weighed.grace.as_ref().and_then(|grace| grace.stale_if_error()),
        }
    }
}

impl Numbers {
    /// The numbers in the policy's own type, so that a decision can be repeated.
    pub fn weighed(&self) -> Option<FreshnessFacts> {
        Some(FreshnessFacts {
            now: Stamp(self.now),
            received: Stamp(self.received),
            initial_age: self.initial_age,
            date: Stamp(self.date),
            lifetime: self.lifetime,
            source: larder_cache::policy::LifetimeSource::of_word(&self.source)?,
            must_revalidate: self.must_revalidate,
            no_cache: self.no_cache,
            grace: Grace::of(self.stale_while_revalidate, self.stale_if_error),
        })
    }
}

/// A stored response, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfVariant {
    /// The fields by which it was chosen; values that may be secrets are `…`.
    pub by: Vec<String>,
    /// It answers the request's fields.
    pub matches: bool,
    /// It is the one that counts.
    pub chosen: bool,
    /// Where it lies: memory, disk, memory+disk, partly.
    pub lies: String,
    /// Seconds of freshness left.
    pub remaining: i64,
    /// The length of its body.
    pub length: Option<u64>,
}

impl Decision {
    /// Larder has coded the body so.
    pub(super) fn coded_as(coding: Coding) -> Decision {
        Decision::Compression { coding: coding.as_str().to_owned() }
    }

    /// The word of a decision.
    pub fn word(&self) -> &'static str {
        match self {
            Decision::Listener { .. } => "listener",
            Decision::Rule { .. } => "rule",
            Decision::Certificate { .. } => "certificate",
            Decision::Compression { .. } => "compression",
            Decision::Country { .. } => "country",
            Decision::User { .. } => "user",
            Decision::Key { .. } => "key",
            Decision::StoreRule { .. } => "by rule",
            Decision::Way { .. } => "way",
            Decision::OriginGroup { .. } => "members",
            Decision::Helper { .. } => "helper",
            Decision::Hook { .. } => "hook",
            Decision::Icap { .. } => "icap",
            Decision::Directives { .. } => "asks",
            Decision::Variants { .. } => "stored",
            Decision::Freshness { .. } => "fresh",
            Decision::Absent { .. } => "absent",
            Decision::Followed { .. } => "followed",
            Decision::Upstream { .. } => "origin",
            Decision::Stored { .. } => "kept",
            Decision::Answer(_) => "answer",
        }
    }
}

/// How a key was made of a URL. `asked` is the path and query, or the whole URL, that hooks asked for in its place.
pub(super) fn made_of(key: &str, url: &str, asked: Option<&str>) -> Vec<String> {
    if key.contains("store-id => ") {
        return vec!["the store-id that a helper gave".to_owned()];
    }
    if let Some((_, own)) = key.split_once(" => ") {
        let mut made = vec!["the URL that handed it out".to_owned(), "the URL without its signature".to_owned()];
        made.extend(own.contains('?').then(|| "the rest of its query".to_owned()));
        return made;
    }
    let (origin, own) = match key.split_once(' ') {
        Some((_, own)) => (true, own),
        None => (false, key),
    };
    let by_hooks = asked.map(|asked| match asked.contains("://") {
        true => asked.to_owned(),
        false => format!("{}{asked}", origin_of(url)),
    });
    let mut made = match by_hooks {
        Some(_) => vec!["the URL that hooks ask for".to_owned()],
        None => vec!["the URL".to_owned()],
    };
    if origin {
        made.insert(0, "the site's origin".to_owned());
    }
    let url = by_hooks.as_deref().unwrap_or(url);
    if own != url && own.split('?').next() == url.split('?').next() {
        made.push("what the answers (No-Vary-Search) or a store rule say of the query".to_owned());
    }
    made
}

/// The scheme, host and port of a URL.
fn origin_of(url: &str) -> &str {
    let after_scheme = url.find("://").map_or(0, |at| at + 3);
    let end = url[after_scheme..].find(['/', '?']).map_or(url.len(), |at| after_scheme + at);
    &url[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_of_the_url_that_hooks_ask_for() {
        let url = "http://a.example:8080/p?utm_source=x&id=1";
        let key = "http://10.0.0.5:9000/ http://a.example:8080/p?id=1";
        let made = |asked| made_of(key, url, asked).join("; ");
        let by_search = "what the answers (No-Vary-Search) or a store rule say of the query";
        assert_eq!(made(None), format!("the site's origin; the URL; {by_search}"));
        assert_eq!(made(Some("/p?id=1")), "the site's origin; the URL that hooks ask for");
        assert_eq!(made(Some("/p?id=1&x=2")), format!("the site's origin; the URL that hooks ask for; {by_search}"));
        assert_eq!(made_of("https://b.example/q", url, Some("https://b.example/q")), ["the URL that hooks ask for"]);
    }
}
