//! Priorities of requests (RFC 9218).

/// Urgencies are numbers below this.
pub const URGENCIES: usize = 8;

/// The urgency of a request that states none (RFC 9218 section 4.1).
pub const URGENCY_AT_FIRST: u8 = 3;

/// The urgency in a value of `Priority` (RFC 9218 section 4.1), in which 0 goes first; `None` where it names none.
pub fn urgency(value: &[u8]) -> Option<u8> {
    value.split(|byte| *byte == b',').find_map(|member| match member.trim_ascii() {
        [b'u', b'=', digit @ b'0'..=b'7'] => Some(digit - b'0'),
        _ => None,
    })
}
