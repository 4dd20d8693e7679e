//! What may be done with a request, before anything is looked up: whose it is, and whether it may.

use crate::config::{Config, HostHeader, SiteOrigin};
use crate::control;
use crate::page::Page;
use crate::reach::{self, Asker, OwnAddresses};
use crate::session::Session;
use crate::upstream::Origin;
use larder_cache::cache::Cache;
use larder_wire::reading::Reading;
use larder_wire::{FaultKind, Host, Method, RequestHead, Scheme, Target, Url, target};
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

mod precedent;

pub use precedent::Precedent;

/// A request that is served: what it is called, and where it comes from.
#[derive(Clone, Debug)]
pub struct Ask {
    /// What the client asked for; the key is made of it.
    pub url: Url,
    /// How the origin is reached.
    pub route: Route,
    /// Why it is served.
    pub rule: Rule,
}

/// By which rule a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The forward proxy, by `access.clients`.
    Forward,
    /// The origin of the listener.
    Listener,
    /// A site, by its place among the sites that were in force.
    Site(u16),
    /// It came through a tunnel that was opened.
    Tunnel,
    /// Somebody asks about a URL, whoever may serve it.
    Question,
}

/// How an origin is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// The URL itself says (forward proxy); who asks decides how far it may lead.
    Forward(Asker),
    /// A site of the configuration, or of the listener, lies in front of this origin.
    Site {
        /// Where the site comes from.
        origin: Arc<SiteOrigin>,
        /// Which `Host` it sees.
        host_header: HostHeader,
    },
}

impl Ask {
    /// The key under which the answer is kept. A site's begins with its origin: listeners may put different origins
    /// behind one host name, and neither may answer for the other or for the URL itself.
    pub fn key(&self, cache: &Cache, key: &mut Vec<u8>) {
        self.key_of_written("", cache, key);
    }

    /// The same for who has written the URL already, or nothing.
    pub fn key_of_written(&self, written: &str, cache: &Cache, key: &mut Vec<u8>) {
        self.begin_key(key);
        cache.key_of(&self.url, written, key);
    }

    /// The key of another URL of the same origin.
    pub fn key_for(&self, url: &Url, cache: &Cache, key: &mut Vec<u8>) {
        self.begin_key(key);
        cache.key_of(url, "", key);
    }

    /// The key as long as the origin has not said which parts of a query do not matter (No-Vary-Search).
    pub fn key_at_first(&self, key: &mut Vec<u8>) {
        self.begin_key(key);
        self.url.key_text(key);
    }

    fn begin_key(&self, key: &mut Vec<u8>) {
        if let Route::Site { origin, .. } = &self.route {
            key.extend_from_slice(origin.key_start());
        }
    }

    /// Where to connect.
    pub fn origin(&self) -> Origin {
        Origin::of(self.connects_to())
    }

    /// A URL of where to connect.
    pub fn connects_to(&self) -> &Url {
        match &self.route {
            Route::Forward(_) => &self.url,
            Route::Site { origin, .. } => origin,
        }
    }

    /// Who asks the forward proxy; `None` where the origin is one of the configuration.
    pub fn asker(&self) -> Option<Asker> {
        match self.route {
            Route::Forward(asker) => Some(asker),
            Route::Site { .. } => None,
        }
    }

    /// The request target as the origin gets it.
    pub fn target(&self) -> Cow<'_, str> {
        match &self.route {
            Route::Site { origin, .. } if &*origin.path != "/" => {
                Cow::Owned(format!("{}{}", origin.path.trim_end_matches('/'), self.url.path))
            }
            _ => Cow::Borrowed(&self.url.path),
        }
    }

    /// The URL that the origin is asked for.
    pub fn url_at_origin(&self) -> Url {
        match &self.route {
            Route::Forward(_) => self.url.clone(),
            Route::Site { origin, .. } => Url { path: self.target().into_owned().into(), ..Url::clone(&***origin) },
        }
    }

    /// Whether the site's origin lies below a path, so that a `..` may lead beside it.
    pub fn is_below_path(&self) -> bool {
        matches!(&self.route, Route::Site { origin, .. } if &*origin.path != "/")
    }

    /// Whether an origin that lies below a path could read a path beside that.
    fn leaves_its_path(&self) -> bool {
        self.is_below_path() && Reading::of(&self.url.path) == Reading::Climbs
    }

    /// The `Host` field as the origin gets it.
    pub fn host(&self) -> String {
        self.names_host().authority()
    }

    /// Whether this is the `Host` field that the origin gets.
    pub fn is_host(&self, said: &[u8]) -> bool {
        self.names_host().has_authority(said)
    }

    fn names_host(&self) -> &Url {
        match &self.route {
            Route::Site { origin, host_header: HostHeader::Origin } => origin,
            _ => &self.url,
        }
    }
}

/// What is done with a request.
#[derive(Debug)]
pub enum Verdict {
    /// It is looked up, and fetched if need be.
    Allow(Ask),
    /// Bytes are passed on to this host and port, unopened or opened as the listener says.
    Tunnel(Host, u16),
    /// Larder answers by itself.
    Answer(Page),
    /// What is stored of it is made void.
    Purge(Ask),
    /// The message itself comes back (TRACE with `Max-Forwards: 0`).
    Echo,
}

/// What a request is judged by.
pub struct Scene<'a> {
    /// The settings that hold.
    pub config: &'a Config,
    /// The origin of the listener, when it serves one site.
    pub origin: Option<&'a Arc<SiteOrigin>>,
    /// Whether the listener is a forward proxy.
    pub forwards: bool,
    /// Who can connect to the listener.
    pub asker: Asker,
    /// Where this server listens.
    pub own: &'a OwnAddresses,
    /// The host and port of the opened tunnel through which it came.
    pub inside: Option<&'a (Host, u16)>,
    /// The client.
    pub client: IpAddr,
    /// The scheme of the connection: TLS or clear text.
    pub scheme: Scheme,
    /// The name of this server in `Via`.
    pub via_name: &'a str,
}

/// Judges a request by its form, its client and the configuration.
pub fn judge(session: &Session, request: &RequestHead) -> Verdict {
    let (config, own) = (session.worker.config(), session.worker.own_addresses());
    let scene = Scene {
        config: &config,
        origin: session.door.origin.as_ref(),
        forwards: session.door.in_force().forwarding.beside(&config.sites),
        asker: session.door.asker,
        own: &own,
        inside: session.inside.as_ref(),
        client: session.peer.ip(),
        scheme: session.scheme,
        via_name: &session.worker.shared.via_name,
    };
    match scene.judge(request) {
        Verdict::Answer(page) if scene.forwards && [NO_SITE, reach::REFUSED].contains(&page.word) => {
            Verdict::Answer(manager(session, request).unwrap_or(page))
        }
        Verdict::Allow(Ask { route: Route::Forward(_), url, rule }) => match manager(session, request) {
            Some(page) => Verdict::Answer(page),
            None => Verdict::Allow(Ask { route: Route::Forward(scene.asker), url, rule }),
        },
        verdict => verdict,
    }
}

/// The pages of Squid's cache manager are asked for at the proxy's own address, or at a port of this machine through it.
fn manager(session: &Session, request: &RequestHead) -> Option<Page> {
    let path = match &request.target {
        Target::Origin(path) if control::names_an_address(request) => path,
        Target::Absolute(url) if is_here(&url.host) => &url.path,
        _ => return None,
    };
    path.starts_with(control::SQUID_PREFIX).then(|| manager_page(session, request, path))
}

fn is_here(host: &Host) -> bool {
    host.as_str() == "localhost" || host.ip().is_some_and(|address| address.is_loopback())
}

fn manager_page(session: &Session, request: &RequestHead, path: &str) -> Page {
    let (shared, config) = (&session.worker.shared, session.worker.config());
    let is_passed_on = ["Via", "Forwarded", "X-Forwarded-For"].iter().any(|name| request.fields.contains(name));
    let is_local = session.peer.ip().to_canonical().is_loopback() && config.is_of_this_machine() && !is_passed_on;
    if !is_local || config.admin_token.is_some() {
        let what = "The cache manager answers here to clients of this machine, where no others can connect to a listener, and only without an `admin_token`.";
        return Page::new(403, "manager", what, "Ask at the address of the setting `admin`.");
    }
    match control::squid_page(shared, path) {
        Some(text) => Page::text("manager", text),
        None => Page::new(404, "manager", "The cache manager has no such page.", "`mgr:menu` lists all."),
    }
}

/// The word of the answer to what is for no site.
const NO_SITE: &str = "no-site";

impl Scene<'_> {
    /// The same for a request that nobody sent, in a rehearsal.
    pub fn judge(&self, request: &RequestHead) -> Verdict {
        if let (Method::Connect, Target::Authority(host, port)) = (&request.method, &request.target) {
            return self.judge_connect(host, *port);
        }
        if self.loops(request) {
            return Verdict::Answer(Page::new(
                508,
                "loop",
                "This request has been here before: it goes round in a loop.",
                "Check that no origin or proxy setting points back at this cache.",
            ));
        }
        if let Some(verdict) = judge_max_forwards(request) {
            return verdict;
        }
        let url = match target::url_of(request, self.scheme) {
            Ok(url) => url,
            Err(fault) => {
                return Verdict::Answer(Page::new(
                    fault.status(),
                    fault.kind.as_str(),
                    format!("The request cannot be understood: {}.", fault.detail),
                    "Check the URL and the Host field.",
                ));
            }
        };
        let verdict = match self.inside {
            Some((host, port)) => self.judge_inside(url, host, *port),
            None => self.judge_url(request, url),
        };
        match verdict {
            Verdict::Allow(ask) => self.judge_ask(request, ask),
            verdict => verdict,
        }
    }

    fn judge_ask(&self, request: &RequestHead, ask: Ask) -> Verdict {
        let purges = request.method.as_str() == "PURGE";
        match purges.then(|| self.config.access.may_purge(self.client)).flatten() {
            // A purge names what is stored, whichever listener it was stored by.
            Some(true) => Verdict::Purge(ask),
            Some(false) => Verdict::Answer(denied("purge", "This client may not purge.")),
            None if self.is_of_another_scheme(&ask) => Verdict::Answer(Page::new(
                421,
                "misdirected",
                format!(
                    "The URL begins with {}://, this connection is {}.",
                    ask.url.scheme.as_str(),
                    self.scheme.as_str()
                ),
                "Ask for it on a connection of its own scheme, or send the path alone.",
            )),
            None if ask.leaves_its_path() => Verdict::Answer(ambiguous()),
            None => Verdict::Allow(ask),
        }
    }

    /// The scheme of a site, and of what an opened tunnel leads to, is that of the connection (RFC 9110 section 7.4): a
    /// client that could choose it would store what the origin says to one scheme under the key of the other. A forward
    /// proxy is asked for either scheme on any connection, and speaks to the origin by the scheme of the URL.
    fn is_of_another_scheme(&self, ask: &Ask) -> bool {
        ask.url.scheme != self.scheme && ask.rule != Rule::Forward
    }

    fn judge_connect(&self, host: &Host, port: u16) -> Verdict {
        let access = &self.config.access;
        if self.inside.is_some() {
            let page = denied("nested-connect", "A tunnel inside an opened tunnel is not offered.");
            return Verdict::Answer(page.closing());
        }
        if self.origin.is_some() {
            let page = denied("connect-at-site", "This address serves one site and opens no tunnels.");
            return Verdict::Answer(page.closing());
        }
        if !self.forwards {
            return Verdict::Answer(forward_off().closing());
        }
        if !access.may_proxy(self.client) {
            return Verdict::Answer(denied("client", "This client may not use the proxy.").closing());
        }
        if !access.may_connect(port, self.asker == Asker::ThisMachine) {
            return Verdict::Answer(connect_port().closing());
        }
        if self.is_out_of_reach(host, port) {
            return Verdict::Answer(out_of_reach().closing());
        }
        Verdict::Tunnel(host.clone(), port)
    }

    fn judge_url(&self, request: &RequestHead, url: Url) -> Verdict {
        if let Some(origin) = self.origin {
            let route = Route::Site { origin: Arc::clone(origin), host_header: HostHeader::Client };
            return Verdict::Allow(Ask { url, route, rule: Rule::Listener });
        }
        let Ok(site) = self.config.sites.find_by_every_reading(&url) else { return Verdict::Answer(ambiguous()) };
        if let Some((number, site)) = site {
            let route = Route::Site { origin: Arc::clone(&site.origin), host_header: site.host_header };
            let rule = Rule::Site(u16::try_from(number).unwrap_or(u16::MAX));
            return Verdict::Allow(Ask { url, route, rule });
        }
        if !matches!(request.target, Target::Absolute(_)) {
            return Verdict::Answer(Page::new(
                404,
                NO_SITE,
                format!("This is a web cache. It has no site {}.", url.host),
                match self.forwards {
                    true => {
                        "Use this address as a proxy (for example `curl -x`), or configure a [[site]] for the host."
                    }
                    false => "The administrator of this cache can configure a [[site]] for the host.",
                },
            ));
        }
        if !self.forwards {
            return Verdict::Answer(forward_off());
        }
        if !self.config.access.may_proxy(self.client) {
            return Verdict::Answer(denied("client", "This client may not use the proxy."));
        }
        if self.is_out_of_reach(&url.host, url.port) {
            return Verdict::Answer(out_of_reach());
        }
        Verdict::Allow(Ask { url, route: Route::Forward(self.asker), rule: Rule::Forward })
    }

    /// Where a name leads is seen when it is connected to; what says by its form where it leads is refused before anything
    /// is looked up: what a client of this machine had stored is not for clients elsewhere.
    fn is_out_of_reach(&self, host: &Host, port: u16) -> bool {
        reach::refuses_form(self.asker, &self.config.access.destinations, self.own, host, port)
    }

    /// Inside an opened tunnel a request is for the host of the tunnel and for no other: otherwise one host's certificate
    /// would vouch for another's bytes.
    fn judge_inside(&self, url: Url, host: &Host, port: u16) -> Verdict {
        if url.host != *host || url.port != port {
            return Verdict::Answer(Page::new(
                421,
                "misdirected",
                format!("This connection was opened for {host}:{port}, the request is for {}.", url.authority()),
                "Open a connection of its own for the other host.",
            ));
        }
        if self.is_out_of_reach(host, port) {
            return Verdict::Answer(out_of_reach());
        }
        Verdict::Allow(Ask { url, route: Route::Forward(self.asker), rule: Rule::Tunnel })
    }

    fn loops(&self, request: &RequestHead) -> bool {
        let name = self.via_name.as_bytes();
        request.fields.members("Via").any(|member| {
            member.split(|byte| matches!(byte, b' ' | b'\t')).filter(|part| !part.is_empty()).nth(1) == Some(name)
        })
    }
}

/// RFC 9110 section 7.6.2: the last one whom TRACE or OPTIONS may reach answers it.
fn judge_max_forwards(request: &RequestHead) -> Option<Verdict> {
    let last = || request.fields.text("Max-Forwards") == Some("0");
    match request.method {
        Method::Trace if last() => Some(Verdict::Echo),
        Method::Options if request.target == Target::Asterisk || last() => {
            let page = Page::new(200, "options", "These methods are understood here.", "Ask for a URL to learn more.");
            Some(Verdict::Answer(page.with("Allow", "GET, HEAD, POST, PUT, DELETE, OPTIONS, TRACE, PATCH, CONNECT")))
        }
        _ => None,
    }
}

fn forward_off() -> Page {
    let what = "This address serves sites and is no forward proxy.";
    let remedy = "The administrator of this cache can change that: `forward = true` in its [[listen]].";
    Page::new(403, "forward-off", what, remedy)
}

fn ambiguous() -> Page {
    let what = "The path can be read in several ways, and they lead to different places.";
    Page::new(
        400,
        "ambiguous-path",
        what,
        "Ask without dot segments, empty segments, `;`, `\\` and needless encodings.",
    )
}

/// It does not say where the host leads: that is nobody's business who cannot reach it.
pub fn out_of_reach() -> Page {
    let what = "This proxy does not connect to that address.";
    let remedy = "The administrator of this cache can open its network: `access.destinations` in the settings.";
    Page::new(403, reach::REFUSED, what, remedy)
}

fn connect_port() -> Page {
    let what = "Tunnels to this port are not permitted.";
    let remedy = "The administrator of this cache can permit it: `access.connect_ports` in the settings.";
    Page::new(403, "connect-port", what, remedy)
}

fn denied(word: &'static str, what: &str) -> Page {
    Page::new(403, word, what, "Ask the administrator of this cache; the settings are in [access].")
}

/// The page for a message that is no proper HTTP.
pub fn fault_page(kind: FaultKind, detail: &str) -> Page {
    Page::new(
        kind.client_status(),
        kind.as_str(),
        format!("The request cannot be accepted: {detail}."),
        "If a program of yours sent it, its HTTP library is at fault.",
    )
    .closing()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_behind_one_name_have_keys_of_their_own() {
        let cache = Cache::new(larder_cache::cache::Settings::default());
        let url = Url::parse("http://a.example/x?y").unwrap();
        let key = |route: Route| {
            let mut key = Vec::new();
            Ask { url: url.clone(), route, rule: Rule::Question }.key(&cache, &mut key);
            String::from_utf8(key).unwrap()
        };
        let site = |origin: &str| Route::Site {
            origin: Arc::new(SiteOrigin::new(Url::parse(origin).unwrap())),
            host_header: HostHeader::Client,
        };
        assert_eq!(key(Route::Forward(Asker::Elsewhere)), "http://a.example/x?y");
        assert_eq!(key(site("http://127.0.0.1:9000/")), "http://127.0.0.1:9000/ http://a.example/x?y");
        assert_ne!(key(site("http://127.0.0.1:9000/")), key(site("http://127.0.0.1:9001/")));
    }

    #[test]
    fn an_origin_with_a_path_puts_it_first() {
        let url = Url::parse("http://a.example/x?y").unwrap();
        let route = |origin: &str| Route::Site {
            origin: Arc::new(SiteOrigin::new(Url::parse(origin).unwrap())),
            host_header: HostHeader::Origin,
        };
        let ask = |origin: &str| Ask { url: url.clone(), route: route(origin), rule: Rule::Question };
        assert_eq!(ask("http://b.example:81/").target(), "/x?y");
        assert_eq!(ask("http://b.example:81/base/").target(), "/base/x?y");
        assert_eq!(ask("http://b.example:81/base").host(), "b.example:81");
    }
}
