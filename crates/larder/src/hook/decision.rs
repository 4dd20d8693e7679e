//! The decisions of hooks, as values that are right by construction: a process of hooks is not trusted more than an origin.

use crate::base64;
use larder_wire::fields::is_token;
use larder_wire::{Fields, Url};
use serde::Deserialize;
use std::time::Duration;

/// Decisions of hooks about a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestEffects {
    /// The hook that decided or changed last, and its line; for people.
    pub by: Option<(u16, u32)>,
    /// Another path, without a query.
    pub path: Option<String>,
    /// Another query; `Some(None)` for none.
    pub query: Option<Option<String>>,
    /// Further parts of the key.
    pub key: Vec<String>,
    /// Fields that the request gets. They are parts of the key too, so that what a hook tells an origin keeps answers apart.
    pub set: Vec<(String, Vec<u8>)>,
    /// Fields that are taken off it.
    pub remove: Vec<String>,
    /// The request goes to its origin, and the answer is not stored.
    pub passes: bool,
    /// The answer, without an origin.
    pub answer: Option<ScriptAnswer>,
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

/// Decisions of hooks about an origin's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerEffects {
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
    /// The hook, where it is known.
    pub hook: Option<u16>,
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
    path: Option<String>,
    #[serde(deserialize_with = "present")]
    query: Option<Option<String>>,
    key: Vec<String>,
    set: Vec<(String, String)>,
    remove: Vec<String>,
    route: Option<String>,
    pass: bool,
    respond: Option<RawAnswer>,
    ttl_ms: Option<u64>,
    grace_ms: Option<u64>,
    tags: Vec<String>,
    purge_tags: Vec<String>,
    response_set: Vec<(String, String)>,
    response_remove: Vec<String>,
    traceback: String,
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

/// Decisions beyond these are refused.
const LIST_MAX: usize = 64;
const TEXT_BYTES_MAX: usize = 8 << 10;
const TTL_MAX: Duration = Duration::from_secs(3_650 * 86_400);

/// The decision about a request, and the facts that the hooks looked at; an empty payload is none of both.
pub fn of_request(json: &[u8]) -> Result<(RequestEffects, Vec<String>), ScriptFailure> {
    let raw = parse(json)?;
    let by = raw.hook.map(|hook| (hook, raw.line));
    let checked = || -> Result<RequestEffects, String> {
        if raw.route.is_some() {
            return Err("`route` is not built yet: give the site another origin".to_owned());
        }
        for text in raw.path.iter().chain(raw.query.iter().flatten()).chain(&raw.key) {
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
        Ok(RequestEffects {
            by,
            path: raw.path.clone(),
            query: raw.query.clone(),
            key: raw.key.clone(),
            set: fields(&raw.set)?,
            remove: names(&raw.remove)?,
            passes: raw.pass,
            answer: raw.respond.as_ref().map(answer).transpose()?,
        })
    };
    let effects = checked().map_err(|what| ScriptFailure { hook: raw.hook, what })?;
    Ok((effects, raw.read))
}

/// The decision about an answer.
pub fn of_answer(json: &[u8]) -> Result<AnswerEffects, ScriptFailure> {
    let raw = parse(json)?;
    let checked = || -> Result<AnswerEffects, String> {
        check_tags(&raw.tags)?;
        check_tags(&raw.purge_tags)?;
        let time = |ms: Option<u64>| ms.map(|ms| Duration::from_millis(ms).min(TTL_MAX));
        Ok(AnswerEffects {
            by: raw.hook.map(|hook| (hook, raw.line)),
            passes: raw.pass,
            ttl: time(raw.ttl_ms),
            grace: time(raw.grace_ms),
            tags: raw.tags.clone(),
            purge_tags: raw.purge_tags.clone(),
            set: fields(&raw.response_set)?,
            remove: names(&raw.response_remove)?,
        })
    };
    checked().map_err(|what| ScriptFailure { hook: raw.hook, what })
}

/// The failure that a process reports.
pub fn of_failure(json: &[u8]) -> ScriptFailure {
    match parse(json) {
        Ok(raw) => ScriptFailure { hook: raw.hook, what: raw.traceback },
        Err(failure) => failure,
    }
}

fn parse(json: &[u8]) -> Result<Raw, ScriptFailure> {
    if json.is_empty() {
        return Ok(Raw::default());
    }
    let wrong = |error: serde_json::Error| format!("its reply can't be read: {error}");
    serde_json::from_slice(json).map_err(|error| ScriptFailure { hook: None, what: wrong(error) })
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
    /// The URL with another path or query; `None` where it stays as it is.
    pub fn url(&self, url: &Url) -> Option<Url> {
        if self.path.is_none() && self.query.is_none() {
            return None;
        }
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
        Some(Url { path: path.into(), ..url.clone() })
    }

    /// Whether the request goes on as it came.
    pub fn is_nothing(&self) -> bool {
        RequestEffects { by: None, ..self.clone() } == RequestEffects::default()
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
        Some(key)
    }

    /// Their work, in words.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(path) = &self.path {
            words.push(format!("path {path}"));
        }
        match &self.query {
            Some(Some(query)) => words.push(format!("query {query}")),
            Some(None) => words.push("no query".to_owned()),
            None => {}
        }
        words.extend(self.key.iter().map(|part| format!("key {part:?}")));
        // Values may be credentials.
        words.extend(self.set.iter().map(|(name, _)| format!("sets {name}")));
        words.extend(self.remove.iter().map(|name| format!("removes {name}")));
        if self.passes {
            words.push("not stored".to_owned());
        }
        if let Some(answer) = &self.answer {
            words.push(format!("answers {}", answer.status));
        }
        words
    }
}

impl AnswerEffects {
    /// Whether the answer goes on as it came.
    pub fn is_nothing(&self) -> bool {
        AnswerEffects { by: None, ..self.clone() } == AnswerEffects::default()
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
        ] {
            assert_eq!(request(json).unwrap().url(&url).unwrap().to_string(), wanted, "{json}");
        }
        assert_eq!(request(r#"{"key": ["a"]}"#).unwrap().url(&url), None);
        let answer =
            request(r#"{"respond": {"status": 303, "fields": [["Location", "/login"]], "body": "aGk="}}"#).unwrap();
        let wanted =
            ScriptAnswer { status: 303, fields: vec![("location".into(), b"/login".to_vec())], body: b"hi".to_vec() };
        assert_eq!(answer.answer, Some(wanted));
        let effects =
            of_answer(br#"{"ttl_ms": 1500, "tags": ["a"], "purge_tags": ["b"], "response_remove": ["Server"]}"#)
                .unwrap();
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
            r#"{"route": "x"}"#,
            r#"{"key": 1}"#,
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
            assert!(of_answer(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn two_lists_of_parts_are_never_one_key(
            one in prop::collection::vec("[a-c 0-9:]{0,4}", 0..4), other in prop::collection::vec("[a-c 0-9:]{0,4}", 0..4),
            fields in prop::collection::vec(("[a-b]{1,2}", "[a-c 0-9:]{0,3}"), 0..3), more in prop::collection::vec(("[a-b]{1,2}", "[a-c 0-9:]{0,3}"), 0..3),
        ) {
            let effects = |key: &Vec<String>, set: &Vec<(String, String)>| RequestEffects {
                key: key.clone(),
                set: set.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect(),
                ..RequestEffects::default()
            };
            let plain = |bytes: &[u8]| Some(String::from_utf8_lossy(bytes).into());
            let key = |effects: &RequestEffects| effects.key(plain).unwrap();
            let (left, right) = (effects(&one, &fields), effects(&other, &more));
            prop_assert_eq!(key(&left) == key(&right), left == right);
        }

        #[test]
        fn no_reply_breaks_the_reading(noise in ".{0,100}", bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = (of_request(noise.as_bytes()), of_answer(&bytes), of_failure(&bytes));
        }
    }
}
