//! Hashes of passwords, as Apache's `htpasswd` and others write them.

use md5::{Digest, Md5};
use sha_crypt::PasswordVerifier as _;
use std::fmt;
use subtle::ConstantTimeEq;

/// A check that takes longer would let a few requests keep all threads busy: bcrypt with this cost takes about four seconds.
const BCRYPT_COST_MAX: u32 = 16;

/// Memory of one check by Argon2, in KiB.
const ARGON2_KIB_MAX: u32 = 512 << 10;

/// Passes of Argon2.
const ARGON2_PASSES_MAX: u32 = 64;

/// Rounds of SHA-crypt.
const SHA_CRYPT_ROUNDS_MAX: u32 = 1_000_000;

/// A longer password is wrong without a check, in bytes.
pub const PASSWORD_BYTES_MAX: usize = 1_024;

/// The hash of a password.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordHash {
    /// `$2y$…` (also `$2a$` and `$2b$`).
    Bcrypt(String),
    /// `$argon2id$…` (also `argon2i` and `argon2d`).
    Argon2(String),
    /// `$apr1$…`, Apache's variant of MD5-crypt, or `$1$…`, which is its model.
    Md5Crypt {
        /// `$apr1$` or `$1$`.
        magic: &'static str,
        /// The salt.
        salt: String,
        /// The letters of the hash.
        letters: String,
    },
    /// `{SHA}…`: SHA-1 without a salt.
    Sha1([u8; 20]),
    /// `$5$…` and `$6$…`: SHA-256 and SHA-512 as crypt has them.
    ShaCrypt(String),
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PasswordHash({}, hidden)", self.algorithm())
    }
}

impl PasswordHash {
    /// The hash as text: another password or salt, another text. Nothing shows it.
    pub fn text(&self) -> String {
        match self {
            PasswordHash::Bcrypt(text) | PasswordHash::Argon2(text) | PasswordHash::ShaCrypt(text) => text.clone(),
            PasswordHash::Md5Crypt { magic, salt, letters } => format!("{magic}{salt}${letters}"),
            PasswordHash::Sha1(sum) => sum.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// Reads a hash; `Err` says why it is refused, and the remedy.
    pub fn parse(text: &str, decode: impl Fn(&str) -> Option<Vec<u8>>) -> Result<PasswordHash, String> {
        let parts: Vec<&str> = text.split('$').collect();
        match parts[..] {
            ["", "2a" | "2b" | "2x" | "2y", cost, rest] if rest.len() == 53 => {
                within(cost.parse().unwrap_or(u32::MAX), BCRYPT_COST_MAX, "cost")?;
                Ok(PasswordHash::Bcrypt(text.to_owned()))
            }
            ["", "argon2id" | "argon2i" | "argon2d", ..] => argon2_of(text),
            ["", "apr1", salt, letters] => md5_crypt_of("$apr1$", salt, letters),
            ["", "1", salt, letters] => md5_crypt_of("$1$", salt, letters),
            ["", "5" | "6", .., letters] if matches!(letters.len(), 43 | 86) => {
                within(sha_crypt_rounds(text), SHA_CRYPT_ROUNDS_MAX, "rounds")?;
                sha_crypt::PasswordHashRef::new(text).map_err(|_| BROKEN.to_owned())?;
                Ok(PasswordHash::ShaCrypt(text.to_owned()))
            }
            ["", _, ..] => Err(format!("a hash that is not known or broken; {REMEDY}")),
            _ => match text.strip_prefix("{SHA}") {
                Some(sum) => match decode(sum).and_then(|bytes| <[u8; 20]>::try_from(bytes).ok()) {
                    Some(sum) => Ok(PasswordHash::Sha1(sum)),
                    None => Err(BROKEN.to_owned()),
                },
                None if is_des(text) => Err(format!(
                    "a hash of crypt(3) with DES, which counts eight letters and is broken in hours; {REMEDY}"
                )),
                None => Err(format!("no hash of a password, or a password in clear; {REMEDY}")),
            },
        }
    }

    /// The name of the algorithm.
    pub fn algorithm(&self) -> &'static str {
        match self {
            PasswordHash::Bcrypt(_) => "bcrypt",
            PasswordHash::Argon2(_) => "argon2",
            PasswordHash::Md5Crypt { magic: "$1$", .. } => "md5-crypt",
            PasswordHash::Md5Crypt { .. } => "apr1",
            PasswordHash::Sha1(_) => "sha1",
            PasswordHash::ShaCrypt(_) => "sha-crypt",
        }
    }

    /// About how long a check takes, in microseconds: by the numbers of the hash, so that hashes can be compared.
    pub(crate) fn effort(&self) -> u64 {
        match self {
            PasswordHash::Sha1(_) => 1,
            PasswordHash::Md5Crypt { .. } => 500,
            PasswordHash::ShaCrypt(text) => u64::from(sha_crypt_rounds(text)) / 2,
            PasswordHash::Argon2(text) => {
                let hash = argon2::PasswordHash::new(text).ok();
                let params = hash.and_then(|hash| argon2::Params::try_from(&hash).ok());
                params.map_or(0, |params| u64::from(params.m_cost()) * u64::from(params.t_cost()))
            }
            PasswordHash::Bcrypt(text) => {
                let cost = text.split('$').nth(2).and_then(|cost| cost.parse().ok()).unwrap_or(0);
                50_u64 << BCRYPT_COST_MAX.min(cost)
            }
        }
    }

    /// Whether this is the password. Takes as long as the algorithm means it to: up to seconds.
    pub fn is_of(&self, password: &[u8]) -> bool {
        if password.len() > PASSWORD_BYTES_MAX {
            return false;
        }
        match self {
            PasswordHash::Bcrypt(text) => bcrypt::verify(password, text).unwrap_or(false),
            PasswordHash::Argon2(text) => {
                let hash = argon2::PasswordHash::new(text);
                hash.is_ok_and(|hash| {
                    argon2::PasswordVerifier::verify_password(&argon2::Argon2::default(), password, &hash).is_ok()
                })
            }
            PasswordHash::Md5Crypt { magic, salt, letters } => {
                md5_crypt(magic.as_bytes(), salt.as_bytes(), password).as_bytes().ct_eq(letters.as_bytes()).into()
            }
            PasswordHash::Sha1(sum) => {
                let made = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, password);
                made.as_ref().ct_eq(sum).into()
            }
            PasswordHash::ShaCrypt(text) => {
                let hash = sha_crypt::PasswordHashRef::new(text);
                hash.is_ok_and(|hash| sha_crypt::ShaCrypt::default().verify_password(password, hash).is_ok())
            }
        }
    }
}

/// The rounds of SHA-crypt; the most there are where they can't be read.
fn sha_crypt_rounds(text: &str) -> u32 {
    let rounds = text.split('$').find_map(|part| part.strip_prefix("rounds="));
    rounds.map_or(Ok(5_000), str::parse).unwrap_or(u32::MAX)
}

const BROKEN: &str = "a hash that is broken: make it anew";

const REMEDY: &str = "make one with `htpasswd -B FILE USER` (bcrypt)";

fn within(value: u32, max: u32, what: &str) -> Result<(), String> {
    match value <= max {
        true => Ok(()),
        false => Err(format!("a hash with {what} {value}, whose check would take too long: at most {max}")),
    }
}

fn argon2_of(text: &str) -> Result<PasswordHash, String> {
    let hash = argon2::PasswordHash::new(text).map_err(|_| BROKEN.to_owned())?;
    let params = argon2::Params::try_from(&hash).map_err(|_| BROKEN.to_owned())?;
    within(params.m_cost(), ARGON2_KIB_MAX, "memory in KiB")?;
    within(params.t_cost(), ARGON2_PASSES_MAX, "passes")?;
    Ok(PasswordHash::Argon2(text.to_owned()))
}

fn md5_crypt_of(magic: &'static str, salt: &str, letters: &str) -> Result<PasswordHash, String> {
    let are_letters = |text: &str| text.bytes().all(|byte| LETTERS.contains(&byte));
    match letters.len() == 22 && (1..=8).contains(&salt.len()) && are_letters(salt) && are_letters(letters) {
        true => Ok(PasswordHash::Md5Crypt { magic, salt: salt.to_owned(), letters: letters.to_owned() }),
        false => Err(BROKEN.to_owned()),
    }
}

fn is_des(text: &str) -> bool {
    text.len() == 13 && text.bytes().all(|byte| LETTERS.contains(&byte))
}

/// The letters that crypt(3) writes six bits as.
const LETTERS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The letters of MD5-crypt: a thousand rounds of MD5 over password, salt and the sum of the round before.
fn md5_crypt(magic: &[u8], salt: &[u8], password: &[u8]) -> String {
    let inner = Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut first = Md5::new().chain_update(password).chain_update(magic).chain_update(salt);
    for at in (0..password.len()).step_by(16) {
        let part = (password.len() - at).min(16);
        first.update(inner.get(..part).unwrap_or_default());
    }
    let mut length = password.len();
    while length > 0 {
        // The specification takes a byte of zero for each bit that is set, and the first letter for each that is not.
        first.update(if length & 1 == 1 { &[0][..] } else { password.get(..1).unwrap_or_default() });
        length >>= 1;
    }
    let mut sum = first.finalize();
    for round in 0..1_000 {
        let mut next = Md5::new();
        if round % 2 == 1 {
            next.update(password)
        } else {
            next.update(sum)
        };
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        if round % 2 == 1 {
            next.update(sum)
        } else {
            next.update(password)
        };
        sum = next.finalize();
    }
    let mut out = String::with_capacity(22);
    let byte = |at: usize| u32::from(sum.get(at).copied().unwrap_or_default());
    for [high, middle, low] in [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]] {
        push_letters(&mut out, byte(high) << 16 | byte(middle) << 8 | byte(low), 4);
    }
    push_letters(&mut out, byte(11), 2);
    out
}

fn push_letters(out: &mut String, mut bits: u32, count: usize) {
    for _ in 0..count {
        let letter = LETTERS.get((bits & 63) as usize).copied().unwrap_or(b'.');
        out.push(char::from(letter));
        bits >>= 6;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As if all texts were base64 of these twenty bytes: SHA-1 of `secret`.
    fn decode(_: &str) -> Option<Vec<u8>> {
        let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, b"secret");
        Some(sum.as_ref().to_vec())
    }

    fn parse(text: &str) -> Result<PasswordHash, String> {
        PasswordHash::parse(text, decode)
    }

    /// Hashes of `secret` by OpenSSL 3.5 (`openssl passwd`) and Apache's htpasswd 2.4.
    const OF_SECRET: [(&str, &str); 5] = [
        ("apr1", "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/"),
        ("sha-crypt", "$5$abcdefgh$gruCpC7VkOTspMQTTSAR8mtlO9Upms.fwqE5y16JVM."),
        (
            "sha-crypt",
            "$6$abcdefgh$ltjgWl6579NluT/Vi1nwEvcil.G5Nbc4NiXZaNGStk8PSwGfQv72N2CKPPrVACtLtip/cZ/1GM/O6IND4WQhG.",
        ),
        ("sha1", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="),
        ("bcrypt", "$2y$04$87Wi/5ciOjaLkbKKgvV9/uWnhz.ULwUQlhzqw5mbc1/3H3b5jQ9DO"),
    ];

    #[test]
    fn hashes_that_htpasswd_and_openssl_write() {
        for (algorithm, text) in &OF_SECRET {
            let hash = parse(text).unwrap();
            assert_eq!(hash.algorithm(), *algorithm);
            assert!(hash.is_of(b"secret") && !hash.is_of(b"Secret") && !hash.is_of(b""), "{text}");
            assert!(!format!("{hash:?}").contains(text.get(8..).unwrap()));
        }
    }

    #[test]
    fn hashes_that_are_refused() {
        for (text, wanted) in [
            ("rqXexS6ZhobKA", "DES"),
            ("secret", "in clear"),
            ("$2y$31$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234", "take too long"),
            ("$argon2id$v=19$m=9000000,t=2,p=1$c29tZXNhbHQ$RdescudvJCsgt3ub+b8dWRWJTmaaJObG", "take too long"),
            ("$argon2id$nonsense", "broken"),
            (
                "$6$rounds=900000000$abcdefgh$ltjgWl6579NluT/Vi1nwEvcil.G5Nbc4NiXZaNGStk8PSwGfQv72N2CKPPrVACtLtip/cZ/1GM/O6IND4WQhG.",
                "take too long",
            ),
            ("$apr1$abcdefgh$short", "broken"),
            ("$9$x", "not known"),
            ("", "no hash"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.contains(wanted), "{text}: {fault}");
        }
    }

    proptest! {
        #[test]
        fn random_texts_are_read_without_a_panic(text in "\\$?[0-9a-z{}$./=,]{0,80}", password: Vec<u8>) {
            if let Ok(hash) = parse(&text) {
                let _ = hash.is_of(&password);
            }
        }
    }
}
