//! One request through a configuration, each decision a line.

use super::LIMITS;
use crate::access::{Ask, Route, Scene, Verdict, site_of};
use crate::config::{Config, Listen, Loaded, Said};
use crate::obtain;
use crate::server;
use larder_cache::cache::Joins;
use larder_cache::policy::{self, Storable, Times};
use larder_wire::date::Stamp;
use larder_wire::framing::{self, Framing};
use larder_wire::parse::{self, Parsed};
use larder_wire::{RequestHead, ResponseHead, Scheme, Url};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// `GET URL`, or a URL alone.
    pub request: String,
    /// Fields of the request, as `Name: value`.
    pub fields: Vec<String>,
    /// Fields of the answer that an origin is taken to give.
    pub answer: Vec<String>,
    /// The client.
    pub client: IpAddr,
    /// The listener it comes to; the first one is the default.
    pub listener: Option<SocketAddr>,
}

/// What would happen, in lines, and whether the request would be served. `Err`: what is wrong with the question.
pub fn rehearse(question: &Question, loaded: &Loaded) -> Result<(String, bool), String> {
    let config = &loaded.config;
    let listen = listener(question, config)?;
    let (method, url) = question.split()?;
    let mut out = Lines::default();
    out.line("request", format!("{method} {}", question.url_text()));
    out.line("client", question.client);
    let place = match loaded.said.get("listen") {
        Some(Said::Line(file, line)) => format!("{file}:{line}"),
        Some(Said::Flag(flag)) => format!("--{flag}"),
        None => "default".to_owned(),
    };
    let kind = match (&listen.origin, listen.intercept) {
        (Some(origin), _) => format!("all of it is one site from {origin}"),
        (None, true) => "sites and a forward proxy that opens tunnels".to_owned(),
        (None, false) => "sites and a forward proxy".to_owned(),
    };
    out.line("listener", format!("{} ({place}): {kind}", listen.address));
    let served = Rehearsal { question, config, listen }.run(&method, &url, &mut out)?;
    Ok((out.text, served))
}

#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn line(&mut self, word: &str, says: impl std::fmt::Display) {
        let _ = writeln!(self.text, "{word:10} {says}");
    }
}

impl Question {
    fn url_text(&self) -> &str {
        self.request.trim().split_once(' ').map_or(self.request.trim(), |(_, url)| url.trim())
    }

    fn split(&self) -> Result<(String, Url), String> {
        let method = self.request.trim().split_once(' ').map_or("GET", |(method, _)| method);
        let text = self.url_text();
        let url = Url::parse(text)
            .ok_or_else(|| format!("\"{text}\" is not an http or https URL: write 'GET http://host/path'"))?;
        Ok((method.to_owned(), url))
    }
}

fn listener<'a>(question: &Question, config: &'a Config) -> Result<&'a Listen, String> {
    let wanted = |listen: &&Listen| question.listener.is_none_or(|address| address == listen.address);
    config.listens.iter().find(wanted).ok_or_else(|| {
        let all: Vec<String> = config.listens.iter().map(|listen| listen.address.to_string()).collect();
        format!("there is no such listener: there are {}", all.join(", "))
    })
}

struct Rehearsal<'a> {
    question: &'a Question,
    config: &'a Config,
    listen: &'a Listen,
}

impl Rehearsal<'_> {
    fn run(&self, method: &str, url: &Url, out: &mut Lines) -> Result<bool, String> {
        let is_site = self.listen.origin.is_some() || site_of(&self.config.sites, url).is_some();
        if url.scheme == Scheme::Http || is_site {
            let form = if self.listen.origin.is_some() { Form::Origin } else { Form::Absolute };
            let request = request(method, url, form, &self.question.fields)?;
            return Ok(self.judge(&request, url.scheme, None, out));
        }
        // A client asks for https through a proxy by CONNECT.
        let tunnel = (url.host.clone(), url.port);
        let connect = parse_request(&format!("CONNECT {0}:{1} HTTP/1.1\r\nHost: {0}:{1}\r\n\r\n", tunnel.0, tunnel.1))?;
        out.line("tunnel", format!("CONNECT {}:{}", tunnel.0, tunnel.1));
        if !self.judge(&connect, Scheme::Http, None, out) {
            return Ok(false);
        }
        if !self.listen.intercept {
            out.line(
                "store",
                "not asked: the tunnel stays closed, its bytes pass unread (`intercept = true` would open it)",
            );
            return Ok(true);
        }
        if self.config.intercept.pass.iter().any(|pattern| pattern.matches(&tunnel.0)) {
            out.line("store", "not asked: the tunnel stays closed by intercept.pass");
            return Ok(true);
        }
        out.line("opened", "with a certificate of the local CA");
        let request = request(method, url, Form::Origin, &self.question.fields)?;
        Ok(self.judge(&request, Scheme::Https, Some(&tunnel), out))
    }

    fn judge(
        &self,
        request: &RequestHead,
        scheme: Scheme,
        inside: Option<&(larder_wire::Host, u16)>,
        out: &mut Lines,
    ) -> bool {
        let scene = Scene {
            config: self.config,
            origin: self.listen.origin.as_ref(),
            inside,
            client: self.question.client,
            scheme,
            via_name: "larder",
        };
        match scene.judge(request) {
            Verdict::Allow(ask) => {
                out.line("rule", self.rule(&ask));
                self.store(request, &ask, out);
                true
            }
            Verdict::Purge(ask) => {
                out.line("rule", "permitted by access.purge: what is stored is forgotten");
                let mut key = Vec::new();
                ask.key_at_first(&mut key);
                out.line("key", String::from_utf8_lossy(&key));
                true
            }
            Verdict::Tunnel(host, port) => {
                out.line(
                    "rule",
                    format!("permitted by access.clients and access.connect_ports: a tunnel to {host}:{port}"),
                );
                true
            }
            Verdict::Answer(page) => {
                out.line("answer", format!("{} {}: {} {}", page.status, page.word, page.what, page.remedy));
                false
            }
            Verdict::Echo => {
                out.line("answer", "200: the request itself comes back (TRACE)");
                true
            }
        }
    }

    fn rule(&self, ask: &Ask) -> String {
        match &ask.route {
            Route::Forward => {
                let client = self.question.client.to_canonical();
                let net = self.config.access.clients.iter().find(|net| net.contains(&client));
                let by = net.map_or_else(String::new, |net| format!(", permitted by {net} in access.clients"));
                format!("forward proxy{by}")
            }
            Route::Site { origin, .. } if self.listen.origin.is_some() => format!("the listener's site, from {origin}"),
            Route::Site { origin, .. } => match site_of(&self.config.sites, &ask.url) {
                Some(site) => {
                    let hosts: Vec<String> = site.hosts.iter().map(ToString::to_string).collect();
                    format!("[[site]] {} with the prefix {}, from {origin}", hosts.join(", "), site.prefix)
                }
                None => format!("a site from {origin}"),
            },
        }
    }

    fn store(&self, request: &RequestHead, ask: &Ask, out: &mut Lines) {
        let mut key = Vec::new();
        ask.key_at_first(&mut key);
        out.line("key", String::from_utf8_lossy(&key));
        let framing = match framing::of_request(request) {
            Ok(framing) => framing,
            Err(fault) => return out.line("answer", format!("{}: {}", fault.status(), fault.detail)),
        };
        out.line("store", store_words(request, framing));
        out.line("origin", format!("{}, target {}, Host {}", ask.origin(), ask.target(), ask.host()));
        out.line("kept", self.kept(request, ask));
    }

    /// Whether the answer of the question would be stored, and how long it is fresh.
    fn kept(&self, request: &RequestHead, ask: &Ask) -> String {
        let mut response = ResponseHead::new(200);
        for field in &self.question.answer {
            match field.split_once(':') {
                Some((name, value)) => response.fields.push(name.trim(), value.trim()),
                None => response.status = field.trim().parse().unwrap_or(200),
            }
        }
        let settings = server::policy_settings(&self.config.policy);
        let settings = match ask.route {
            Route::Forward => settings,
            Route::Site { .. } => server::site_policy(settings),
        };
        let now = Stamp(0);
        let says = match policy::storable(request, &response, Times { requested: now, received: now }, &settings) {
            Storable::No(why) => format!("no: {}", why.as_str()),
            Storable::Yes(terms) => {
                let vary: Vec<&str> = terms.vary.names().collect();
                let vary = if vary.is_empty() { String::new() } else { format!(", a variant by {}", vary.join(", ")) };
                let (seconds, from) = (terms.lifetime.saturating_sub(terms.initial_age), terms.source.as_str());
                format!("yes: fresh for {seconds} s by {from}{vary}")
            }
        };
        match self.question.answer.is_empty() {
            true => {
                format!("{says} (for a 200 that says nothing; --answer 'Cache-Control: max-age=60' asks for another)")
            }
            false => says,
        }
    }
}

/// The form of a request target.
#[derive(Clone, Copy)]
pub enum Form {
    /// As a proxy is asked.
    Absolute,
    /// As an origin is asked.
    Origin,
}

/// A request that nobody sent.
pub fn request(method: &str, url: &Url, form: Form, fields: &[String]) -> Result<RequestHead, String> {
    let target = match form {
        Form::Absolute => url.to_string(),
        Form::Origin => url.path.to_string(),
    };
    let mut text = format!("{method} {target} HTTP/1.1\r\n");
    let has_host = |field: &String| field.to_ascii_lowercase().starts_with("host:");
    if !fields.iter().any(has_host) {
        let _ = write!(text, "Host: {}\r\n", url.authority());
    }
    fields.iter().for_each(|field| {
        let _ = write!(text, "{field}\r\n");
    });
    parse_request(&(text + "\r\n"))
}

fn store_words(request: &RequestHead, framing: Framing) -> String {
    let Some((asked, joins)) = obtain::lookup(request, framing) else {
        return "not asked: this request is passed on and answered by the origin alone".to_owned();
    };
    let mut words = vec!["asked"];
    if asked.no_cache {
        words.push("validated first (no-cache)");
    }
    if asked.only_if_cached {
        words.push("or 504 (only-if-cached)");
    }
    words.push(match joins {
        Joins::Yes => "a miss is fetched once for all who wait",
        Joins::Apart => "a miss is fetched for this request alone (Authorization)",
        Joins::No => "a miss is passed on",
    });
    words.join(", ")
}

fn parse_request(text: &str) -> Result<RequestHead, String> {
    match parse::request(text.as_bytes(), &LIMITS) {
        Ok(Parsed::Complete { head, .. }) => Ok(head),
        Ok(Parsed::Partial) => Err("the request is not whole".to_owned()),
        Err(fault) => Err(format!("the request is no proper HTTP: {}", fault.detail)),
    }
}
