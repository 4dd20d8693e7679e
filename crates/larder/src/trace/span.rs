//! Spans as values: the attributes of a request and of a fetch, by OpenTelemetry's conventions for HTTP.

use crate::client::ShownAddress;
use crate::clock;
use crate::config::Tracing;
use crate::record::{Names, Notes, Outcome, Query, Record, Reuse, shortened};
use crate::sampling::SpanContext;
use larder_wire::{Method, Url, Version};
use std::borrow::Cow;
use std::time::Duration;

/// A span that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Where it stands.
    pub place: SpanContext,
    /// The side that it shows.
    pub kind: Kind,
    /// Its name: the method.
    pub name: &'static str,
    /// Since 1970.
    pub began: Duration,
    /// Since 1970.
    pub ended: Duration,
    /// The trouble, in a word.
    pub trouble: Option<Cow<'static, str>>,
    /// Its attributes.
    pub attributes: Vec<(&'static str, Value)>,
}

/// The side that a span shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request that a client sent here.
    Server,
    /// A request that was sent to an origin.
    Client,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A whole number.
    Number(u64),
}

/// Attributes in the making.
#[derive(Default)]
struct Attributes(Vec<(&'static str, Value)>);

impl Attributes {
    fn text(&mut self, name: &'static str, value: impl Into<Cow<'static, str>>) {
        self.0.push((name, Value::Text(value.into())));
    }

    fn number(&mut self, name: &'static str, value: impl Into<u64>) {
        self.0.push((name, Value::Number(value.into())));
    }

    /// Span names by unknown methods would be without a bound.
    fn method(&mut self, method: &Method) -> &'static str {
        let name = known(method);
        self.text("http.request.method", if name == OTHER { "_OTHER" } else { name });
        if name == OTHER {
            self.text("http.request.method_original", method.as_str().to_owned());
        }
        name
    }

    fn server(&mut self, host: &str, port: u16) {
        self.text("server.address", host.trim_start_matches('[').trim_end_matches(']').to_owned());
        self.number("server.port", port);
    }
}

/// The name of a span whose method is none of the known ones.
const OTHER: &str = "HTTP";

/// HTTP's own methods; a purge is not among them.
fn known(method: &Method) -> &'static str {
    method.known().filter(|_| *method != Method::Purge).unwrap_or(OTHER)
}

impl Span {
    /// The span of a request that is over.
    pub(super) fn of_request(place: SpanContext, record: &Record, names: &Names, query: Query) -> Span {
        let mut told = Attributes::default();
        let name = record.method.as_ref().map_or(OTHER, |method| told.method(method));
        tell_url(&mut told, &record.url, query);
        told.number("http.response.status_code", record.status);
        told.number("http.response.body.size", record.bytes);
        told.text(
            "network.protocol.version",
            match record.version {
                Version::Http10 => "1.0",
                Version::Http11 => "1.1",
                Version::Http2 => "2",
                Version::Http3 => "3",
            },
        );
        told.text("client.address", ShownAddress(record.peer).to_string());
        told.text("larder.request.id", names.name(record.number).to_string());
        told.text("larder.cache.outcome", record.outcome.class_word());
        if let Some(cause) = record.trail.cause {
            told.text("larder.cache.cause", cause.as_str());
        }
        if let Some(why) = record.not_stored {
            told.text("larder.cache.not_stored", why);
        }
        let trouble = match record.outcome {
            _ if record.status < 500 => None,
            Outcome::Failed(word) | Outcome::Own(word) => Some(Cow::Borrowed(word)),
            _ => Some(Cow::Owned(record.status.to_string())),
        };
        if let Some(word) = &trouble {
            told.text("error.type", word.clone());
        }
        let ended = record.at + Duration::from_micros(record.micros());
        Span { place, kind: Kind::Server, name, began: record.at, ended, trouble, attributes: told.0 }
    }

    /// The span of a fetch that ends now.
    pub(super) fn of_fetch(place: SpanContext, method: &Method, url: &Url, notes: &Notes, query: Query) -> Span {
        let mut told = Attributes::default();
        let name = told.method(method);
        told.text("url.full", shortened(&url.to_string(), query));
        told.server(url.host.as_str(), url.port);
        told.text("network.protocol.version", notes.protocol.get().as_str());
        if let Some((peer, reuse)) = notes.peer.get() {
            match peer.address() {
                Some(address) => {
                    told.text("network.peer.address", address.ip().to_canonical().to_string());
                    told.number("network.peer.port", address.port());
                }
                None => told.text("network.peer.address", peer.to_string()),
            }
            told.text("larder.fetch.connection", if reuse == Reuse::Again { "kept-alive" } else { "new" });
        }
        let times = [
            ("larder.fetch.connected_micros", notes.connected_micros.get()),
            ("larder.fetch.answered_micros", notes.answered_micros.get()),
        ];
        times.into_iter().for_each(|(name, micros)| micros.into_iter().for_each(|micros| told.number(name, micros)));
        told.text("larder.fetch.kind", notes.kind.get());
        if notes.attempts.get() > 1 {
            told.number("http.request.resend_count", notes.attempts.get() - 1);
        }
        let status = notes.status.get();
        if let Some(status) = status {
            told.number("http.response.status_code", status);
        }
        let trouble = match (notes.trouble.get(), status) {
            (Some(word), _) => Some(Cow::Borrowed(word)),
            (None, Some(status @ 400..)) => Some(Cow::Owned(status.to_string())),
            _ => None,
        };
        if let Some(word) = &trouble {
            told.text("error.type", word.clone());
        }
        let ended = clock::wall();
        let began = ended.saturating_sub(Duration::from_micros(notes.micros()));
        Span { place, kind: Kind::Client, name, began, ended, trouble, attributes: told.0 }
    }
}

/// A record's URL is absolute, or the host and port of a tunnel, or what a client sent that was refused.
fn tell_url(told: &mut Attributes, text: &str, query: Query) {
    let Some(url) = Url::parse(text) else {
        return match text.rsplit_once(':').map(|(host, port)| (host, port.parse())) {
            Some((host, Ok(port))) => told.server(host, port),
            _ => told.text("url.full", shortened(text, query)),
        };
    };
    let shown = shortened(&url.path, query);
    let (path, query) = shown.split_once('?').unwrap_or((&shown, ""));
    told.text("url.scheme", url.scheme.as_str());
    told.text("url.path", path.to_owned());
    if !query.is_empty() {
        told.text("url.query", query.to_owned());
    }
    told.server(url.host.as_str(), url.port);
}

/// The attributes of the server that the spans belong to.
pub(super) fn resource(settings: &Tracing, instance: &str) -> Vec<(&'static str, Value)> {
    let mut told = Attributes::default();
    told.text("service.name", settings.service.clone());
    told.text("service.version", env!("CARGO_PKG_VERSION"));
    told.text("service.instance.id", instance.to_owned());
    told.0
}
