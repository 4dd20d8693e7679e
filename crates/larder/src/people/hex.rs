//! Bytes as text of small hexadecimal digits, and back: one spelling for each, so that none is taken for another one.

use std::fmt::Write as _;

pub(super) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes of such a text; `None` where it is none.
pub(super) fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = || pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    rest.is_empty().then(bytes).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_has_one_spelling() {
        assert_eq!(bytes_of(&hex(&[0, 9, 10, 255])), Some(vec![0, 9, 10, 255]));
        assert_eq!(bytes_of(""), Some(Vec::new()));
        for wrong in ["0", "000", "0A", "0g", " 0", "+1", "\u{e4}"] {
            assert_eq!(bytes_of(wrong), None, "{wrong}");
        }
    }
}
