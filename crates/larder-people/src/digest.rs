//! Digest (RFC 7616): challenges, and the check of their answers. MD5 and SHA-256, `qop=auth` alone, with `userhash`.
//!
//! A nonce names its time and is signed, so that none needs to be remembered before it is used. Of those in use the table of
//! [`Counts`] knows the counts that came, so that no answer is taken twice.

use crate::authorization::parameters;
use aws_lc_rs::{digest, hmac};
use md5::{Digest as _, Md5};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::time::Duration;
use subtle::ConstantTimeEq;

/// The algorithm of hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// SHA-256.
    Sha256,
    /// MD5, for clients that know nothing else.
    Md5,
}

impl Algorithm {
    /// All of them, the better one first, in the order in which challenges are sent (RFC 7616 section 3.7).
    pub const ALL: [Algorithm; 2] = [Algorithm::Sha256, Algorithm::Md5];

    /// The word of the protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "SHA-256",
            Algorithm::Md5 => "MD5",
        }
    }

    /// The hash of these texts one after the other, in hexadecimal digits.
    pub fn hash(self, parts: &[&str]) -> String {
        match self {
            Algorithm::Sha256 => {
                let mut context = digest::Context::new(&digest::SHA256);
                parts.iter().for_each(|part| context.update(part.as_bytes()));
                hex(context.finish().as_ref())
            }
            Algorithm::Md5 => {
                let mut context = Md5::new();
                parts.iter().for_each(|part| context.update(part.as_bytes()));
                hex(&context.finalize())
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The hash of `user:realm:password`. Nothing shows it: it is as good as the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Ha1(String);

impl std::fmt::Debug for Ha1 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ha1(hidden)")
    }
}

impl Ha1 {
    /// A hash that no password has, for the time that a check takes.
    pub fn of_nobody(algorithm: Algorithm) -> Ha1 {
        match algorithm {
            Algorithm::Md5 => Ha1("0".repeat(32)),
            Algorithm::Sha256 => Ha1("0".repeat(64)),
        }
    }

    /// Reads one from hexadecimal digits; their number says the algorithm.
    pub fn parse(text: &str) -> Option<(Algorithm, Ha1)> {
        let text = text.trim().to_ascii_lowercase();
        let algorithm = match text.len() {
            32 => Algorithm::Md5,
            64 => Algorithm::Sha256,
            _ => return None,
        };
        text.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some((algorithm, Ha1(text)))
    }
}

/// The answer to a challenge, as a client sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The user, or the hash that stands for it.
    pub user: String,
    /// Whether `user` is a hash.
    pub user_is_hashed: bool,
    /// The realm.
    pub realm: String,
    /// The nonce of the challenge.
    pub nonce: String,
    /// The URI for which it was made.
    pub uri: String,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// How often the nonce was used, this time included.
    pub count: u32,
    count_text: String,
    client_nonce: String,
    response: String,
}

impl Response {
    /// Reads what stands behind the scheme; `None` where it lacks something, or asks for what was not offered.
    pub fn parse(rest: &str) -> Option<Response> {
        let found = parameters(rest)?;
        let get = |name: &str| found.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        let algorithm = match get("algorithm") {
            None => Algorithm::Md5,
            Some(name) => Algorithm::ALL.into_iter().find(|known| known.as_str().eq_ignore_ascii_case(&name))?,
        };
        if !get("qop")?.eq_ignore_ascii_case("auth") {
            return None;
        }
        let count_text = get("nc")?;
        let count = u32::from_str_radix(&count_text, 16).ok().filter(|_| count_text.len() == 8)?;
        Some(Response {
            user: get("username").filter(|user| !user.is_empty() && !user.contains(char::is_control))?,
            user_is_hashed: get("userhash").is_some_and(|value| value.eq_ignore_ascii_case("true")),
            realm: get("realm")?,
            nonce: get("nonce")?,
            uri: get("uri")?,
            algorithm,
            count,
            count_text,
            client_nonce: get("cnonce")?,
            response: get("response")?.to_ascii_lowercase(),
        })
    }

    /// Whether the client knows the password (RFC 7616 section 3.4.1).
    pub fn is_right(&self, method: &str, ha1: &Ha1) -> bool {
        let ha2 = self.algorithm.hash(&[method, ":", &self.uri]);
        let parts = [ha1.0.as_str(), ":", &self.nonce, ":", &self.count_text, ":", &self.client_nonce, ":auth:", &ha2];
        self.algorithm.hash(&parts).as_bytes().ct_eq(self.response.as_bytes()).into()
    }

    /// Whether the answer was made for this target. Clients of proxies write the whole URL or its path.
    pub fn is_for(&self, target: &str, path: &str) -> bool {
        self.uri == target || self.uri == path
    }
}

/// Makes nonces and knows its own.
pub struct Nonces {
    key: hmac::Key,
    /// A nonce is good for so long.
    lasts: Duration,
}

impl std::fmt::Debug for Nonces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Nonces(hidden)")
    }
}

/// The state of a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonceState {
    /// It is one of ours, and new enough.
    Good,
    /// It is one of ours, and too old: the client may answer a new challenge without asking its user.
    Stale,
    /// It is none of ours.
    Foreign,
}

impl Nonces {
    /// With this secret.
    pub fn new(secret: &[u8], lasts: Duration) -> Nonces {
        Nonces { key: hmac::Key::new(hmac::HMAC_SHA256, secret), lasts }
    }

    /// A nonce of this time, made unique by `random`.
    pub fn make(&self, now_millis: u64, random: u64) -> String {
        let text = format!("{now_millis:016x}{random:016x}");
        let sum = hmac::sign(&self.key, text.as_bytes());
        text + &hex(sum.as_ref().get(..SUM_BYTES).unwrap_or_default())
    }

    /// The state of a nonce at this time.
    pub fn state(&self, nonce: &str, now_millis: u64) -> NonceState {
        let Some((text, sum)) = nonce.split_at_checked(32) else { return NonceState::Foreign };
        let made = hmac::sign(&self.key, text.as_bytes());
        let is_ours: bool =
            hex(made.as_ref().get(..SUM_BYTES).unwrap_or_default()).as_bytes().ct_eq(sum.as_bytes()).into();
        match time_of(text).filter(|_| is_ours) {
            None => NonceState::Foreign,
            Some(time) if now_millis.saturating_sub(time) > millis(self.lasts) => NonceState::Stale,
            Some(_) => NonceState::Good,
        }
    }
}

/// The time that a nonce names, in milliseconds since 1970.
fn time_of(nonce: &str) -> Option<u64> {
    u64::from_str_radix(nonce.get(..16)?, 16).ok()
}

/// Bytes of the sum in a nonce.
const SUM_BYTES: usize = 16;

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The counts of nonces that came, so that no answer is taken twice. Requests of one client may overtake each other, so the 64
/// counts below the highest one are known one by one.
#[derive(Debug)]
pub struct Counts {
    seen: HashMap<String, Seen>,
    /// The same nonces by the times that they name: the oldest one is forgotten first.
    by_time: BTreeSet<(u64, String)>,
    /// The time of the youngest nonce that was forgotten: of one that is not younger nothing is known.
    forgotten: Option<u64>,
    nonces_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    highest: u32,
    /// Bit N: the count N below the highest one came.
    below: u64,
}

/// The judgement of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountState {
    /// It came for the first time.
    New,
    /// It came before, or is too far behind: the client answers a new challenge.
    Used,
}

impl Counts {
    /// No nonce was used yet.
    pub fn new(nonces_max: usize) -> Counts {
        Counts { seen: HashMap::new(), by_time: BTreeSet::new(), forgotten: None, nonces_max }
    }

    /// Notes that a count came with a nonce. The first count of a nonce is 1. A nonce that is not known, and not younger than one that
    /// was forgotten because many came after it, may be that one: any count of it may have come before.
    pub fn note(&mut self, nonce: &str, count: u32) -> CountState {
        let Some(seen) = self.seen.get_mut(nonce) else { return self.note_first(nonce, count) };
        if count > seen.highest {
            let by = count - seen.highest;
            seen.below = if by >= 64 { 1 } else { seen.below << by | 1 };
            seen.highest = count;
            return CountState::New;
        }
        let bit = seen.highest - count;
        if count == 0 || bit >= 64 || seen.below >> bit & 1 == 1 {
            return CountState::Used;
        }
        seen.below |= 1 << bit;
        CountState::New
    }

    fn note_first(&mut self, nonce: &str, count: u32) -> CountState {
        let is_young = |time: &u64| self.forgotten.is_none_or(|forgotten| forgotten < *time);
        let Some(time) = time_of(nonce).filter(is_young).filter(|_| count == 1) else { return CountState::Used };
        while self.seen.len() >= self.nonces_max {
            let Some((time, oldest)) = self.by_time.pop_first() else { break };
            self.forgotten = self.forgotten.max(Some(time));
            self.seen.remove(&oldest);
        }
        self.by_time.insert((time, nonce.to_owned()));
        self.seen.insert(nonce.to_owned(), Seen { highest: 1, below: 1 });
        CountState::New
    }
}

/// The challenges of a realm, one for each algorithm, as values of `WWW-Authenticate` or `Proxy-Authenticate`.
pub fn challenges(realm: &str, algorithms: &[Algorithm], nonce: &str, is_stale: bool, userhash: bool) -> Vec<String> {
    let challenge = |algorithm: &Algorithm| {
        let mut text = format!(
            "Digest realm={}, qop=\"auth\", algorithm={}, nonce=\"{nonce}\", charset=UTF-8",
            quoted(realm),
            algorithm.as_str()
        );
        if userhash {
            text.push_str(", userhash=true");
        }
        if is_stale {
            text.push_str(", stale=true");
        }
        text
    };
    algorithms.iter().map(challenge).collect()
}

/// A text in quotation marks (RFC 9110 section 5.6.4).
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars().filter(|letter| !letter.is_control()) {
        if matches!(letter, '"' | '\\') {
            out.push('\\');
        }
        out.push(letter);
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ha1(algorithm: Algorithm, user: &str, realm: &str, password: &str) -> Ha1 {
        Ha1(algorithm.hash(&[user, ":", realm, ":", password]))
    }

    /// The example of RFC 7616 section 3.9.1.
    #[test]
    fn the_example_of_the_rfc() {
        for (algorithm, response) in [
            ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
            ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
        ] {
            let text = format!(
                r#"username="Mufasa", realm="http-auth@example.org", uri="/dir/index.html", algorithm={algorithm}, nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", nc=00000001, cnonce="f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ", qop=auth, response="{response}", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS""#
            );
            let found = Response::parse(&text).unwrap();
            let hash = |password| ha1(found.algorithm, "Mufasa", "http-auth@example.org", password);
            assert!(found.is_right("GET", &hash("Circle of Life")), "{algorithm}");
            assert!(!found.is_right("POST", &hash("Circle of Life")) && !found.is_right("GET", &hash("circle")));
            assert!(found.is_for("/dir/index.html", "/") && !found.is_for("/dir/", "/dir"));
        }
    }

    #[test]
    fn answers_that_were_not_asked_for_are_none() {
        let good = r#"username="a", realm="r", uri="/", nonce="n", nc=00000001, cnonce="c", qop=auth, response="x""#;
        assert!(Response::parse(good).is_some());
        for (from, to) in [
            ("qop=auth", "qop=auth-int"),
            ("qop=auth, ", ""),
            ("00000001", "1"),
            ("00000001", "0000000g"),
            ("username=\"a\", ", ""),
            ("username=\"a\"", "username=\"\""),
            ("nonce=\"n\", ", ""),
            ("uri=\"/\"", "uri=\"/\", algorithm=SHA-512"),
        ] {
            assert!(Response::parse(&good.replace(from, to)).is_none(), "{from} → {to}");
        }
    }

    #[test]
    fn a_nonce_has_its_time_and_cannot_be_made_by_others() {
        let nonces = Nonces::new(b"secret", Duration::from_secs(60));
        let nonce = nonces.make(1_000_000, 7);
        assert_eq!(nonces.state(&nonce, 1_060_000), NonceState::Good);
        assert_eq!(nonces.state(&nonce, 1_060_001), NonceState::Stale);
        assert_eq!(Nonces::new(b"other", Duration::from_secs(60)).state(&nonce, 1_000_000), NonceState::Foreign);
        let later = nonce.replacen("00000000000f4240", "00000000ffffffff", 1);
        assert_ne!(later, nonce);
        assert_eq!(nonces.state(&later, 1_000_000), NonceState::Foreign);
        assert_eq!(nonces.state("", 0), NonceState::Foreign);
    }

    #[test]
    fn no_count_is_taken_twice() {
        // `a2`: the second one of that moment.
        let nonce_of = |name: &str| match name.split_at_checked(1) {
            Some((time, more)) if more.len() < 2 => format!("{:0>16}{more:0>16}", time),
            _ => name.to_owned(),
        };
        let mut counts = Counts::new(2);
        use CountState::{New, Used};
        for (nonce, count, wanted) in [
            ("a", 2, Used),
            ("a", 1, New),
            ("a", 1, Used),
            ("a", 3, New),
            ("a", 2, New),
            ("a", 2, Used),
            ("a", 0, Used),
            ("a", 100, New),
            ("a", 37, New),
            ("a", 37, Used),
            ("a", 36, Used),
            ("b", 1, New),
            ("c", 1, New),
            // Its counts are forgotten, so nothing is known of what came.
            ("a", 101, Used),
            ("a", 1, Used),
            // One of the same moment may be it, and so may an older one; a younger one is not.
            ("a2", 1, Used),
            ("0", 1, Used),
            ("b", 2, New),
            ("d", 1, New),
            ("b", 1, Used),
            ("c", 1, Used),
            ("no time", 1, Used),
        ] {
            assert_eq!(counts.note(&nonce_of(nonce), count), wanted, "{nonce} {count}");
        }
        assert_eq!((counts.seen.len(), counts.by_time.len()), (2, 2));
    }

    #[test]
    fn challenges_in_the_order_of_preference() {
        let made = challenges("the \"office\"", &Algorithm::ALL, "n", true, true);
        assert_eq!(
            made[0],
            r#"Digest realm="the \"office\"", qop="auth", algorithm=SHA-256, nonce="n", charset=UTF-8, userhash=true, stale=true"#
        );
        assert!(made[1].contains("algorithm=MD5"));
        assert!(!challenges("r", &[Algorithm::Md5], "n", false, false)[0].contains("stale"));
    }

    proptest! {
        #[test]
        fn random_texts_are_read_without_a_panic(text: String, count: u32) {
            let _ = Response::parse(&text);
            let _ = Nonces::new(b"x", Duration::from_secs(1)).state(&text, 0);
            let _ = Counts::new(1).note(&text, count);
        }

        #[test]
        fn each_count_is_new_once(counts in proptest::collection::vec(1_u32..80, 0..200)) {
            let mut table = Counts::new(1);
            let nonce = Nonces::new(b"x", Duration::from_secs(1)).make(7, 7);
            table.note(&nonce, 1);
            let mut taken = std::collections::HashSet::from([1]);
            for count in counts {
                if table.note(&nonce, count) == CountState::New {
                    prop_assert!(taken.insert(count));
                }
            }
        }
    }
}
