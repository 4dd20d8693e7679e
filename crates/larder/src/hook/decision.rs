//! The decisions of hooks, as values that are right by construction: a process of hooks is not trusted more than an origin.

use crate::base64;
use larder_wire::fields::is_token;
use larder_wire::{Fields, Host, Scheme, Url};
use serde::Deserialize;
use std::time::Duration;

/// Decisions of hooks about a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestEffects {
    /// The hook that decided or changed last, and its line; for people.
    pub by: Option<(u16, u32)>,
    /// Another origin; for requests of the forward proxy.
    pub origin: Option<OriginChange>,
    /// The hook that set it, and its line.
    pub origin_by: Option<(u16, u32)>,
    /// Another path, without a query.
    pub path: Option<String>,
    /// The hook that set the path, and its line.
    pub path_by: Option<(u16, u32)>,
    /// Another query; `Some(None)` for none.
    pub query: Option<Option<String>>,
    /// Further parts of the key.
    pub key: Vec<String>,
    /// Fields that the request gets. They are parts of the key too, so that what a hook tells an origin keeps answers apart.
    pub set: Vec<(String, Vec<u8>)>,
    /// Fields that are taken off it.
    pub remove: Vec<String>,
    /// The route of the site by which it goes to an origin.
    pub route: Option<String>,
    /// The hook that chose the route, and its line.
    pub route_by: Option<(u16, u32)>,
    /// The request goes to its origin, and the answer is not stored.
    pub passes: bool,
    /// The answer, without an origin.
    pub answer: Option<ScriptAnswer>,
}

/// Parts of a URL's origin that a hook has set (RFC 6454); the others stay as the client asked for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginChange {
    /// Another scheme.
    pub scheme: Option<Scheme>,
    /// Another host.
    pub host: Option<Host>,
    /// Another port.
    pub port: Option<u16>,
}

/// An answer that a hook gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptAnswer {
    /// The status, from 200 to 599.
    pub status: u16,
    /// The fields, without those of the connection.
    pub fields: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
}

/// A decision of hooks about a stored response that is about to be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundEffects {
    /// The hook that decided, and its line; for people.
    pub by: Option<(u16, u32)>,
    /// The origin is asked all the same, and its answer is stored.
    pub misses: bool,
    /// The request goes to its origin, and the answer is not stored.
    pub passes: bool,
    /// The answer in place of the stored one.
    pub answer: Option<ScriptAnswer>,
}

/// Decisions of hooks about the fields of an answer for one client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RespondEffects {
    /// The hook that changed last, and its line; for people.
    pub by: Option<(u16, u32)>,
    /// Fields that it gets.
    pub set: Vec<(String, Vec<u8>)>,
    /// Fields that are taken off it.
    pub remove: Vec<String>,
}

/// Decisions of hooks about an origin's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchedEffects {
    /// The hook that decided or changed last, and its line; for people.
    pub by: Option<(u16, u32)>,
    /// It is not stored.
    pub passes: bool,
    /// How long it is fresh in shared caches.
    pub ttl: Option<Duration>,
    /// How long past that it may be served while it is validated, or where that fails.
    pub grace: Option<Duration>,
    /// Tags that purges may name.
    pub tags: Vec<String>,
    /// Tags whose stored responses are forgotten before this one is sent.
    pub purge_tags: Vec<String>,
    /// Fields that it gets.
    pub set: Vec<(String, Vec<u8>)>,
    /// Fields that are taken off it.
    pub remove: Vec<String>,
}

/// A failure of a hook, for the log and the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptFailure {
    /// The hook, where it is known, and its line.
    pub by: Option<(u16, u32)>,
    /// The traceback, or what was wrong with the decision.
    pub what: String,
}

/// A decision as JSON has it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Raw {
    hook: Option<u16>,
    line: u32,
    read: Vec<String>,
    scheme: Option<String>,
    host: Option<String>,
    port: Option<u16>,
    origin_by: Option<(u16, u32)>,
    path: Option<String>,
    path_by: Option<(u16, u32)>,
    #[serde(deserialize_with = "present")]
    query: Option<Option<String>>,
    key: Vec<String>,
    set: Vec<(String, String)>,
    remove: Vec<String>,
    route: Option<String>,
    route_by: Option<(u16, u32)>,
    pass: bool,
    miss: bool,
    respond: Option<RawAnswer>,
    ttl_ms: Option<u64>,
    grace_ms: Option<u64>,
    tags: Vec<String>,
    purge_tags: Vec<String>,
    response_set: Vec<(String, String)>,
    response_remove: Vec<String>,
    traceback: String,
    exception: String,
    ambiguous: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawAnswer {
    status: u16,
    fields: Vec<(String, String)>,
    body: String,
}

/// `null` and an absent key are two things.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(from).map(Some)
}

/// Fields that belong to a connection, to a framing or to a condition, which no hook may touch.
const UNTOUCHABLE: [&str; 22] = [
    "connection",
    "content-length",
    "content-range",
    "expect",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "max-forwards",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "age",
];

/// Fields of an answer that say which bytes it has, or by which a client finds out whether its copy is the same: the body and the
/// conditions are judged by those of the stored response.
const OF_CONTENT: [&str; 9] = [
    "accept-ranges",
    "cache-status",
    "content-digest",
    "content-encoding",
    "content-md5",
    "date",
    "etag",
    "last-modified",
    "repr-digest",
];

/// Decisions beyond these are refused.
const LIST_MAX: usize = 64;
const TEXT_BYTES_MAX: usize = 8 << 10;
const TTL_MAX: Duration = Duration::from_secs(3_650 * 86_400);

/// The decision about a request, and the facts that the hooks looked at; an empty payload is none of both.
pub fn of_request(json: &[u8]) -> Result<(RequestEffects, Vec<String>), ScriptFailure> {
    let raw = parse(json)?;
    let by = raw.by();
    effects_of_request(raw).map_err(|what| ScriptFailure { by, what })
}

fn effects_of_request(raw: Raw) -> Result<(RequestEffects, Vec<String>), String> {
    let by = raw.by();
    for text in raw.path.iter().chain(raw.query.iter().flatten()).chain(&raw.key).chain(&raw.route) {
        check_length(text)?;
    }
    if let Some(path) = &raw.path {
        check_target(path, "path")?;
        if !path.starts_with('/') || path.contains('?') {
            return Err(format!("{path:?} is no path: it begins with / and has no query"));
        }
    }
    if let Some(Some(query)) = &raw.query {
        check_target(query, "query")?;
    }
    if raw.key.len() > LIST_MAX {
        return Err(format!("{} parts of a key are more than {LIST_MAX}", raw.key.len()));
    }
    let effects = RequestEffects {
        by,
        origin: origin(&raw)?,
        origin_by: raw.origin_by.or(by),
        path_by: raw.path_by.or(by),
        set: fields(&raw.set)?,
        remove: names(&raw.remove)?,
        route_by: raw.route_by.or(by),
        passes: raw.pass,
        answer: raw.respond.as_ref().map(answer).transpose()?,
        path: raw.path,
        query: raw.query,
        key: raw.key,
        route: raw.route,
    };
    Ok((effects, raw.read))
}

/// The decision about a stored response, and the facts that the hooks looked at.
pub fn of_found(json: &[u8]) -> Result<(FoundEffects, Vec<String>), ScriptFailure> {
    let raw = parse(json)?;
    let by = raw.by();
    let answer = raw.respond.as_ref().map(answer).transpose().map_err(|what| ScriptFailure { by, what })?;
    Ok((FoundEffects { by, misses: raw.miss, passes: raw.pass, answer }, raw.read))
}

/// The decision about the fields of an answer for one client, and the facts that the hooks looked at.
pub fn of_respond(json: &[u8]) -> Result<(RespondEffects, Vec<String>), ScriptFailure> {
    let raw = parse(json)?;
    let by = raw.by();
    let checked = || -> Result<RespondEffects, String> {
        let (set, remove) = (fields(&raw.response_set)?, names(&raw.response_remove)?);
        let mut changed = set.iter().map(|(name, _)| name).chain(&remove);
        match changed.find(|name| OF_CONTENT.contains(&name.as_str())) {
            Some(name) => Err(format!(
                "the field {name} belongs to the stored response: a respond hook can't set or remove it, a fetched hook can"
            )),
            None => Ok(RespondEffects { by, set, remove }),
        }
    };
    let effects = checked().map_err(|what| ScriptFailure { by, what })?;
    Ok((effects, raw.read))
}

/// The decision about an origin's answer, and the facts that the hooks looked at.
pub fn of_fetched(json: &[u8]) -> Result<(FetchedEffects, Vec<String>), ScriptFailure> {
    let raw = parse(json)?;
    let by = raw.by();
    let checked = || -> Result<FetchedEffects, String> {
        check_tags(&raw.tags)?;
        check_tags(&raw.purge_tags)?;
        let time = |ms: Option<u64>| ms.map(|ms| Duration::from_millis(ms).min(TTL_MAX));
        Ok(FetchedEffects {
            by,
            passes: raw.pass,
            ttl: time(raw.ttl_ms),
            grace: time(raw.grace_ms),
            tags: raw.tags.clone(),
            purge_tags: raw.purge_tags.clone(),
            set: fields(&raw.response_set)?,
            remove: names(&raw.response_remove)?,
        })
    };
    let effects = checked().map_err(|what| ScriptFailure { by, what })?;
    Ok((effects, raw.read))
}

/// The failure that a process reports.
pub enum Failed {
    /// A hook raised an exception, of this type.
    Raised(ScriptFailure, String),
    /// The request can be read in several ways, and a hook would have decided by one of them: this cookie has two values.
    Ambiguous(String),
    /// The report can't be read.
    Unread(ScriptFailure),
}

/// The failure that a process reports.
pub fn of_failure(json: &[u8]) -> Failed {
    match parse(json) {
        Ok(Raw { ambiguous: Some(mut name), .. }) => {
            name.truncate(name.floor_char_boundary(COOKIE_BYTES_MAX));
            Failed::Ambiguous(name)
        }
        Ok(raw) => {
            let by = raw.by();
            let is_name = |exception: &String| exception.chars().all(|char| char.is_alphanumeric() || char == '_');
            let mut exception = Some(raw.exception).filter(is_name).unwrap_or_default();
            exception.truncate(exception.floor_char_boundary(EXCEPTION_BYTES_MAX));
            Failed::Raised(ScriptFailure { by, what: raw.traceback }, exception)
        }
        Err(failure) => Failed::Unread(failure),
    }
}

/// A longer name of a type is cut.
const EXCEPTION_BYTES_MAX: usize = 64;

/// A longer name of a cookie is cut on the page.
const COOKIE_BYTES_MAX: usize = 64;

impl Raw {
    fn by(&self) -> Option<(u16, u32)> {
        self.hook.map(|hook| (hook, self.line))
    }
}

fn parse(json: &[u8]) -> Result<Raw, ScriptFailure> {
    if json.is_empty() {
        return Ok(Raw::default());
    }
    let wrong = |error: serde_json::Error| format!("its reply can't be read: {error}");
    serde_json::from_slice(json).map_err(|error| ScriptFailure { by: None, what: wrong(error) })
}

fn check_tags(tags: &[String]) -> Result<(), String> {
    for tag in tags {
        check_length(tag)?;
        if tag.is_empty() || !tag.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',') {
            return Err(format!("{tag:?} is no tag: letters without a space or a comma"));
        }
    }
    match tags.len() <= LIST_MAX {
        true => Ok(()),
        false => Err(format!("{} tags are more than {LIST_MAX}", tags.len())),
    }
}

fn check_length(text: &str) -> Result<(), String> {
    match text.len() <= TEXT_BYTES_MAX {
        true => Ok(()),
        false => Err(format!("a text of {} bytes is longer than {TEXT_BYTES_MAX}", text.len())),
    }
}

fn origin(raw: &Raw) -> Result<Option<OriginChange>, String> {
    let scheme = raw.scheme.as_deref().map(|text| {
        let found = [Scheme::Http, Scheme::Https].into_iter().find(|scheme| scheme.as_str() == text);
        found.ok_or_else(|| format!("{text:?} is no scheme: there are http and https"))
    });
    // That parser gives no name of a socket or an application.
    let host = raw.host.as_deref().map(|text| {
        Host::parse(text)
            .ok_or_else(|| format!("{text:?} is no host: it is a name or an address, without scheme and port"))
    });
    if raw.port == Some(0) {
        return Err("0 is no port".to_owned());
    }
    let change = OriginChange { scheme: scheme.transpose()?, host: host.transpose()?, port: raw.port };
    Ok((change != OriginChange::default()).then_some(change))
}

/// A URL is made of it as one from a client: the parser of the wire decides.
fn check_target(text: &str, what: &str) -> Result<(), String> {
    let is_clean = text.bytes().all(|byte| (0x21..=0x7e).contains(&byte) && byte != b'#');
    is_clean.then_some(()).ok_or_else(|| format!("{text:?} is no {what} of a URL: encode it first"))
}

fn answer(raw: &RawAnswer) -> Result<ScriptAnswer, String> {
    if !(200..=599).contains(&raw.status) {
        return Err(format!("{} is no status of an answer", raw.status));
    }
    let body = base64::decode(&raw.body).ok_or("the body of its answer can't be read")?;
    Ok(ScriptAnswer { status: raw.status, fields: fields(&raw.fields)?, body })
}

fn fields(raw: &[(String, String)]) -> Result<Vec<(String, Vec<u8>)>, String> {
    if raw.len() > LIST_MAX {
        return Err(format!("{} fields are more than {LIST_MAX}", raw.len()));
    }
    raw.iter().map(|(name, value)| Ok((self::name(name)?, self::value(name, value)?))).collect()
}

fn names(raw: &[String]) -> Result<Vec<String>, String> {
    if raw.len() > LIST_MAX {
        return Err(format!("{} fields are more than {LIST_MAX}", raw.len()));
    }
    raw.iter().map(|name| self::name(name)).collect()
}

fn name(text: &str) -> Result<String, String> {
    let lower = text.to_ascii_lowercase();
    if !is_token(lower.as_bytes()) || lower.len() > 256 {
        return Err(format!("{text:?} is no name of a field"));
    }
    if UNTOUCHABLE.contains(&lower.as_str()) {
        return Err(format!("the field {text} is the server's: a hook can't set or remove it"));
    }
    Ok(lower)
}

/// Letters up to U+00FF are bytes; a value has no line end, and no control character but the tab.
fn value(name: &str, text: &str) -> Result<Vec<u8>, String> {
    check_length(text)?;
    let byte =
        |letter: char| u8::try_from(u32::from(letter)).ok().filter(|&byte| byte == b'\t' || !byte.is_ascii_control());
    text.chars()
        .map(byte)
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(|| format!("{text:?} is no value of the field {name}"))
}

/// Takes fields off, and puts others in the place of all that have their names.
pub fn change_fields(fields: &mut Fields, set: &[(String, Vec<u8>)], remove: &[String]) {
    for name in remove.iter().chain(set.iter().map(|(name, _)| name)) {
        fields.remove(name);
    }
    set.iter().for_each(|(name, value)| fields.push(name, value));
}

impl RequestEffects {
    /// The URL with another origin, path or query; `None` where it stays as it is.
    pub fn url(&self, url: &Url) -> Option<Url> {
        if self.origin.is_none() && self.path.is_none() && self.query.is_none() {
            return None;
        }
        let origin = self.origin.clone().unwrap_or_default();
        let (path, query) = match url.path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (&*url.path, None),
        };
        let path = self.path.as_deref().unwrap_or(path);
        let query = match &self.query {
            Some(query) => query.as_deref(),
            None => query,
        };
        let path = match query {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        };
        Some(Url {
            scheme: origin.scheme.unwrap_or(url.scheme),
            host: origin.host.unwrap_or_else(|| url.host.clone()),
            port: origin.port.unwrap_or(url.port),
            path: path.into(),
        })
    }

    /// Whether the request goes on as it came.
    pub fn is_nothing(&self) -> bool {
        let RequestEffects { origin, path, query, key, set, remove, route, passes, answer, .. } = self;
        let is_unchanged = origin.is_none() && path.is_none() && query.is_none() && set.is_empty() && remove.is_empty();
        is_unchanged && key.is_empty() && route.is_none() && !passes && answer.is_none()
    }

    /// Whether the field of this name, in lower case, is set or taken off.
    pub fn changes(&self, name: &str) -> bool {
        self.set.iter().any(|(set, _)| set == name) || self.remove.iter().any(|removed| removed == name)
    }

    /// Changes the fields of the request.
    pub fn change(&self, fields: &mut Fields) {
        change_fields(fields, &self.set, &self.remove);
    }

    /// The parts that the hooks add to the key. Each has its length before it, so that no two lists of parts are written alike.
    /// Values of fields may be credentials and stand there as hashes; `None` where no hash can be made.
    pub fn key(&self, hash: impl Fn(&[u8]) -> Option<Box<str>>) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        let mut part = |kind: &str, bytes: &[u8]| {
            key.extend_from_slice(format!("{kind}{}:", bytes.len()).as_bytes());
            key.extend_from_slice(bytes);
            key.push(b' ');
        };
        for text in &self.key {
            part("hook", text.as_bytes());
        }
        for (name, value) in &self.set {
            part("field", name.as_bytes());
            part("is", hash(value)?.as_bytes());
        }
        // Two routes may lead to one URL: their answers are apart all the same.
        if let Some(route) = &self.route {
            part("route", route.as_bytes());
        }
        Some(key)
    }

    /// Their work, in words.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(origin) = &self.origin {
            words.extend(origin.scheme.map(|scheme| format!("scheme {}", scheme.as_str())));
            words.extend(origin.host.as_ref().map(|host| format!("host {host}")));
            words.extend(origin.port.map(|port| format!("port {port}")));
        }
        // The values stand in the target, where they can be hidden.
        words.extend(self.path.as_ref().map(|_| "changes the path".to_owned()));
        words.extend(self.query.as_ref().map(|_| "changes the query".to_owned()));
        words.extend(self.route.as_ref().map(|route| format!("route {route}")));
        words.extend(self.key.iter().map(|part| format!("key {part:?}")));
        // Values may be credentials.
        words.extend(self.set.iter().map(|(name, _)| format!("sets {name}")));
        words.extend(self.remove.iter().map(|name| format!("removes {name}")));
        if self.passes {
            words.push("not stored".to_owned());
        }
        words.extend(self.answer.as_ref().map(ScriptAnswer::words));
        words
    }

    /// Bytes that it holds, about.
    pub fn bytes(&self) -> usize {
        let texts = self.key.iter().chain(&self.remove).chain(&self.path).chain(self.query.iter().flatten());
        let texts: usize = texts.chain(&self.route).map(String::len).sum();
        let host = self.origin.as_ref().and_then(|origin| origin.host.as_ref());
        texts
            + host.map_or(0, |host| host.as_str().len())
            + fields_bytes(&self.set)
            + self.answer.as_ref().map_or(0, ScriptAnswer::bytes)
    }
}

impl ScriptAnswer {
    fn words(&self) -> String {
        format!("answers {}", self.status)
    }

    fn bytes(&self) -> usize {
        self.body.len() + fields_bytes(&self.fields)
    }
}

fn fields_bytes(fields: &[(String, Vec<u8>)]) -> usize {
    fields.iter().map(|(name, value)| name.len() + value.len()).sum()
}

impl FoundEffects {
    /// Whether the stored response is used.
    pub fn is_nothing(&self) -> bool {
        !self.misses && !self.passes && self.answer.is_none()
    }

    /// Their work, in words.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        words.extend(self.misses.then(|| "a miss".to_owned()));
        words.extend(self.passes.then(|| "not stored".to_owned()));
        words.extend(self.answer.as_ref().map(ScriptAnswer::words));
        words
    }

    /// Bytes that it holds, about.
    pub fn bytes(&self) -> usize {
        self.answer.as_ref().map_or(0, ScriptAnswer::bytes)
    }
}

impl RespondEffects {
    /// Whether the answer goes on as it is.
    pub fn is_nothing(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }

    /// Their work, in words. Values may be credentials.
    pub fn words(&self) -> Vec<String> {
        let set = self.set.iter().map(|(name, _)| format!("sets {name}"));
        set.chain(self.remove.iter().map(|name| format!("removes {name}"))).collect()
    }

    /// Bytes that it holds, about.
    pub fn bytes(&self) -> usize {
        fields_bytes(&self.set) + self.remove.iter().map(String::len).sum::<usize>()
    }

    /// Changes the fields of an answer for one client. A cookie is for this client alone, and so is then the answer: caches
    /// between Larder and the client would hand it to others, unless the hook says itself what they may do.
    pub fn change(&self, fields: &mut Fields) {
        change_fields(fields, &self.set, &self.remove);
        let gives = |name: &str| self.set.iter().any(|(set, _)| set == name);
        if gives("set-cookie") && !gives("cache-control") {
            ["CDN-Cache-Control", "Surrogate-Control"].iter().for_each(|name| _ = fields.remove(name));
            fields.push("Cache-Control", "private");
        }
    }
}

impl FetchedEffects {
    /// Whether the answer goes on as it came.
    pub fn is_nothing(&self) -> bool {
        FetchedEffects { by: None, ..self.clone() } == FetchedEffects::default()
    }

    /// Bytes that it holds, about.
    pub fn bytes(&self) -> usize {
        fields_bytes(&self.set) + self.remove.iter().chain(&self.tags).map(String::len).sum::<usize>()
    }

    /// Their work, in words.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        words.extend(self.ttl.map(|ttl| format!("ttl {} s", ttl.as_secs_f64())));
        words.extend(self.grace.map(|grace| format!("grace {} s", grace.as_secs_f64())));
        words.extend(self.tags.iter().map(|tag| format!("tag {tag}")));
        words.extend(self.purge_tags.iter().map(|tag| format!("purges tag {tag}")));
        words.extend(self.set.iter().map(|(name, _)| format!("sets {name}")));
        words.extend(self.remove.iter().map(|name| format!("removes {name}")));
        if self.passes {
            words.push("not stored".to_owned());
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(json: &str) -> Result<RequestEffects, String> {
        of_request(json.as_bytes()).map(|(effects, _)| effects).map_err(|failure| failure.what)
    }

    #[test]
    fn decisions_are_read() {
        assert!(request("").unwrap().is_nothing() && request(r#"{"read": ["path"]}"#).unwrap().is_nothing());
        let url = Url::parse("http://a.example/x?b=1").unwrap();
        for (json, wanted) in [
            (r#"{"path": "/y"}"#, "http://a.example/y?b=1"),
            (r#"{"query": "c=2"}"#, "http://a.example/x?c=2"),
            (r#"{"query": null}"#, "http://a.example/x"),
            (r#"{"query": ""}"#, "http://a.example/x?"),
            (r#"{"path": "/", "query": null}"#, "http://a.example/"),
            (r#"{"host": "B.example"}"#, "http://b.example/x?b=1"),
            (r#"{"scheme": "https", "port": 443}"#, "https://a.example/x?b=1"),
            (r#"{"host": "[::1]", "port": 81, "path": "/y"}"#, "http://[::1]:81/y?b=1"),
        ] {
            assert_eq!(request(json).unwrap().url(&url).unwrap().to_string(), wanted, "{json}");
        }
        assert_eq!(request(r#"{"key": ["a"]}"#).unwrap().url(&url), None);
        let answer =
            request(r#"{"respond": {"status": 303, "fields": [["Location", "/login"]], "body": "aGk="}}"#).unwrap();
        let wanted =
            ScriptAnswer { status: 303, fields: vec![("location".into(), b"/login".to_vec())], body: b"hi".to_vec() };
        assert_eq!(answer.answer, Some(wanted));
        assert_eq!(request(r#"{"route": "b"}"#).unwrap().route.as_deref(), Some("b"));
        let json = br#"{"ttl_ms": 1500, "tags": ["a"], "purge_tags": ["b"], "response_remove": ["Server"]}"#;
        let (effects, _) = of_fetched(json).unwrap();
        assert_eq!(effects.words(), ["ttl 1.5 s", "tag a", "purges tag b", "removes server"]);
    }

    #[test]
    fn decisions_that_no_server_can_follow_are_failures() {
        for bad in [
            r#"{"path": "y"}"#,
            r#"{"path": "/a b"}"#,
            r#"{"path": "/a?b"}"#,
            r#"{"path": "/a\r\nX: y"}"#,
            r#"{"query": "a#b"}"#,
            r#"{"set": [["Host", "b"]]}"#,
            r#"{"set": [["X-A", "b\r\nX-B: c"]]}"#,
            r#"{"set": [["X A", "b"]]}"#,
            r#"{"set": [["X-A", "\u0100"]]}"#,
            r#"{"remove": ["Transfer-Encoding"]}"#,
            r#"{"respond": {"status": 101}}"#,
            r#"{"respond": {"status": 200, "fields": [["Content-Length", "5"]]}}"#,
            r#"{"respond": {"status": 200, "body": "!"}}"#,
            r#"{"key": 1}"#,
            r#"{"scheme": "ftp"}"#,
            r#"{"host": ""}"#,
            r#"{"host": "a.example:80"}"#,
            r#"{"host": "a b"}"#,
            r#"{"host": "user@a.example"}"#,
            r#"{"host": "unix:/run/app.sock"}"#,
            r#"{"host": "wsgi:app"}"#,
            r#"{"port": 0}"#,
            r#"{"port": 65536}"#,
            "nonsense",
        ] {
            assert!(request(bad).is_err(), "{bad}");
        }
        for bad in [
            r#"{"tags": ["a b"]}"#,
            r#"{"tags": [""]}"#,
            r#"{"purge_tags": ["a,b"]}"#,
            r#"{"ttl_ms": -1}"#,
            r#"{"response_set": [["Age", "1"]]}"#,
        ] {
            assert!(of_fetched(bad.as_bytes()).is_err(), "{bad}");
        }
        for name in ["Content-Length", "Connection", "Content-Range", "Age", "ETag", "content-encoding", "Date", "Vi a"]
        {
            for json in
                [format!(r#"{{"response_set": [["{name}", "1"]]}}"#), format!(r#"{{"response_remove": ["{name}"]}}"#)]
            {
                assert!(of_respond(json.as_bytes()).is_err(), "{json}");
            }
        }
        assert!(of_found(br#"{"respond": {"status": 101}}"#).is_err());
    }

    #[test]
    fn a_cookie_for_one_client_is_kept_from_the_caches_behind() {
        let changed = |json: &str| {
            let mut fields = Fields::new();
            fields.push("Cache-Control", "max-age=60");
            fields.push("CDN-Cache-Control", "max-age=600");
            fields.push("X-Secret", "1");
            of_respond(json.as_bytes()).unwrap().0.change(&mut fields);
            let lines = fields.iter().map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)));
            lines.collect::<Vec<_>>().join("; ")
        };
        let usual = "Cache-Control: max-age=60; CDN-Cache-Control: max-age=600";
        assert_eq!(changed(r#"{"response_remove": ["x-secret"]}"#), usual);
        assert_eq!(changed(r#"{"response_set": [["X-Secret", "2"]]}"#), format!("{usual}; x-secret: 2"));
        let with_cookie =
            r#"{"response_remove": ["x-secret"], "response_set": [["Set-Cookie", "a=1"], ["Set-Cookie", "b=2"]]}"#;
        assert_eq!(
            changed(with_cookie),
            "Cache-Control: max-age=60; set-cookie: a=1; set-cookie: b=2; Cache-Control: private"
        );
        let said = r#"{"response_remove": ["x-secret", "cdn-cache-control"], "response_set": [["Set-Cookie", "a=1"], ["cache-control", "no-cache"]]}"#;
        assert_eq!(changed(said), "set-cookie: a=1; cache-control: no-cache");
    }

    proptest! {
        #[test]
        fn two_lists_of_parts_are_never_one_key(
            one in prop::collection::vec("[a-c 0-9:]{0,4}", 0..4), other in prop::collection::vec("[a-c 0-9:]{0,4}", 0..4),
            fields in prop::collection::vec(("[a-b]{1,2}", "[a-c 0-9:]{0,3}"), 0..3), more in prop::collection::vec(("[a-b]{1,2}", "[a-c 0-9:]{0,3}"), 0..3),
            routes in prop::array::uniform2(prop::option::of("[a-b]{1,2}")),
        ) {
            let effects = |key: &Vec<String>, set: &Vec<(String, String)>, route: &Option<String>| RequestEffects {
                key: key.clone(),
                route: route.clone(),
                set: set.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect(),
                ..RequestEffects::default()
            };
            let plain = |bytes: &[u8]| Some(String::from_utf8_lossy(bytes).into());
            let key = |effects: &RequestEffects| effects.key(plain).unwrap();
            let (left, right) = (effects(&one, &fields, &routes[0]), effects(&other, &more, &routes[1]));
            prop_assert_eq!(key(&left) == key(&right), left == right);
        }

        #[test]
        fn no_reply_breaks_the_reading(noise in ".{0,100}", bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = (of_request(noise.as_bytes()), of_fetched(&bytes), of_failure(&bytes));
            let _ = (of_found(noise.as_bytes()), of_respond(&bytes), of_failure(noise.as_bytes()));
        }
    }
}
