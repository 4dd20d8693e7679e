//! The explanation of a request that came, from its record.

use super::decision::{Decision, OfVariant, ParallelRanges, RuleKind, Settled};
use super::text::verdict;
use super::{Explanation, Step, Summary, Tense};
use crate::client::ShownAddress;
use crate::config::{Config, Listen, ValueSource};
use crate::hook::{HookNote, Stage};
use crate::lists::ListSet;
use crate::record::{
    Cause, Detail, Keeping, Names, Notes, OriginProtocol, Outcome, Peer, Record, Reuse, TakenWay, Variant,
};
use crate::rules::Rule;
use larder_cache::cache::Admitted;
use larder_wire::icap::Vector;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Where the rules of a configuration stand.
#[derive(Clone)]
pub struct Places {
    /// The configuration in force.
    pub config: Arc<Config>,
    /// Its edition.
    pub edition: u64,
    /// Where its settings were said.
    pub sources: BTreeMap<&'static str, ValueSource>,
    /// The lists and countries in force; `None` where they are not known.
    pub lists: Option<Arc<ListSet>>,
}

impl Places {
    pub(super) fn setting(&self, name: &str) -> String {
        match self.sources.get(name) {
            Some(ValueSource::Line(file, line)) => format!("{file}:{line}"),
            Some(ValueSource::Flag(flag)) => format!("--{flag}"),
            Some(ValueSource::Computed(reason)) => format!("computed: {reason}"),
            None => "default".to_owned(),
        }
    }

    /// Where a listener stands: its own line, or what flag or default it comes from.
    pub(super) fn listener(&self, address: SocketAddr) -> String {
        let found = self.config.listens.iter().find(|listen| listen.address == address);
        match found.map(|listen| &listen.place) {
            Some(place) if place.0.is_some() => place.to_string(),
            _ => self.setting("listen"),
        }
    }

    /// The address of a listener as it is written: that of a Unix socket is a path.
    pub(super) fn listener_name(&self, address: SocketAddr) -> String {
        let found = self.config.listens.iter().find(|listen| listen.address == address);
        found.map_or_else(|| address.to_string(), Listen::name)
    }

    /// The country of a client's address, as the file in force has it.
    pub(super) fn country(&self, client: IpAddr) -> Option<Decision> {
        let client = client.to_canonical();
        let code = self.lists.as_ref()?.country_of(client)?;
        let code = String::from_utf8_lossy(&code);
        let unknown = if code == "ZZ" { ", for the file has no country for it" } else { "" };
        Some(Decision::Country { text: format!("{client} is of {code}{unknown} (access.country_file)") })
    }

    pub(super) fn rule(&self, rule: Rule, listener: Option<SocketAddr>, edition: u64) -> Decision {
        let place = |text: String| if edition == self.edition { text } else { EARLIER.to_owned() };
        let (kind, place, text) = match rule {
            Rule::Forward => (
                RuleKind::Forward,
                place(self.setting("access.clients")),
                "forward proxy, by access.clients".to_owned(),
            ),
            Rule::Listener => {
                let at = listener.map(|address| self.listener(address)).unwrap_or_default();
                (RuleKind::Listener, place(at), "the one site of this listener".to_owned())
            }
            Rule::Site(number) => {
                match self.config.sites.get(usize::from(number)).filter(|_| edition == self.edition) {
                    Some(site) => {
                        let hosts: Vec<String> = site.hosts.iter().map(ToString::to_string).collect();
                        let text = format!("[[site]] {} {} from {}", hosts.join(", "), site.prefix, site.origin);
                        (RuleKind::Site, site.place.to_string(), text)
                    }
                    None => (RuleKind::Site, EARLIER.to_owned(), "a [[site]]".to_owned()),
                }
            }
            Rule::Tunnel => (RuleKind::Tunnel, String::new(), "inside a tunnel that is opened here".to_owned()),
            Rule::Mirror => {
                let at = listener.map(|address| self.listener(address)).unwrap_or_default();
                (RuleKind::Mirror, place(at), "the mirror: the URL stood in the path of the request".to_owned())
            }
            Rule::Question => (RuleKind::Own, String::new(), "a question about a URL".to_owned()),
        };
        Decision::Rule { rule: kind, place, text }
    }
}

/// The place of a rule in a configuration that was replaced since.
const EARLIER: &str = "a configuration that was reloaded since";

/// A record in a line.
pub fn summary(record: &Record, names: &Names) -> Summary {
    let cause = record.trail.cause.filter(|_| record.outcome.asks_origin());
    Summary {
        id: names.name(record.number).to_string(),
        at_millis: u64::try_from(record.at.as_millis()).unwrap_or(u64::MAX),
        client: ShownAddress(record.peer).to_string(),
        method: record.method.as_ref().map_or("-", |method| method.as_str()).to_owned(),
        host: crate::log::host(&record.url).to_owned(),
        url: record.url.clone(),
        status: record.status,
        bytes: record.bytes,
        outcome: record.outcome.class_word().to_owned(),
        cause: cause.map(|cause| cause.as_str().to_owned()),
        not_stored: record.not_stored.map(str::to_owned),
        micros: record.micros(),
        complete: record.complete,
    }
}

/// The certificate of the client, and the user.
fn people(record: &Record) -> impl Iterator<Item = Decision> {
    let certificate = record.certificate().map(|name| Decision::Certificate { text: format!("of {name}") });
    let user = record.user().map(|user| Decision::User { text: format!("{user}, who has logged in") });
    certificate.into_iter().chain(user)
}

/// All that was decided about a request that came.
pub fn past(record: &Record, names: &Names, places: &Places) -> Explanation {
    let request = summary(record, names);
    let mut decisions = Vec::new();
    let trail = &record.trail;
    if let Some(address) = trail.listener {
        decisions.push(Decision::Listener { address: places.listener_name(address), place: places.listener(address) });
    }
    match (trail.rule, record.outcome) {
        (Some(rule), _) => decisions.push(places.rule(rule, trail.listener, trail.edition)),
        (None, Outcome::Own(word)) => decisions.push(Decision::Rule {
            rule: RuleKind::Own,
            place: String::new(),
            text: format!("Larder answered by itself: {word}"),
        }),
        (None, _) => {}
    }
    decisions.extend(places.country(record.peer));
    decisions.extend(people(record));
    decisions.extend(record.helpers().iter().map(Decision::from));
    let hooks = || record.hooks().into_iter().flat_map(|hooks| hooks.iter());
    decisions.extend(hooks().filter(|note| note.stage == Stage::Request).map(Decision::from));
    decisions.extend(record.icap().filter(|note| note.vector == Vector::Reqmod).map(Decision::from));
    let by_table = record.rules().into_iter().flat_map(|note| note.words.iter());
    decisions.extend(by_table.map(|text| Decision::StoreRule { text: text.to_string() }));
    let detail = record.detail.as_deref();
    decisions.extend(key(record, detail, places));
    let by_rule = detail.into_iter().flat_map(|detail| &detail.by_rule);
    decisions.extend(by_rule.map(|text| Decision::StoreRule { text: text.clone() }));
    if let Some(asked) = trail.asked() {
        decisions.push(Decision::Directives { asked: asked.into() });
    }
    if let Some(detail) = detail.filter(|detail| detail.looks > 0) {
        let variants = detail.variants.iter().map(OfVariant::from).collect();
        decisions.push(Decision::Variants { variants, more: detail.variants_more, taken_up: detail.disk_asked });
    }
    if let Some((weighed, usable)) = trail.weighed.clone() {
        decisions.push(Decision::Freshness { numbers: weighed.into(), usable: usable.as_str().to_owned() });
    }
    decisions.extend(hooks().filter(|note| note.stage == Stage::Found).map(Decision::from));
    if let Some(detail) = detail {
        decisions.extend(absent(detail));
        if detail.followed {
            decisions.push(Decision::Followed { looks: detail.looks });
        }
        let mut fetches = detail.fetches.iter().peekable();
        while let Some((cause, fetch)) = fetches.next() {
            let trouble = detail.trouble.as_deref().filter(|_| fetches.peek().is_none());
            fetched((*cause, trouble, fetch), &mut decisions);
        }
    }
    decisions.extend(record.coded().map(Decision::coded_as));
    decisions.extend(record.way_of_tunnel().map(Decision::from));
    decisions.extend(hooks().filter(|note| note.stage == Stage::Respond).map(Decision::from));
    decisions.extend(record.icap().filter(|note| note.vector == Vector::Respmod).map(Decision::from));
    if let Some(waited) = record.waited() {
        let text = format!("under limits of bandwidth the answer waited {:.1} s in all", waited.as_secs_f64());
        decisions.push(Decision::StoreRule { text });
    }
    decisions.push(Decision::Answer(Settled {
        outcome: request.outcome.clone(),
        cause: request.cause.clone(),
        status: Some(record.status),
        bytes: Some(record.bytes),
        micros: Some(record.micros()),
        complete: Some(record.complete),
    }));
    let says = verdict(&request.outcome, trail.cause.filter(|_| request.cause.is_some()), Tense::Past);
    Explanation { request, tense: Tense::Past, says, steps: decisions.into_iter().map(Step::from).collect() }
}

/// One fetch, and all that was decided about its answer.
fn fetched((cause, trouble, fetch): (Cause, Option<&str>, &Notes), decisions: &mut Vec<Decision>) {
    decisions.push(upstream(cause, trouble, fetch));
    decisions.extend(fetch.way.borrow().as_deref().map(Decision::from));
    decisions.extend(fetch.group.borrow().as_deref().map(Decision::from));
    decisions.extend(fetch.keeping.borrow().clone().map(kept));
    decisions.extend(fetch.by_hook.borrow().as_deref().map(Decision::from));
    decisions.extend(fetch.by_icap.borrow().iter().map(Decision::from));
    decisions.extend(fetch.store_rule.borrow().as_deref().map(lifetime_by));
}

/// The key. A hit of `h1::quick` has no detail, so its key is made of the URL again.
fn key(record: &Record, detail: Option<&Detail>, places: &Places) -> Option<Decision> {
    let noted = detail.and_then(|detail| detail.key.as_ref());
    let rule = record.trail.rule?;
    let key = match (noted, rule) {
        (Some(key), _) => String::from_utf8_lossy(key.text()).into_owned(),
        (None, Rule::Site(number)) if record.trail.edition == places.edition => {
            let origin = places.config.sites.get(usize::from(number)).map(|site| site.origin.to_string());
            format!("{} {}", origin.unwrap_or_default(), record.url)
        }
        (None, _) => record.url.clone(),
    };
    let of_request = |note: &&HookNote| note.stage == Stage::Request;
    let asked =
        record.hooks().and_then(|hooks| hooks.iter().filter(of_request).find_map(|note| note.target.as_deref()));
    Some(Decision::Key { made: super::decision::made_of(&key, &record.url, asked), key })
}

fn absent(detail: &Detail) -> Option<Decision> {
    let nothing = !detail.variants.iter().any(|variant| variant.chosen);
    (detail.looks > 0 && nothing).then(|| Decision::Absent {
        fate: detail.fate.map(|(fate, _)| fate.as_str().to_owned()),
        since: detail.fate.map(|(_, at)| at.0),
        not_stored_before: detail.not_stored_before.map(|why| why.as_str().to_owned()),
    })
}

fn upstream(cause: Cause, trouble: Option<&str>, fetch: &Notes) -> Decision {
    Decision::Upstream {
        cause: cause.as_str().to_owned(),
        about: cause.about().to_owned(),
        kind: fetch.kind.get().to_owned(),
        origin: fetch.peer.get().map(|(peer, _)| named(peer, fetch)),
        origin_kind: fetch.peer.get().map(|(peer, _)| peer.into()).unwrap_or_default(),
        asks: None,
        reused: fetch.peer.get().map(|(_, reuse)| reuse == Reuse::Again),
        by_http2: fetch.protocol.get() == OriginProtocol::Http2,
        proxy_header: fetch.proxy_header.get().map(|header| header.to_string()),
        attempts: fetch.attempts.get(),
        conditional: fetch.conditional.get(),
        status: fetch.status.get(),
        connected_micros: fetch.connected_micros.get(),
        answered_micros: fetch.answered_micros.get(),
        trouble: trouble.map(str::to_owned),
        digest: fetch.digest.get().map(|source| source.as_str().to_owned()),
        parallel: fetch.parallel.get().map(|parallel| ParallelRanges {
            most: parallel.most,
            requests: parallel.requests,
            limit: parallel.limit.as_str().to_owned(),
        }),
    }
}

/// The far end of a connection: parents, siblings and nodes by their names.
fn named(peer: Peer, fetch: &Notes) -> String {
    let way = fetch.way.borrow();
    match (peer, way.as_deref().and_then(|way| way.taken.as_ref())) {
        (Peer::Parent(_), Some(taken @ TakenWay::Parent(..))) => taken.to_string(),
        (Peer::Sibling(_), Some(taken @ TakenWay::Sibling(_))) => taken.to_string(),
        (Peer::Home, Some(taken @ TakenWay::Home(_))) => taken.to_string(),
        _ => peer.to_string(),
    }
}

/// The rule that said something of a lifetime.
pub(super) fn lifetime_by(rule: &str) -> Decision {
    Decision::StoreRule { text: format!("lifetimes of such answers are said by {rule}") }
}

fn kept(keeping: Keeping) -> Decision {
    match keeping {
        Keeping::Stored { terms, on_disk } => {
            let disk_is_behind = on_disk == Some(Admitted::Behind);
            let on_disk = on_disk.map(|admitted| admitted == Admitted::Yes);
            let numbers = Some(terms.into());
            Decision::Stored { stored: true, why: None, numbers, on_disk, disk_is_behind, vary: Vec::new() }
        }
        Keeping::Not(why) => Decision::Stored {
            stored: false,
            why: Some(why.as_str().to_owned()),
            numbers: None,
            on_disk: None,
            disk_is_behind: false,
            vary: Vec::new(),
        },
    }
}

impl From<&Variant> for OfVariant {
    fn from(variant: &Variant) -> OfVariant {
        OfVariant {
            by: variant.by.clone(),
            matches: variant.matches,
            chosen: variant.chosen,
            lies: lies(variant.in_memory, variant.on_disk).to_owned(),
            remaining: variant.remaining,
            length: variant.length,
        }
    }
}

fn lies(in_memory: bool, on_disk: bool) -> &'static str {
    match (in_memory, on_disk) {
        (true, true) => "memory and on disk",
        (true, false) => "memory",
        (false, true) => "part in memory, the rest on disk",
        (false, false) => "memory, as far as it came",
    }
}
