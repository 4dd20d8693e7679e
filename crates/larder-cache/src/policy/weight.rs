//! Weights of what a request accepts (RFC 9110 section 12.4.2).

/// The value of `q=`, without zeros that say nothing; `None` for any other parameter or a malformed weight.
pub(super) fn weight(part: &[u8]) -> Option<&[u8]> {
    let (b"q=" | b"Q=", value) = part.split_at_checked(2)? else { return None };
    let valid = match value {
        [b'0' | b'1'] => true,
        [b'0', b'.', decimals @ ..] => decimals.len() <= 3 && decimals.iter().all(u8::is_ascii_digit),
        [b'1', b'.', decimals @ ..] => decimals.len() <= 3 && decimals.iter().all(|&digit| digit == b'0'),
        _ => false,
    };
    if !valid {
        return None;
    }
    let mut short = value;
    while let [rest @ .., b'0' | b'.'] = short
        && short.len() > 1
    {
        short = rest;
    }
    Some(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_have_one_spelling() {
        let rows = [
            ("q=1", Some("1")),
            ("q=1.000", Some("1")),
            ("Q=1.", Some("1")),
            ("q=0", Some("0")),
            ("q=0.0", Some("0")),
            ("q=0.50", Some("0.5")),
            ("q=0.05", Some("0.05")),
            ("q=10", None),
            ("q=1.5", None),
            ("q=", None),
            ("x=1", None),
        ];
        for (part, expected) in rows {
            assert_eq!(weight(part.as_bytes()), expected.map(str::as_bytes), "{part}");
        }
    }
}
