//! Content codings that this cache itself gives to responses it stores (RFC 9110 section 8.4): which one a request gets.
//!
//! A response that is stored coded, and one that might have been, varies by the choice that [`Offer::chosen`] makes of a
//! request, not by the bytes of its `Accept-Encoding`: there are as many variants of it as there are codings, and one more.
//! The heads of such responses are the matter of [`super::coded`].

use larder_wire::Fields;
use larder_wire::directives::CacheControl;
use larder_wire::fields::trim;

/// A coding that this cache gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// `gzip` (RFC 1952).
    Gzip,
    /// `br` (RFC 7932).
    Brotli,
    /// `zstd` (RFC 8878).
    Zstd,
}

impl Coding {
    /// All of them.
    pub const ALL: [Coding; 3] = [Coding::Gzip, Coding::Brotli, Coding::Zstd];

    /// The name in `Content-Encoding` and `Accept-Encoding`.
    pub fn as_str(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
        }
    }

    /// The coding of this name, in any case; `x-gzip` is `gzip` (RFC 9110 section 8.4.1.3).
    pub fn parse(name: &[u8]) -> Option<Coding> {
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Coding::Gzip);
        }
        Coding::ALL.into_iter().find(|coding| name.eq_ignore_ascii_case(coding.as_str().as_bytes()))
    }
}

/// The codings that are offered, the preferred one first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer([Option<Coding>; Coding::ALL.len()]);

/// The word for the choice of no coding.
const IDENTITY: &str = "identity";

/// Before the offer, in the name of what a response varies by: `/` stands in no field name.
const BY_CHOICE: &str = "accept-encoding/";
/// Before the offer, where the origin chose the response by the codings that it was offered.
const BY_ACCEPTED: &str = "accept-encoding//";

impl Offer {
    /// Offers one coding more, after the others; false where it is offered already.
    pub fn push(&mut self, coding: Coding) -> bool {
        if self.iter().any(|offered| offered == coding) {
            return false;
        }
        let Some(free) = self.0.iter_mut().find(|place| place.is_none()) else { return false };
        *free = Some(coding);
        true
    }

    /// The codings.
    pub fn iter(&self) -> impl Iterator<Item = Coding> + use<> {
        self.0.into_iter().flatten()
    }

    /// Nothing is offered.
    pub fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }

    /// The coding that a request with these fields gets (RFC 9110 section 12.5.3); `None` for none: where it names none, does
    /// not want any of them, or prefers `identity`. A request with `no-transform` gets none, and neither does one with
    /// `Authorization`: the length of what only one client can see must not tell others of it.
    pub fn chosen(&self, fields: &Fields) -> Option<Coding> {
        let accepted = Accepted::of(fields);
        let weighed = self.iter().map(|coding| (coding, accepted.weight(coding)));
        // Of equal weights the first counts.
        let (best, weight) = weighed.reduce(|best, next| if next.1 > best.1 { next } else { best })?;
        let identity = accepted.identity.unwrap_or(0);
        let is_plain = fields.contains("Authorization")
            || (fields.contains("Cache-Control") && CacheControl::of(fields).no_transform);
        (weight > 0 && weight >= identity && !is_plain).then_some(best)
    }

    /// The offered codings that a request with these fields accepts, as `Accept-Encoding` for its origin; `identity` where it
    /// accepts none.
    pub fn accepted(&self, fields: &Fields) -> Vec<u8> {
        let mut names = Vec::new();
        self.write_accepted(fields, &mut names);
        names
    }

    fn write_accepted(&self, fields: &Fields, out: &mut Vec<u8>) {
        let (accepted, start) = (Accepted::of(fields), out.len());
        for coding in self.iter().filter(|&coding| accepted.weight(coding) > 0) {
            if out.len() > start {
                out.extend_from_slice(b", ");
            }
            out.extend_from_slice(coding.as_str().as_bytes());
        }
        if out.len() == start {
            out.extend_from_slice(IDENTITY.as_bytes());
        }
    }

    fn of_names(names: &str) -> Offer {
        let mut offer = Offer::default();
        names.split(',').filter_map(|name| Coding::parse(name.as_bytes())).for_each(|coding| _ = offer.push(coding));
        offer
    }

    fn names(&self) -> String {
        self.iter().map(Coding::as_str).collect::<Vec<_>>().join(",")
    }
}

/// The weights that `Accept-Encoding` gives, in thousandths; `None` for what it does not name.
#[derive(Default)]
struct Accepted {
    by_name: [Option<u16>; Coding::ALL.len()],
    identity: Option<u16>,
    others: Option<u16>,
}

impl Accepted {
    fn of(fields: &Fields) -> Accepted {
        let mut accepted = Accepted::default();
        for member in fields.members("Accept-Encoding") {
            let mut parts = member.split(|&byte| byte == b';').map(trim);
            let name = parts.next().unwrap_or_default();
            // A weight that can't be read is none that permits anything.
            let weight = parts.next().map_or(Some(1000), weight).filter(|_| parts.next().is_none()).unwrap_or(0);
            let place = match Coding::parse(name) {
                Some(coding) => &mut accepted.by_name[coding as usize],
                None if name == b"*" => &mut accepted.others,
                None if name.eq_ignore_ascii_case(IDENTITY.as_bytes()) => &mut accepted.identity,
                None => continue,
            };
            place.get_or_insert(weight);
        }
        accepted
    }

    fn weight(&self, coding: Coding) -> u16 {
        self.by_name[coding as usize].or(self.others).unwrap_or(0)
    }
}

/// `q=` with up to three decimals, in thousandths (RFC 9110 section 12.4.2).
fn weight(part: &[u8]) -> Option<u16> {
    // The shortest spelling: `0`, `1` or `0.` and decimals, of which those that are not said are zeros.
    let mut digits = super::weight::weight(part)?.iter().filter(|byte| byte.is_ascii_digit()).map(|digit| digit - b'0');
    Some((0..4).fold(0, |weight, _| weight * 10 + u16::from(digits.next().unwrap_or(0))))
}

/// Whether a request with these fields may get a response that has no coding (RFC 9110 section 12.5.3).
pub(super) fn accepts_uncoded(fields: &Fields) -> bool {
    let accepted = Accepted::of(fields);
    accepted.identity.or(accepted.others) != Some(0)
}

/// Whether a response varies by this and not by a field alone. A look at one byte rules out most names.
pub(super) fn is_offer(name: &str) -> bool {
    name.as_bytes().get(BY_CHOICE.len() - 1) == Some(&b'/')
}

/// The name for a response that varies by the choice of a coding.
pub(super) fn name_by_choice(offer: &Offer) -> String {
    format!("{BY_CHOICE}{}", offer.names())
}

/// The name for a response that its origin chose by the codings that it was offered.
pub(super) fn name_by_accepted(offer: &Offer) -> String {
    format!("{BY_ACCEPTED}{}", offer.names())
}

/// Writes the value of a request for such a name.
pub(super) fn write_value(name: &str, fields: &Fields, out: &mut Vec<u8>) {
    match name.strip_prefix(BY_ACCEPTED) {
        Some(names) => Offer::of_names(names).write_accepted(fields, out),
        None => {
            let chosen = Offer::of_names(name.get(BY_CHOICE.len()..).unwrap_or_default()).chosen(fields);
            out.extend_from_slice(chosen.map_or(IDENTITY, Coding::as_str).as_bytes());
        }
    }
}

/// Whether a line with such a name and its value is that of the response for requests for which no coding is chosen.
pub(super) fn is_for_uncoded(line: &[u8]) -> bool {
    !line.starts_with(BY_ACCEPTED.as_bytes()) && line.ends_with(b":identity\n")
}

/// Whether the name is one of a response that this cache has coded, or might have.
pub(super) fn is_by_choice(name: &str) -> bool {
    is_offer(name) && !name.starts_with(BY_ACCEPTED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn offer(names: &str) -> Offer {
        Offer::of_names(names)
    }

    fn fields(lines: &str) -> Fields {
        let mut fields = Fields::new();
        for line in lines.split('|').filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').unwrap_or(("Accept-Encoding", line));
            fields.push(name, value.trim());
        }
        fields
    }

    #[test]
    fn the_coding_is_chosen_by_weight_and_then_by_the_order_of_the_offer() {
        let rows = [
            // RFC 9110 section 12.5.3.
            ("", "identity"),
            ("Accept-Encoding:", "identity"),
            ("gzip", "gzip"),
            ("gzip, deflate, br, zstd", "zstd"),
            ("gzip|br", "br"),
            ("GZIP, x-gzip;q=0", "gzip"),
            ("x-gzip", "gzip"),
            ("br;q=0.8, gzip;q=0.9", "gzip"),
            ("br;q=0.5, gzip;q=0.500", "br"),
            ("br ; q=0, gzip ;q=0.001", "gzip"),
            ("deflate, compress", "identity"),
            ("*", "zstd"),
            ("*;q=0", "identity"),
            ("zstd;q=0, *", "br"),
            ("*;q=0.5, gzip;q=0.4", "zstd"),
            // An origin that refuses to answer is of no use: identity is sent all the same.
            ("identity;q=0", "identity"),
            ("identity;q=0, br", "br"),
            ("identity;q=1, *;q=0", "identity"),
            ("identity, gzip;q=0.5", "identity"),
            ("identity;q=0.5, gzip;q=0.5", "gzip"),
            // Weights that are none.
            ("gzip;q=2", "identity"),
            ("gzip;q=1.001", "identity"),
            ("gzip;q=", "identity"),
            ("gzip;q=0.1234", "identity"),
            ("gzip;level=9", "identity"),
            ("gzip;q=0.5;x=1", "identity"),
            ("br|Cache-Control: no-transform", "identity"),
            ("br|Cache-Control: max-age=0", "br"),
            ("br|Authorization: Basic x", "identity"),
        ];
        for (lines, expected) in rows {
            let chosen = offer("zstd,br,gzip").chosen(&fields(lines));
            assert_eq!(chosen.map_or(IDENTITY, Coding::as_str), expected, "{lines}");
        }
        assert_eq!(Offer::default().chosen(&fields("*")), None);
        assert_eq!(offer("gzip").chosen(&fields("br, *;q=0.1")), Some(Coding::Gzip));
    }

    #[test]
    fn an_origin_is_offered_what_both_have() {
        for (lines, expected) in [
            ("", "identity"),
            ("gzip, deflate, br", "br, gzip"),
            ("gzip;q=0.1, zstd", "zstd, gzip"),
            ("*, br;q=0", "zstd, gzip"),
            ("deflate", "identity"),
        ] {
            assert_eq!(offer("zstd,br,gzip").accepted(&fields(lines)), expected.as_bytes(), "{lines}");
        }
    }

    #[test]
    fn a_response_without_a_coding_may_be_refused() {
        for (lines, accepts) in [
            ("", true),
            ("gzip", true),
            ("gzip, *;q=0", false),
            ("gzip, identity;q=0", false),
            ("gzip, *;q=0, identity;q=0.1", true),
            ("gzip, *;q=0.1", true),
            ("gzip, identity;q=2", false),
        ] {
            assert_eq!(accepts_uncoded(&fields(lines)), accepts, "{lines}");
        }
    }

    #[test]
    fn weights_are_numbers() {
        for (part, expected) in [
            ("q=1", Some(1000)),
            ("Q=0.5", Some(500)),
            ("q=0.050", Some(50)),
            ("q=0.", Some(0)),
            ("q=1.001", None),
            ("q=.5", None),
        ] {
            assert_eq!(weight(part.as_bytes()), expected, "{part}");
        }
    }

    proptest! {
        /// A client chooses among a few, however it spells what it accepts.
        #[test]
        fn there_are_few_variants(value in "[a-z*;=,. 0-9-]{0,60}|(gzip|br|zstd|identity|\\*)(;q=[01](\\.[0-9]{0,4})?)?(, ?(gzip|br|zstd|identity|\\*)(;q=[01](\\.[0-9]{0,3})?)?){0,5}") {
            let offer = offer("zstd,br,gzip");
            let fields = fields(&format!("Accept-Encoding: {value}"));
            let value_of = |name: String| {
                let mut value = Vec::new();
                write_value(&name, &fields, &mut value);
                String::from_utf8(value).unwrap()
            };
            let chosen = value_of(name_by_choice(&offer));
            prop_assert!([IDENTITY, "gzip", "br", "zstd"].contains(&&*chosen));
            let accepted = value_of(name_by_accepted(&offer));
            // It is chosen from what is accepted.
            prop_assert!(chosen == IDENTITY || accepted.split(", ").any(|name| name == chosen), "{} {}", chosen, accepted);
        }
    }
}
