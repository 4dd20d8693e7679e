//! Places in traces, and the field `traceparent` that carries them (W3C Trace Context, section 3.2).

use super::draws::{Draws, mixed};
use super::ids::{SpanId, TraceId};
use larder_wire::Fields;

/// Whether the sender of a `traceparent` records its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// The sender records it.
    Sampled,
    /// The sender does not record it, or is not known to.
    NotSampled,
}

/// The content of a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The trace.
    pub trace: TraceId,
    /// The span of the sender.
    pub span: SpanId,
    /// Its flag.
    pub flag: Flag,
}

/// The field of a message that says its place in a trace.
pub const TRACEPARENT: &str = "traceparent";
/// Further state of vendors; void without a valid `traceparent` (section 3.3).
pub const TRACESTATE: &str = "tracestate";

/// Version 00 is exactly as long; a later one goes on after a hyphen.
const LENGTH: usize = 55;

impl Parent {
    /// The `traceparent` of a message. Two of them, or a malformed one, count as none.
    pub fn of(fields: &Fields) -> Option<Parent> {
        let mut all = fields.get_all(TRACEPARENT);
        let only = all.next()?;
        if all.next().is_some() {
            return None;
        }
        Parent::parse(std::str::from_utf8(only).ok()?.trim_matches([' ', '\t']))
    }

    /// Reads a value. Of a later version only what version 00 has is read (section 4.3 of the specification's first level).
    pub fn parse(text: &str) -> Option<Parent> {
        if !text.is_ascii() || text.len() < LENGTH {
            return None;
        }
        let (known, rest) = text.split_at(LENGTH);
        let mut parts = known.split('-');
        let version = hex(parts.next()?, 2)?;
        let trace = hex(parts.next()?, 32).filter(|&id| id != 0)?;
        let span = hex(parts.next()?, 16).filter(|&id| id != 0)?;
        let flags = hex(parts.next()?, 2)?;
        let ends_well = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest.starts_with('-'),
        };
        if parts.next().is_some() || !ends_well {
            return None;
        }
        let flag = if flags & 1 == 1 { Flag::Sampled } else { Flag::NotSampled };
        Some(Parent { trace: TraceId(trace), span: SpanId(u64::try_from(span).ok()?), flag })
    }
}

/// Exactly so many digits, in lower case.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let proper = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let fits = text.len() == digits && text.bytes().all(proper);
    fits.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

/// A span that is recorded: of a request, or of a fetch for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// Its trace.
    pub trace: TraceId,
    /// Its name.
    pub span: SpanId,
    /// The span that it is a part of.
    pub parent: Option<SpanId>,
    children: u64,
}

impl SpanContext {
    /// The place of a request: below its sender's span, or the first of a trace.
    pub fn begin(parent: Option<Parent>, draws: &Draws) -> SpanContext {
        let trace = parent.map_or_else(|| draws.trace(), |parent| parent.trace);
        SpanContext { trace, span: draws.span(), parent: parent.map(|parent| parent.span), children: 0 }
    }

    /// The place of a part of it.
    pub fn child(&mut self) -> SpanContext {
        self.children += 1;
        let drawn = mixed(self.span.0 ^ mixed(self.children));
        SpanContext { trace: self.trace, span: SpanId(drawn.max(1)), parent: Some(self.span), children: 0 }
    }

    /// Writes the context into the fields of a request to an origin, in place of the client's.
    pub fn tell(&self, fields: &mut Fields, parent_was_valid: bool) {
        fields.remove(TRACEPARENT);
        if !parent_was_valid {
            fields.remove(TRACESTATE);
        }
        fields.push(TRACEPARENT, format!("00-{}-{}-01", self.trace, self.span));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: u128 = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
    const SPAN: u64 = 0xb7ad_6b71_6920_3331;

    #[test]
    fn values() {
        let sampled = Some(Flag::Sampled);
        let not = Some(Flag::NotSampled);
        for (text, flag) in [
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", sampled),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", not),
            // Other flags are not ours to read.
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff", sampled),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02", not),
            // Later versions may say more.
            ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", sampled),
            ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-the-future-brings", sampled),
            ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.more", None),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", None),
            ("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
            ("00-00000000000000000000000000000000-b7ad6b7169203331-01", None),
            ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", None),
            ("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", None),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1", None),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g", None),
            ("00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01", None),
            ("00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01", None),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033-1-01", None),
            ("+0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333é-01", None),
            ("00", None),
            ("", None),
        ] {
            let expected = flag.map(|flag| Parent { trace: TraceId(TRACE), span: SpanId(SPAN), flag });
            assert_eq!(Parent::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn one_field_counts_and_two_do_not() {
        let mut fields = Fields::new();
        assert_eq!(Parent::of(&fields), None);
        fields.push("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 ");
        assert!(Parent::of(&fields).is_some());
        fields.push("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        assert_eq!(Parent::of(&fields), None);
    }

    #[test]
    fn what_is_told_can_be_read_back() {
        let draws = Draws::default();
        let mut place = SpanContext::begin(None, &draws);
        assert_eq!(place.parent, None);
        let (first, second) = (place.child(), place.child());
        assert_ne!(first.span, second.span);
        for (valid, state) in [(true, 1), (false, 0)] {
            let mut fields = Fields::new();
            fields.push("traceparent", "what the client said");
            fields.push("tracestate", "vendor=1");
            first.tell(&mut fields, valid);
            let told = Parent::of(&fields).unwrap();
            assert_eq!(told, Parent { trace: place.trace, span: first.span, flag: Flag::Sampled });
            assert_eq!(fields.count("tracestate"), state);
        }
        assert_eq!(first.parent, Some(place.span));
        let inside = Parent { trace: TraceId(7), span: SpanId(9), flag: Flag::Sampled };
        let place = SpanContext::begin(Some(inside), &draws);
        assert_eq!((place.trace, place.parent), (TraceId(7), Some(SpanId(9))));
    }
}
