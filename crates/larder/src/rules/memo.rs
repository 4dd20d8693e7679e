//! Memos of judgements: a verdict, and the facts that must be the same for it to hold for a later request.

use super::facts::{Fact, FactsRead};
use super::{Ask, Rule};
use crate::env::{Env, PeerFacts};
use crate::listener::Listener;
use crate::manager;
use larder_cache::policy::Asked;
use larder_wire::{Host, Method, RequestHead, Scheme, Target, reading};
use std::net::IpAddr;
use std::sync::Arc;

/// The verdict on an earlier plain GET that was allowed. The memo holds for a request for which every fact that the verdict
/// depended on is the same; then no URL is made and no rule is asked. These facts are those that the rules read, so a new rule
/// that reads a further field narrows the memo by itself.
pub struct JudgeMemo {
    // Compared in any case.
    listener: Arc<Listener>,
    scheme: Scheme,
    inside: Option<(Host, u16)>,
    edition: u64,
    /// Scheme, host and port of a target in absolute form.
    absolute: Option<(Scheme, Host, u16)>,
    // Compared where they were read.
    client: Option<IpAddr>,
    own_addresses: Option<u64>,
    /// The path was seen to be none of the cache manager's.
    not_manager: bool,
    /// The path was seen not to climb; a plain one never does.
    plain_path: bool,
    /// The target was seen to have no query.
    no_query: bool,
    fields: Box<[FieldRead]>,
    // The verdict.
    rule: Rule,
    asked: Asked,
    /// The URL up to its path.
    url_start: Box<str>,
    /// The key up to the path.
    key_start: Box<[u8]>,
}

impl JudgeMemo {
    /// The memo of a plain GET that was allowed as `ask`, by the facts that were read; `None` where a request with
    /// another path could be judged otherwise.
    pub fn of(peer: &PeerFacts, request: &RequestHead, read: FactsRead, ask: &Ask, asked: Asked) -> Option<JudgeMemo> {
        if request.method != Method::Get || read.has(Fact::Path) {
            return None;
        }
        let mut fields = Vec::new();
        for name in read.fields()? {
            let value = only_line(request, name)?;
            fields.push((name, value.map(Box::from)));
        }
        let mut start = String::new();
        ask.url.write_to(&mut start);
        start.truncate(start.len() - ask.url.path.len());
        let mut key_start = Vec::new();
        ask.begin_key(&mut key_start);
        key_start.extend_from_slice(start.as_bytes());
        let memo = JudgeMemo {
            listener: Arc::clone(&peer.listener),
            scheme: peer.scheme,
            inside: peer.inside.clone(),
            // The edition that the request was judged by: a reload may have come since then.
            edition: read.editions.settings,
            absolute: match &request.target {
                Target::Absolute(url) => Some((url.scheme, url.host.clone(), url.port)),
                _ => None,
            },
            client: read.has(Fact::Client).then(|| peer.address.ip()),
            own_addresses: read.has(Fact::OwnAddresses).then_some(read.editions.own_addresses),
            not_manager: read.has(Fact::IsManagerPath),
            plain_path: read.has(Fact::PathClimbs),
            no_query: read.has(Fact::HasQuery),
            fields: fields.into(),
            rule: ask.rule,
            asked,
            url_start: start.into(),
            key_start: key_start.into(),
        };
        memo.covers_path(&ask.url.path).then_some(memo)
    }

    /// Whether the fields that the verdict depended on are the same.
    pub fn covers_fields(&self, request: &RequestHead) -> bool {
        self.fields.iter().all(|(name, value)| only_line(request, name) == Some(value.as_deref()))
    }

    /// The path of a request whose fields are covered, where the verdict holds for it.
    pub fn path_of<'a>(&self, env: &Env, peer: &PeerFacts, request: &'a RequestHead) -> Option<&'a str> {
        let path = match (&request.target, &self.absolute) {
            (Target::Origin(path), None) => path,
            (Target::Absolute(url), Some((scheme, host, port)))
                if url.port == *port && url.host == *host && url.scheme == *scheme =>
            {
                &url.path
            }
            _ => return None,
        };
        let holds = request.method == Method::Get
            && self.edition == env.common.live.edition()
            && Arc::ptr_eq(&self.listener, &peer.listener)
            && self.scheme == peer.scheme
            && self.client.is_none_or(|client| client == peer.address.ip())
            && self.own_addresses.is_none_or(|edition| edition == env.common.own_addresses.edition())
            && self.inside == peer.inside
            && self.covers_path(path);
        holds.then_some(path)
    }

    /// Whether all facts that were read of the earlier path are the same for this path.
    fn covers_path(&self, path: &str) -> bool {
        path.starts_with('/')
            && !(self.not_manager && path.starts_with(manager::PREFIX))
            && (!self.plain_path || reading::is_plain(path))
            && !(self.no_query && path.contains('?'))
    }

    /// The rule that allowed the request.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// The edition of the settings under which the request was judged.
    pub fn edition(&self) -> u64 {
        self.edition
    }

    /// The request's cache directives.
    pub fn asked(&self) -> Asked {
        self.asked
    }

    /// Appends the URL with this path.
    pub fn write_url(&self, path: &str, out: &mut String) {
        out.reserve(self.url_start.len() + path.len());
        out.push_str(&self.url_start);
        out.push_str(path);
    }

    /// Appends the key of the URL with this path, with its whole query; `Cache::settle_key` then applies `No-Vary-Search`.
    pub fn write_key(&self, path: &str, out: &mut Vec<u8>) {
        out.reserve(self.key_start.len() + path.len());
        out.extend_from_slice(&self.key_start);
        out.extend_from_slice(path.as_bytes());
    }
}

/// A field that was read, and its only line, if it has one.
type FieldRead = (&'static str, Option<Box<[u8]>>);

/// The value of a field, or that it is absent; `None` where the request has several lines of it.
fn only_line<'a>(request: &'a RequestHead, name: &'a str) -> Option<Option<&'a [u8]>> {
    let mut lines = request.fields.get_all(name);
    let first = lines.next();
    lines.next().is_none().then_some(first)
}
