//! What was found out about a request and holds for the next one to the same host.

use super::{Ask, Rule};
use crate::control;
use crate::listen::Door;
use crate::session::Session;
use larder_cache::policy::Asked;
use larder_wire::{Host, Method, RequestHead, Scheme, Target, reading};
use std::net::IpAddr;
use std::sync::Arc;

/// How an earlier request was judged and what it asked for. Clients ask the same host again and again, mostly with the same
/// fields; who has judged that once need not make a URL and walk the rules each time, nor read the same directives again.
pub struct Precedent {
    door: Arc<Door>,
    /// The field `Host`.
    host: Box<[u8]>,
    inside: Option<(Host, u16)>,
    scheme: Scheme,
    edition: u64,
    /// Where the rule looks at the client.
    client: Option<IpAddr>,
    /// Of a target in absolute form.
    named: Option<(Scheme, Host, u16)>,
    rule: Rule,
    asked: Asked,
    /// A path that is not plain may be refused.
    plain_only: bool,
    /// The URL up to its path.
    url_start: Box<str>,
    /// The key up to the path.
    key_start: Box<[u8]>,
}

impl Precedent {
    /// Of a plain GET that was let through, by its head and the rules of this moment; nothing where another path may be
    /// judged otherwise.
    pub fn of(session: &Session, request: &RequestHead, ask: &Ask, asked: Asked) -> Option<Precedent> {
        let config = session.worker.config();
        let by_path = match ask.rule {
            Rule::Listener | Rule::Tunnel => false,
            Rule::Forward | Rule::Site(_) => config.sites.look_at_paths(),
            Rule::Question => true,
        };
        let plain_only = ask.is_below_path();
        if by_path || request.method != Method::Get || !is_usual(&ask.url.path, plain_only) || has_hops(request) {
            return None;
        }
        let mut start = String::new();
        ask.url.write_to(&mut start);
        start.truncate(start.len() - ask.url.path.len());
        let mut key_start = Vec::new();
        ask.begin_key(&mut key_start);
        key_start.extend_from_slice(start.as_bytes());
        Some(Precedent {
            door: Arc::clone(&session.door),
            host: host(request).into(),
            inside: session.inside.clone(),
            scheme: session.scheme,
            edition: session.worker.edition(),
            client: (ask.rule == Rule::Forward).then(|| session.peer.ip()),
            named: match &request.target {
                Target::Absolute(url) => Some((url.scheme, url.host.clone(), url.port)),
                _ => None,
            },
            rule: ask.rule,
            asked,
            plain_only,
            url_start: start.into(),
            key_start: key_start.into(),
        })
    }

    /// Whether a request with other fields is judged like this one, as far as it is judged by its fields.
    pub fn covers(&self, request: &RequestHead) -> bool {
        host(request) == &*self.host && !has_hops(request)
    }

    /// The path of a request whose fields are covered, where all that was found out holds for it too.
    pub fn path_of<'a>(&self, session: &Session, request: &'a RequestHead) -> Option<&'a str> {
        let path = match (&request.target, &self.named) {
            (Target::Origin(path), None) => path,
            (Target::Absolute(url), Some((scheme, host, port)))
                if url.port == *port && url.host == *host && url.scheme == *scheme =>
            {
                &url.path
            }
            _ => return None,
        };
        let holds = request.method == Method::Get
            && self.edition == session.worker.shared.live.edition()
            && Arc::ptr_eq(&self.door, &session.door)
            && self.scheme == session.scheme
            && self.client.is_none_or(|client| client == session.peer.ip())
            && self.inside == session.inside
            && is_usual(path, self.plain_only);
        holds.then_some(path)
    }

    /// By which rule it is served.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// Under which edition of the settings.
    pub fn edition(&self) -> u64 {
        self.edition
    }

    /// What it asked of a cache.
    pub fn asked(&self) -> Asked {
        self.asked
    }

    /// Appends the URL with this path.
    pub fn write_url(&self, path: &str, out: &mut String) {
        out.reserve(self.url_start.len() + path.len());
        out.push_str(&self.url_start);
        out.push_str(path);
    }

    /// Appends the key of the URL with this path, before queries that mean the same are looked for.
    pub fn write_key(&self, path: &str, out: &mut Vec<u8>) {
        out.reserve(self.key_start.len() + path.len());
        out.extend_from_slice(&self.key_start);
        out.extend_from_slice(path.as_bytes());
    }
}

fn host(request: &RequestHead) -> &[u8] {
    request.fields.get("Host").unwrap_or_default()
}

/// Whether it says who has passed it on: it may go round in a loop.
fn has_hops(request: &RequestHead) -> bool {
    request.fields.contains("Via")
}

/// The path is none of those that are judged by themselves.
fn is_usual(path: &str, plain_only: bool) -> bool {
    path.starts_with('/') && !path.starts_with(control::SQUID_PREFIX) && (!plain_only || reading::is_plain(path))
}
