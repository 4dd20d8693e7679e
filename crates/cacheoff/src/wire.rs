//! Parts of messages that both roles need: dates once a second, the signed echo by which a reply says which transaction of an
//! origin it comes from, entity tags.

use crate::object::{hex, unhex};
use crate::random::Seal;
use larder_wire::date::{Stamp, format_date};
use larder_wire::parse::HeadLimits;

/// How large a head may be.
pub const HEAD_LIMITS: HeadLimits =
    HeadLimits { head_bytes_max: 64 * 1024, target_bytes_max: 16 * 1024, fields_max: 128 };

/// The field in which a robot names its transaction, and in which an origin answers with its signed echo.
pub const ECHO: &str = "X-Xact";
/// The field in which an origin says that it spoils the answer on purpose, and how.
pub const FAULT: &str = "X-Fault";
/// `Cache-Control` of what no store may keep.
pub const UNCACHABLE: &str = "private,no-cache,no-store";
/// The path that calibrates a link: answered at once, with no body.
pub const CALIBRATE: &str = "/calibrate";

/// The `Date` of now, written anew when the second changes.
#[derive(Debug)]
pub struct Clock {
    /// Seconds since 1970.
    pub unix: u64,
    /// As a field value.
    pub date: [u8; 29],
}

impl Clock {
    /// At a time in seconds since 1970.
    pub fn at(unix: u64) -> Self {
        Self { unix, date: format_date(Stamp(unix)) }
    }

    /// Goes on to a time.
    pub fn set(&mut self, unix: u64) {
        if unix != self.unix {
            *self = Self::at(unix);
        }
    }
}

/// Names a transaction: the tag of the run and a number, whose upper 16 bits are the worker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xact {
    /// Tag of the run.
    pub tag: u32,
    /// Number of the transaction.
    pub number: u64,
}

impl Xact {
    /// As a field value of a request.
    pub fn write(&self, burden: Burden, out: &mut Vec<u8>) {
        self.write_name(out);
        if burden != Burden::default() {
            out.push(b'-');
            hex(burden.packed(), out);
        }
    }

    fn write_name(&self, out: &mut Vec<u8>) {
        hex(u64::from(self.tag), out);
        out.push(b'-');
        hex(self.number, out);
    }

    /// Reads a field value of a request.
    pub fn parse(value: &[u8]) -> Option<(Self, Burden)> {
        let (xact, rest) = Self::begin(value)?;
        if rest.is_empty() {
            return Some((xact, Burden::default()));
        }
        let (packed, rest) = unhex(rest.strip_prefix(b"-")?)?;
        rest.is_empty().then_some((xact, Burden::unpacked(packed)))
    }

    /// Reads the beginning of a field value, and says what follows it.
    fn begin(value: &[u8]) -> Option<(Self, &[u8])> {
        let (tag, rest) = unhex(value)?;
        let (number, rest) = unhex(rest.strip_prefix(b"-")?)?;
        Some((Self { tag: u32::try_from(tag).ok()?, number }, rest))
    }
}

/// The credentials and the body of a request, which must reach the origin as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burden {
    /// Digest of `Cookie`; 0 for none.
    pub cookie: u16,
    /// Digest of `Authorization`; 0 for none.
    pub authorization: u16,
    /// Bytes of the body, whose bytes follow from the number of the transaction.
    pub body_bytes: Option<u32>,
}

impl Burden {
    fn packed(self) -> u64 {
        let body = self.body_bytes.map_or(0, |bytes| bytes.saturating_add(1));
        u64::from(self.cookie) << 48 | u64::from(self.authorization) << 32 | u64::from(body)
    }

    fn unpacked(packed: u64) -> Self {
        let body_bytes = (packed as u32).checked_sub(1);
        Self { cookie: (packed >> 48) as u16, authorization: (packed >> 32) as u16, body_bytes }
    }
}

/// A way in which an origin spoils its answer on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Half of the body, then the end of the connection.
    Truncate,
    /// Half of the body, then a reset.
    Reset,
    /// Half of the body, then silence until the connection's idle limit.
    Stall,
    /// The declared length is larger than the body.
    LongLength,
    /// 503 instead of an answer.
    Unavailable,
    /// The origin breaks off anywhere in the body.
    Abort,
}

impl Fault {
    const ALL: [Self; 6] = [Self::Truncate, Self::Reset, Self::Stall, Self::LongLength, Self::Unavailable, Self::Abort];

    /// The word in the reply's field and in workloads.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Truncate => "truncate",
            Self::Reset => "reset",
            Self::Stall => "stall",
            Self::LongLength => "long-length",
            Self::Unavailable => "unavailable",
            Self::Abort => "abort",
        }
    }
}

/// The signature of an origin on its answer: `TAG-NUMBER-TIME-FAULT-MAC` in hexadecimal. A cache that keeps the answer
/// keeps the echo; it can move one to another answer, but it can't make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The transaction that the origin answered.
    pub xact: Xact,
    /// When the answer left the origin, in microseconds since the run began.
    pub at_us: u64,
    /// How the origin spoils the answer.
    pub fault: Option<Fault>,
}

impl Echo {
    /// As a field value, signed.
    pub fn write(&self, seal: &Seal, out: &mut Vec<u8>) {
        self.xact.write_name(out);
        for number in [self.at_us, self.fault_number(), self.mac(seal)] {
            out.push(b'-');
            hex(number, out);
        }
    }

    /// Reads a field value; `Err` has the transaction that an echo claims which no origin of this run has signed.
    pub fn parse(value: &[u8], seal: &Seal) -> Option<Result<Self, Xact>> {
        let (xact, rest) = Xact::begin(value)?;
        let signed = || {
            let (at_us, rest) = unhex(rest.strip_prefix(b"-")?)?;
            let (fault, rest) = unhex(rest.strip_prefix(b"-")?)?;
            let (mac, rest) = unhex(rest.strip_prefix(b"-")?)?;
            let fault = match fault {
                0 => None,
                number => Some(*Fault::ALL.get(usize::try_from(number).ok()? - 1)?),
            };
            let echo = Self { xact, at_us, fault };
            (rest.is_empty() && mac == echo.mac(seal)).then_some(echo)
        };
        Some(signed().ok_or(xact))
    }

    /// The second since 1970 in which the answer left, in a run that began at `epoch`.
    pub fn second(&self, epoch: u64) -> u64 {
        epoch.saturating_add(self.at_us / 1_000_000)
    }

    fn fault_number(&self) -> u64 {
        self.fault.map_or(0, |fault| fault as u64 + 1)
    }

    fn mac(&self, seal: &Seal) -> u64 {
        seal.sign([u64::from(self.xact.tag) << 8 | self.fault_number(), self.xact.number, self.at_us])
    }
}

/// A strong entity tag: which object, which version, which variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Seed of the object.
    pub seed: u64,
    /// The version.
    pub generation: u64,
    /// The variant.
    pub variant: u8,
}

impl Tag {
    /// As a field value, with its quotes.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(b'"');
        hex(self.seed, out);
        out.push(b'-');
        hex(self.generation, out);
        out.push(b'-');
        hex(u64::from(self.variant), out);
        out.push(b'"');
    }

    /// Reads a field value, and says whether it is the origin's to the letter. A cache that codes the body anew makes the
    /// tag weak, or adds the name of the coding (RFC 9110 section 8.8.3.3).
    pub fn parse(value: &[u8]) -> Option<(Self, bool)> {
        let strong = value.strip_prefix(b"W/");
        let (seed, rest) = unhex(strong.unwrap_or(value).strip_prefix(b"\"")?)?;
        let (generation, rest) = unhex(rest.strip_prefix(b"-")?)?;
        let (variant, rest) = unhex(rest.strip_prefix(b"-")?)?;
        let own = strong.is_none() && rest == b"\"";
        let tag = Self { seed, generation, variant: u8::try_from(variant).ok()? };
        (rest == b"\"" || rest == b"-gzip\"").then_some((tag, own))
    }
}

/// The cookie of a client, by its number.
pub fn cookie_of(client: u32) -> String {
    format!("id={client:x}")
}

/// The credentials of a robot at a forward proxy: user `robotN`, password `cacheoff-N` (RFC 7617).
pub fn proxy_login_of(client: u32) -> String {
    let mut value = "Basic ".to_owned();
    base64(format!("robot{client}:cacheoff-{client}").as_bytes(), &mut value);
    value
}

/// Appends bytes in Base64 (RFC 4648 section 4).
fn base64(bytes: &[u8], out: &mut String) {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for letter in 0..4 {
            let place = (bits >> (18 - 6 * letter) & 63) as usize;
            out.push(if letter <= three.len() { char::from(LETTERS[place]) } else { '=' });
        }
    }
}

/// The client whose own body a request with this `Cookie` gets: 0 for the body that is everybody's.
pub fn user_of(cookie: Option<&[u8]>) -> u64 {
    let number = cookie.and_then(|cookie| unhex(cookie.strip_prefix(b"id=")?));
    number.map_or(0, |(number, _)| number.saturating_add(1))
}

/// Writes a number in decimal.
pub fn decimal(value: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let (mut place, mut rest) = (20, value);
    loop {
        place -= 1;
        digits[place] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[place..]);
}

/// Writes a field line.
pub fn field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_login_is_the_one_that_any_other_program_would_send() {
        // As `printf 'robot7:cacheoff-7' | base64` has it; RFC 4648 section 10 for the three lengths.
        assert_eq!(proxy_login_of(7), "Basic cm9ib3Q3OmNhY2hlb2ZmLTc=");
        for (bytes, text) in [("f", "Zg=="), ("fo", "Zm8="), ("foobar", "Zm9vYmFy")] {
            let mut out = String::new();
            base64(bytes.as_bytes(), &mut out);
            assert_eq!(out, text);
        }
    }

    proptest! {
        #[test]
        fn names_and_tags_come_back(
            tag: u32, number: u64, seed: u64, generation: u64, variant: u8, cookie: u16, body in proptest::option::of(0..9u32),
        ) {
            let burden = Burden { cookie, authorization: 3 * (cookie & 1), body_bytes: body };
            let (xact, etag) = (Xact { tag, number }, Tag { seed, generation, variant });
            let (mut one, mut two, mut three) = (Vec::new(), Vec::new(), Vec::new());
            xact.write(burden, &mut one);
            etag.write(&mut two);
            decimal(number, &mut three);
            prop_assert_eq!(Xact::parse(&one), Some((xact, burden)));
            prop_assert_eq!(Tag::parse(&two), Some((etag, true)));
            prop_assert_eq!(Tag::parse(&[b"W/", &two[..]].concat()), Some((etag, false)));
            prop_assert_eq!(three, number.to_string().into_bytes());
        }

        #[test]
        fn an_echo_comes_back_and_no_other_passes_for_it(
            tag: u32, number: u64, at_us: u64, fault in proptest::option::of(0usize..6), place: usize, digit in 0usize..16,
        ) {
            let (seal, xact) = (Seal::random(), Xact { tag, number });
            let echo = Echo { xact, at_us, fault: fault.map(|fault| Fault::ALL[fault]) };
            let mut text = Vec::new();
            echo.write(&seal, &mut text);
            prop_assert_eq!(Echo::parse(&text, &seal), Some(Ok(echo)));
            prop_assert_eq!(Echo::parse(&text, &Seal::random()), Some(Err(xact)));
            let (place, digit) = (place % text.len(), b"0123456789abcdef"[digit]);
            if text[place] != b'-' && text[place] != digit {
                text[place] = digit;
                prop_assert!(!matches!(Echo::parse(&text, &seal), Some(Ok(_))));
            }
        }

        #[test]
        fn any_echo_can_be_read(value: Vec<u8>) {
            let _ = Echo::parse(&value, &Seal::random());
        }
    }
}
