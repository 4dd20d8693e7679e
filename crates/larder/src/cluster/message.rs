//! The messages of a cluster, as bytes and values: the heartbeat of a node, and a purge. A message that is not exactly what a node
//! sends is refused with a reason; nothing of it counts.
//!
//! | subject | body |
//! |---|---|
//! | `<subjects>.members.<name>` | a [`Heartbeat`], JSON |
//! | `<subjects>.purge.<kind>.<hash>` | a [`PurgeMessage`], JSON |
//!
//! The hash is that of force and scope, so that the stream keeps the last purge of each scope and force, and a soft purge never takes
//! the place of a hard one. It is a cryptographic hash: nobody makes a purge that takes the place of another one.

use crate::config::{is_reachable, is_subject_word};
use larder_balance::SPILL_PARTS;
use larder_cache::store::rules::{Force, Scope};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The edition of these messages.
pub const MESSAGE_VERSION: u32 = 1;

/// A longer heartbeat is refused.
pub const HEARTBEAT_BYTES_MAX: usize = 2 << 10;

/// A longer purge is refused: a prefix of 16 KiB is longer than any URL that is served.
pub const PURGE_BYTES_MAX: usize = 40 << 10;

/// The longest prefix or URL of a purge.
pub const SCOPE_BYTES_MAX: usize = 16 << 10;

/// How far the clock of another node may be from ours. A node further away judges freshness by another time.
pub const SKEW_MILLIS_MAX: u64 = 30_000;

/// The longest name of a stream's incarnation, and of a node's.
const MARK_BYTES_MAX: usize = 64;

/// Why a message does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// It is longer than any message of its kind.
    TooLong,
    /// It is no JSON, or lacks a value, or has one of another kind.
    Unread,
    /// It is of another edition of messages.
    Version,
    /// Its subject is not that of its sender or scope.
    Subject,
    /// A name, zone, address or number that no node sends.
    Value,
    /// Its sender's clock is more than half a minute from ours.
    Clock,
    /// Another living node has its sender's name.
    NameTaken,
    /// The table of members is full.
    Full,
}

impl Refusal {
    /// All of them, in the order of their numbers.
    pub const ALL: [Refusal; 8] = [
        Refusal::TooLong,
        Refusal::Unread,
        Refusal::Version,
        Refusal::Subject,
        Refusal::Value,
        Refusal::Clock,
        Refusal::NameTaken,
        Refusal::Full,
    ];

    /// The word of logs, metrics and `larder cluster status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Refusal::TooLong => "too-long",
            Refusal::Unread => "unread",
            Refusal::Version => "version",
            Refusal::Subject => "subject",
            Refusal::Value => "value",
            Refusal::Clock => "clock",
            Refusal::NameTaken => "name-taken",
            Refusal::Full => "full",
        }
    }
}

/// The state of a node, as it tells the others twice a second. Later versions may say more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The edition of the message.
    pub v: u32,
    /// The node's name.
    pub name: String,
    /// The process, so that two nodes with one name are told apart.
    pub instance: String,
    /// Where it is reached by HTTP.
    pub address: String,
    /// Its zone, or nothing.
    pub zone: String,
    /// Requests that it answered a second.
    pub requests_per_second: u64,
    /// The incarnation of the stream that it reads, or nothing.
    pub stream: String,
    /// The number of the last purge that it applied.
    pub applied: u64,
    /// The digest of all purges that it knows.
    pub digest: u64,
    /// Its use of stored responses while it is apart (`cluster.apart`).
    pub apart: String,
    /// How often its settings were read.
    pub settings: u64,
    /// Its version.
    pub version: String,
    /// Its wall clock: milliseconds since 1970.
    pub sent_millis: u64,
    /// It goes down.
    pub leaves: bool,
    /// Where it is asked for responses; nothing while it does not answer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub home: String,
    /// The bytes that it can store, by which it has its share of the keys.
    #[serde(default)]
    pub capacity: u64,
    /// How many of 16 parts of its keys it hands on.
    #[serde(default)]
    pub spill: u8,
    /// Questions of other nodes that it answered a second.
    #[serde(default)]
    pub answers_per_second: u64,
}

impl Heartbeat {
    /// Reads a heartbeat that came under this last word of its subject.
    pub fn parse(bytes: &[u8], subject_name: &str, now_millis: u64) -> Result<Heartbeat, Refusal> {
        if bytes.len() > HEARTBEAT_BYTES_MAX {
            return Err(Refusal::TooLong);
        }
        let beat: Heartbeat = of_json(bytes)?;
        if beat.name != subject_name {
            return Err(Refusal::Subject);
        }
        let is_word = |text: &str| text.is_empty() || is_subject_word(text);
        let is_plain = |text: &str| text.len() <= MARK_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
        let marks = [&beat.instance, &beat.stream, &beat.version, &beat.apart];
        let is_right = is_subject_word(&beat.name)
            && is_word(&beat.zone)
            && !beat.instance.is_empty()
            && [&beat.address, &beat.home].into_iter().all(|address| address.is_empty() || is_reachable(address))
            && beat.spill <= SPILL_PARTS
            && marks.into_iter().all(|mark| is_plain(mark));
        if !is_right {
            return Err(Refusal::Value);
        }
        if beat.sent_millis.abs_diff(now_millis) > SKEW_MILLIS_MAX {
            return Err(Refusal::Clock);
        }
        Ok(beat)
    }

    /// The bytes of it.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// A message of this edition. The edition is looked at first, so that a later one is known as such whatever else it says.
fn of_json<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, Refusal> {
    #[derive(Deserialize)]
    struct Edition {
        v: u32,
    }
    let edition: Edition = serde_json::from_slice(bytes).map_err(|_| Refusal::Unread)?;
    if edition.v != MESSAGE_VERSION {
        return Err(Refusal::Version);
    }
    serde_json::from_slice(bytes).map_err(|_| Refusal::Unread)
}

/// A purge as it is sent: one scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeMessage {
    /// The responses.
    pub scope: Scope,
    /// Its effect on them. [`Force::Validate`] is for everything alone.
    pub force: Force,
    /// The node that it was asked of.
    pub from: String,
    /// A name that no other purge has, by which its node knows it when it comes back.
    pub id: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    v: u32,
    kind: String,
    force: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    text: String,
    from: String,
    id: String,
}

impl PurgeMessage {
    /// The kind of scope, as its subject has it.
    pub fn kind(&self) -> &'static str {
        match &self.scope {
            Scope::All => "all",
            Scope::Tag(_) => "tag",
            // The mark behind a whole URL (`rules::whole`).
            Scope::Prefix(text) if text.ends_with(b"\n") => "url",
            Scope::Prefix(_) => "prefix",
        }
    }

    /// The bytes of it; `None` where it is too long, or its text no UTF-8, as no URL that was asked for is.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let text = match &self.scope {
            Scope::All => String::new(),
            Scope::Tag(tag) => format!("{tag:016x}"),
            Scope::Prefix(text) if text.len() > SCOPE_BYTES_MAX => return None,
            Scope::Prefix(text) => String::from_utf8(text.to_vec()).ok()?,
        };
        let (kind, force) = (self.kind().to_owned(), self.force.as_str().to_owned());
        let written = Written { v: MESSAGE_VERSION, kind, force, text, from: self.from.clone(), id: self.id.clone() };
        serde_json::to_vec(&written).ok().filter(|bytes| bytes.len() <= PURGE_BYTES_MAX)
    }

    /// Reads a purge that came under this subject.
    pub fn parse(bytes: &[u8], subject: &str) -> Result<PurgeMessage, Refusal> {
        if bytes.len() > PURGE_BYTES_MAX {
            return Err(Refusal::TooLong);
        }
        let Written { kind, force, text, from, id, .. } = of_json::<Written>(bytes)?;
        let is_mark = |mark: &str| !mark.is_empty() && mark.len() <= 2 * MARK_BYTES_MAX && mark.is_ascii();
        let scope = match &*kind {
            "all" if text.is_empty() => Scope::All,
            "tag" if text.len() == 16 => Scope::Tag(u64::from_str_radix(&text, 16).map_err(|_| Refusal::Value)?),
            "url" | "prefix" if !text.is_empty() && text.len() <= SCOPE_BYTES_MAX => {
                Scope::Prefix(text.into_bytes().into())
            }
            _ => return Err(Refusal::Value),
        };
        let force = match (&*force, &scope) {
            ("hard", _) => Force::Hard,
            ("soft", _) => Force::Soft,
            ("validate", Scope::All) => Force::Validate,
            _ => return Err(Refusal::Value),
        };
        let message = PurgeMessage { scope, force, from, id };
        if message.kind() != kind || !is_subject_word(&message.from) || !is_mark(&message.id) {
            return Err(Refusal::Value);
        }
        let mut words = subject.rsplit('.');
        let (hash, of_kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if hash != message.hash() || of_kind != kind {
            return Err(Refusal::Subject);
        }
        Ok(message)
    }

    /// The last word of its subject: half of a SHA-256 over force and scope.
    pub fn hash(&self) -> String {
        let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        context.update(self.kind().as_bytes());
        context.update(b"\0");
        context.update(self.force.as_str().as_bytes());
        context.update(b"\0");
        match &self.scope {
            Scope::All => {}
            Scope::Tag(tag) => context.update(&tag.to_be_bytes()),
            Scope::Prefix(text) => context.update(text),
        }
        let digest = context.finish();
        digest.as_ref()[..16].iter().fold(String::with_capacity(32), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// The subject that it is sent under.
    pub fn subject(&self, subjects: &str) -> String {
        format!("{subjects}.purge.{}.{}", self.kind(), self.hash())
    }

    /// Whether all purges before it are contained in it.
    pub fn is_everything(&self) -> bool {
        self.scope == Scope::All && self.force == Force::Hard
    }
}

/// A number for a subject of the stream: the hash in it, or one of it where nothing that a node sends stands there.
pub fn key_of(subject: &str) -> u128 {
    let hash = subject.rsplit('.').next().filter(|word| word.len() == 32);
    let hash = hash.and_then(|word| u128::from_str_radix(word, 16).ok());
    hash.unwrap_or_else(|| {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, subject.as_bytes());
        digest.as_ref()[..16].iter().fold(0, |key, byte| key << 8 | u128::from(*byte))
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use larder_cache::store::rules;

    fn heartbeat() -> Heartbeat {
        Heartbeat {
            v: 1,
            name: "a".to_owned(),
            instance: "1f".to_owned(),
            address: "127.0.0.1:8080".to_owned(),
            zone: "east".to_owned(),
            requests_per_second: 7,
            stream: "17".to_owned(),
            applied: 3,
            digest: 9,
            apart: "validate".to_owned(),
            settings: 1,
            version: "0.1.0".to_owned(),
            sent_millis: 1_000_000,
            leaves: false,
            home: "127.0.0.1:4830".to_owned(),
            capacity: 1 << 30,
            spill: 0,
            answers_per_second: 0,
        }
    }

    /// The state of a node with this name.
    pub fn heartbeat_of(name: &str) -> Heartbeat {
        Heartbeat { name: name.to_owned(), ..heartbeat() }
    }

    fn beat_with(change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
        let mut value = serde_json::to_value(heartbeat()).unwrap();
        change(&mut value);
        serde_json::to_vec(&value).unwrap()
    }

    #[test]
    fn heartbeats_of_nobody_are_refused() {
        let parse = |bytes: &[u8]| Heartbeat::parse(bytes, "a", 1_000_000);
        assert_eq!(parse(&heartbeat().to_bytes()), Ok(heartbeat()));
        let table: &[(&str, Vec<u8>, Refusal)] = &[
            ("nothing", Vec::new(), Refusal::Unread),
            ("no JSON", b"larder".to_vec(), Refusal::Unread),
            ("half of it", heartbeat().to_bytes()[..40].to_vec(), Refusal::Unread),
            ("a list", b"[1]".to_vec(), Refusal::Unread),
            ("deep", vec![b'['; 2_000], Refusal::Unread),
            ("long", vec![b' '; HEARTBEAT_BYTES_MAX + 1], Refusal::TooLong),
            ("a later edition", beat_with(|it| it["v"] = 2.into()), Refusal::Version),
            ("a later edition with other fields", br#"{"v":2,"x":1}"#.to_vec(), Refusal::Version),
            ("a number that is a text", beat_with(|it| it["applied"] = "3".into()), Refusal::Unread),
            ("a number below 0", beat_with(|it| it["applied"] = (-1).into()), Refusal::Unread),
            ("the name of another", beat_with(|it| it["name"] = "b".into()), Refusal::Subject),
            ("no process", beat_with(|it| it["instance"] = "".into()), Refusal::Value),
            ("a zone that is no word", beat_with(|it| it["zone"] = "a b".into()), Refusal::Value),
            ("an address without a port", beat_with(|it| it["address"] = "127.0.0.1".into()), Refusal::Value),
            ("a home without a port", beat_with(|it| it["home"] = "127.0.0.1".into()), Refusal::Value),
            ("more than all of its keys", beat_with(|it| it["spill"] = 17.into()), Refusal::Value),
            ("an address with a path", beat_with(|it| it["address"] = "a.example/x:80".into()), Refusal::Value),
            ("a terminal's bytes", beat_with(|it| it["version"] = "\u{1b}[2J".into()), Refusal::Value),
            ("a clock ahead", beat_with(|it| it["sent_millis"] = 1_030_001.into()), Refusal::Clock),
            ("a clock behind", beat_with(|it| it["sent_millis"] = 969_999.into()), Refusal::Clock),
        ];
        for (what, bytes, refusal) in table {
            assert_eq!(parse(bytes), Err(*refusal), "{what}");
        }
        let named = |name: &str| beat_with(|it| it["name"] = name.into());
        assert_eq!(Heartbeat::parse(&named("a b"), "a b", 1_000_000), Err(Refusal::Value));
        assert!(parse(&beat_with(|it| it["sent_millis"] = 1_030_000.into())).is_ok());
        assert!(parse(&beat_with(|it| it["more"] = 1.into())).is_ok(), "a later version may say more");
        let without = beat_with(|it| {
            ["home", "capacity", "spill"].iter().for_each(|name| _ = it.as_object_mut().unwrap().remove(*name))
        });
        assert_eq!(parse(&without).map(|beat| beat.home), Ok(String::new()), "an earlier version says less");
    }

    fn purge(scope: Scope, force: Force) -> PurgeMessage {
        PurgeMessage { scope, force, from: "a".to_owned(), id: "1f-1".to_owned() }
    }

    fn url(text: &str) -> Scope {
        Scope::Prefix(rules::whole(text.as_bytes()).into())
    }

    #[test]
    fn purges_come_out_as_they_went_in() {
        let scopes = [
            Scope::All,
            Scope::Tag(7),
            url("http://a.example/x"),
            Scope::Prefix(b"http://a.example/".as_slice().into()),
        ];
        for (scope, kind) in scopes.into_iter().zip(["all", "tag", "url", "prefix"]) {
            for force in [Force::Hard, Force::Soft] {
                let message = purge(scope.clone(), force);
                let (bytes, subject) = (message.to_bytes().unwrap(), message.subject("larder"));
                assert_eq!(message.kind(), kind);
                assert_eq!(PurgeMessage::parse(&bytes, &subject), Ok(message));
            }
        }
    }

    #[test]
    fn a_soft_purge_has_another_subject_than_a_hard_one() {
        let subject = |scope: Scope, force| purge(scope, force).subject("larder");
        assert_ne!(subject(Scope::Tag(7), Force::Hard), subject(Scope::Tag(7), Force::Soft));
        assert_ne!(subject(Scope::Tag(7), Force::Hard), subject(Scope::Tag(8), Force::Hard));
        assert_ne!(
            subject(url("http://a/x"), Force::Hard),
            subject(Scope::Prefix(b"http://a/x".as_slice().into()), Force::Hard)
        );
    }

    #[test]
    fn purges_of_nobody_are_refused() {
        let subject = purge(Scope::Tag(7), Force::Hard).subject("larder");
        let parse = |text: &str| PurgeMessage::parse(text.as_bytes(), &subject);
        let tag = r#"{"v":1,"kind":"tag","force":"hard","text":"0000000000000007","from":"a","id":"1"}"#;
        assert!(parse(tag).is_ok());
        for (what, from, to, refusal) in [
            ("a later edition", r#""v":1"#, r#""v":9"#, Refusal::Version),
            ("a field that nobody knows", r#""v":1"#, r#""v":1,"x":1"#, Refusal::Unread),
            ("another kind", r#""tag""#, r#""host""#, Refusal::Value),
            ("another force", r#""hard""#, r#""gone""#, Refusal::Value),
            ("a validation of less than everything", r#""hard""#, r#""validate""#, Refusal::Value),
            ("a tag that is no number", "0000000000000007", "000000000000000x", Refusal::Value),
            ("a short tag", "0000000000000007", "7", Refusal::Value),
            ("a sender that is no node", r#""a""#, r#""a.b""#, Refusal::Value),
            ("no name", r#""id":"1""#, r#""id":"""#, Refusal::Value),
            ("another scope than its subject", "0000000000000007", "0000000000000008", Refusal::Subject),
            ("a soft purge in the place of a hard one", r#""hard""#, r#""soft""#, Refusal::Subject),
        ] {
            assert_eq!(parse(&tag.replace(from, to)), Err(refusal), "{what}");
        }
        let whole = r#"{"v":1,"kind":"prefix","force":"hard","text":"http://a/x\n","from":"a","id":"1"}"#;
        assert_eq!(parse(whole), Err(Refusal::Value), "a URL that calls itself a prefix");
        assert_eq!(parse(&" ".repeat(PURGE_BYTES_MAX + 1)), Err(Refusal::TooLong));
        let long = purge(Scope::Prefix(vec![b'a'; SCOPE_BYTES_MAX + 1].into()), Force::Hard);
        assert_eq!(long.to_bytes(), None);
    }
}
