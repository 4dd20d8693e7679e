//! The proof by which nodes know one another's questions and answers: an HMAC-SHA-256 with the secret of the cluster
//! (decision 119). Values in, decisions out; the time is an argument.
//!
//! A question has a field [`FIELD`] with eight words:
//!
//! | word | meaning |
//! |---|---|
//! | `1` | the edition |
//! | `a` | the node that asks |
//! | `b` | the node that is asked, so that a question holds for no other one |
//! | `1764370000` | the wall clock of the asker, in seconds |
//! | `1f` | the incarnation of the stream of purges that it reads, |
//! | `17` | and the number of the last purge that is or is about to be in force there |
//! | 32 digits | half of the SHA-256 of the key under which it would store the response |
//! | 64 digits | the proof: over all of this, the method, the target and all other fields |
//!
//! The answer has the same field with the edition and a proof over that of the question, so that an answer to another question, or one of
//! somebody without the secret, is known as such. It is no proof of fields and body: nodes speak in a network of their own.

use crate::config::is_subject_word;
use aws_lc_rs::{digest, hmac};
use larder_wire::Fields;
use std::fmt;

/// The field of questions and answers.
pub const FIELD: &str = "Larder-Node";

/// How far the clock of an asker may be from ours, in seconds, and how long a question can be sent again.
const WINDOW_SECONDS: u64 = 30;

/// The edition of questions and answers.
const EDITION: &str = "1";

/// The secret of a cluster, as a key.
pub struct NodeKey(hmac::Key);

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeKey(hidden)")
    }
}

/// The words of a question, without its proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// The name of the node that asks.
    pub from: &'a str,
    /// The name of the node that is asked.
    pub to: &'a str,
    /// Seconds since 1970.
    pub at: u64,
    /// The incarnation of the stream.
    pub stream: &'a str,
    /// The number of a purge.
    pub applied: u64,
    /// The hash of the key ([`key_hash`]).
    pub key: &'a str,
}

/// The request that a question stands in.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// Its target, as it stands in the request line.
    pub target: &'a str,
    /// Its fields. [`FIELD`] does not count.
    pub fields: &'a Fields,
}

/// Why a request at the address for nodes is not a node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// It has no question, or one that no node writes.
    NoQuestion,
    /// It was asked too long ago, or the clocks differ.
    Late,
    /// It is for another node.
    ForAnother,
    /// Its proof is not that of the secret.
    Unproved,
}

impl Stranger {
    /// The word of the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Stranger::NoQuestion => "it has no question of a node",
            Stranger::Late => "it is older than half a minute, or the clocks of the nodes differ",
            Stranger::ForAnother => "it is for another node",
            Stranger::Unproved => "it was made with another secret",
        }
    }
}

impl NodeKey {
    /// The key of a secret.
    pub fn new(secret: &[u8]) -> NodeKey {
        NodeKey(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The value of the field for a question, and its proof.
    pub fn ask(&self, question: &Question<'_>, asked: Asked<'_>) -> (String, String) {
        let proof = hex(hmac::sign(&self.0, &message(question, asked)).as_ref());
        let Question { from, to, at, stream, applied, key } = question;
        (format!("{EDITION} {from} {to} {at} {stream} {applied} {key} {proof}"), proof)
    }

    /// Reads the question of a request that came to the node `own`, and proves it; gives the proof, too.
    pub fn check<'a>(&self, asked: Asked<'a>, own: &str, now: u64) -> Result<(Question<'a>, &'a str), Stranger> {
        let mut values = asked.fields.get_all(FIELD);
        let (Some(value), None) = (values.next(), values.next()) else { return Err(Stranger::NoQuestion) };
        let (question, proof) = read(value).ok_or(Stranger::NoQuestion)?;
        let shown = bytes(proof).ok_or(Stranger::NoQuestion)?;
        // The proof comes first: nobody without the secret learns names or clocks.
        hmac::verify(&self.0, &message(&question, asked), &shown).map_err(|_| Stranger::Unproved)?;
        match question {
            _ if question.to != own => Err(Stranger::ForAnother),
            _ if question.at.abs_diff(now) > WINDOW_SECONDS => Err(Stranger::Late),
            question => Ok((question, proof)),
        }
    }

    /// The value of the field for the answer to the question with this proof.
    pub fn answer(&self, proof: &str) -> String {
        format!("{EDITION} {}", hex(hmac::sign(&self.0, &answered(proof)).as_ref()))
    }

    /// Whether these fields are of the answer to the question with this proof.
    pub fn is_answer(&self, fields: &Fields, proof: &str) -> bool {
        let mut values = fields.get_all(FIELD);
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        let shown = std::str::from_utf8(value).ok().and_then(|value| value.strip_prefix(EDITION)?.strip_prefix(' '));
        let shown = shown.and_then(bytes);
        shown.is_some_and(|shown| hmac::verify(&self.0, &answered(proof), &shown).is_ok())
    }
}

/// The hash of a key as questions have it: half of a SHA-256.
pub fn key_hash(key: &[u8]) -> String {
    hex(&digest::digest(&digest::SHA256, key).as_ref()[..16])
}

fn read(value: &[u8]) -> Option<(Question<'_>, &str)> {
    let mut words = std::str::from_utf8(value).ok()?.split(' ');
    let mut next = || words.next().filter(|word| !word.is_empty());
    let edition = next()?;
    let (from, to, at, stream, applied, key, proof) = (next()?, next()?, next()?, next()?, next()?, next()?, next()?);
    let is_whole = words.next().is_none() && edition == EDITION;
    let are_names = is_subject_word(from) && is_subject_word(to);
    let is_hash = key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    let question = Question { from, to, at: number(at)?, stream, applied: number(applied)?, key };
    (is_whole && are_names && is_hash).then_some((question, proof))
}

/// Each part with its length before it, so that no two questions are one message.
fn message(question: &Question<'_>, asked: Asked<'_>) -> Vec<u8> {
    let Question { from, to, at, stream, applied, key } = question;
    let mut out = Vec::with_capacity(1_024);
    let mut add = |part: &[u8]| {
        out.extend_from_slice(&(part.len() as u64).to_le_bytes());
        out.extend_from_slice(part);
    };
    for part in ["larder-node-question", EDITION, "GET", asked.target, from, to, stream, key] {
        add(part.as_bytes());
    }
    add(&at.to_le_bytes());
    add(&applied.to_le_bytes());
    for (name, value) in asked.fields.iter().filter(|(name, _)| !name.eq_ignore_ascii_case(FIELD)) {
        add(name.to_ascii_lowercase().as_bytes());
        add(value);
    }
    out
}

fn answered(proof: &str) -> Vec<u8> {
    format!("larder-node-answer {EDITION} {proof}").into_bytes()
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// The 32 bytes of a proof.
fn bytes(text: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    let digits: Vec<u32> = text.chars().map_while(|digit| digit.to_digit(16)).collect();
    if digits.len() != 64 || text.len() != 64 {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::try_from(pair[0] * 16 + pair[1]).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "00112233445566778899aabbccddeeff";
    const NOW: u64 = 1_764_370_000;

    fn question() -> Question<'static> {
        Question { from: "a", to: "b", at: NOW, stream: "1f", applied: 17, key: KEY }
    }

    fn fields(more: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        fields.push("Host", "a.example");
        fields.push("Accept-Language", "de");
        more.iter().for_each(|(name, value)| fields.push(name, value));
        fields
    }

    const TARGET: &str = "http://a.example/x";

    fn key() -> NodeKey {
        NodeKey::new(&[7; 32])
    }

    #[test]
    fn a_question_comes_out_as_it_went_in() {
        let bare = fields(&[]);
        let (value, proof) = key().ask(&question(), Asked { target: TARGET, fields: &bare });
        let asked = fields(&[(FIELD, &value)]);
        let asked = Asked { target: TARGET, fields: &asked };
        let (found, found_proof) = key().check(asked, "b", NOW + 30).unwrap();
        assert_eq!((found, found_proof), (question(), &*proof));
        assert_eq!(key().check(asked, "b", NOW + 31), Err(Stranger::Late));
        assert_eq!(key().check(asked, "b", NOW - 31), Err(Stranger::Late));
        assert_eq!(key().check(asked, "c", NOW), Err(Stranger::ForAnother));
        assert_eq!(NodeKey::new(&[8; 32]).check(asked, "b", NOW), Err(Stranger::Unproved));
    }

    #[test]
    fn all_of_a_request_is_proved() {
        let bare = fields(&[]);
        let (value, _) = key().ask(&question(), Asked { target: TARGET, fields: &bare });
        let unproved = |target: &str, fields: &Fields| {
            assert_eq!(key().check(Asked { target, fields }, "b", NOW), Err(Stranger::Unproved), "{target} {fields:?}");
        };
        let whole = fields(&[(FIELD, &value)]);
        for target in
            ["http://b.example/x", "https://a.example/x", "http://a.example:81/x", "http://a.example/x?", "/x"]
        {
            unproved(target, &whole);
        }
        unproved(TARGET, &fields(&[(FIELD, &value), ("Cookie", "a=b")]));
        let mut other = whole.clone();
        other.set("Host", "b.example");
        unproved(TARGET, &other);
        let mut other = whole.clone();
        other.set("Accept-Language", "en");
        unproved(TARGET, &other);
        let mut other = whole.clone();
        other.remove("Accept-Language");
        unproved(TARGET, &other);
        let words: Vec<&str> = value.split(' ').collect();
        for (at, word) in [(1, "c"), (2, "c"), (3, "1764370001"), (4, "2f"), (5, "18"), (6, &KEY.replace('0', "1"))] {
            let mut changed = words.clone();
            changed[at] = word;
            unproved(TARGET, &fields(&[(FIELD, &changed.join(" "))]));
        }
        // A part can't move from one field to the next.
        let mut split = fields(&[(FIELD, &value)]);
        split.set("Accept-Language", "d");
        split.push("e", "");
        unproved(TARGET, &split);
    }

    #[test]
    fn questions_that_no_node_writes_are_none() {
        let bare = fields(&[]);
        let (value, _) = key().ask(&question(), Asked { target: TARGET, fields: &bare });
        let longer = format!("{value} x");
        let edition = value.replacen('1', "2", 1);
        let spaced = value.replacen(' ', "  ", 1);
        let short = &value[..value.len() - 1];
        let long = format!("{value}0");
        let signed = value.replacen(" 17 ", " +17 ", 1);
        let letters = value.replacen(" a b ", " a.b b ", 1);
        let hash = value.replacen(KEY, &KEY[1..], 1);
        let table: [&str; 10] = ["", "1", &longer, &edition, &spaced, short, &long, &signed, &letters, &hash];
        for text in table {
            let fields = fields(&[(FIELD, text)]);
            let checked = key().check(Asked { target: TARGET, fields: &fields }, "b", NOW);
            assert_eq!(checked, Err(Stranger::NoQuestion), "{text}");
        }
        let twice = fields(&[(FIELD, &value), (FIELD, &value)]);
        for fields in [&bare, &twice] {
            let checked = key().check(Asked { target: TARGET, fields }, "b", NOW);
            assert_eq!(checked, Err(Stranger::NoQuestion));
        }
    }

    #[test]
    fn an_answer_is_one_to_its_question_alone() {
        let bare = fields(&[]);
        let (_, proof) = key().ask(&question(), Asked { target: TARGET, fields: &bare });
        let (_, other) = key().ask(&question(), Asked { target: "http://a.example/y", fields: &bare });
        let value = key().answer(&proof);
        let answer = fields(&[(FIELD, &value)]);
        assert!(key().is_answer(&answer, &proof));
        assert!(!key().is_answer(&answer, &other), "the answer for another URL");
        assert!(!NodeKey::new(&[8; 32]).is_answer(&answer, &proof));
        assert!(!key().is_answer(&bare, &proof));
        assert!(!key().is_answer(&fields(&[(FIELD, &value), (FIELD, &value)]), &proof));
        for wrong in ["1", "1 ", &value[1..], &proof, &format!("1 {proof}"), &format!("2{}", &value[1..])] {
            assert!(!key().is_answer(&fields(&[(FIELD, wrong)]), &proof), "{wrong}");
        }
    }
}
