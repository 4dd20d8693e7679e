//! The two quotings of helper lines: percent signs as RFC 1738 has them, and quotation marks.

/// Appends a field in which no byte can end the field or the line: bytes that RFC 1738 section 2.2 calls unsafe, control characters,
/// space, `%` and all that is not ASCII become `%xx`.
pub fn push(out: &mut Vec<u8>, field: &[u8]) {
    for &byte in field {
        match is_plain(byte) {
            true => out.push(byte),
            false => push_percent(out, byte),
        }
    }
}

/// Appends a field as it is, but for bytes that would end the field or the line. For URLs, whose percent signs stay what they are.
pub fn push_bare(out: &mut Vec<u8>, field: &[u8]) {
    for &byte in field {
        match byte > b' ' && byte != 0x7f {
            true => out.push(byte),
            false => push_percent(out, byte),
        }
    }
}

fn push_percent(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or(b'0');
    out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic()
        && !matches!(
            byte,
            b'<' | b'>' | b'"' | b'#' | b'%' | b'{' | b'}' | b'|' | b'\\' | b'^' | b'~' | b'[' | b']' | b'`' | b'\''
        )
}

/// The bytes behind `%xx`. A percent sign without two digits stays.
pub fn decode(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        match (first, after) {
            (b'%', [high, low, further @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                out.push(digit_of(*high) << 4 | digit_of(*low));
                rest = further;
            }
            _ => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

fn digit_of(letter: u8) -> u8 {
    match letter {
        b'0'..=b'9' => letter - b'0',
        b'a'..=b'f' => letter - b'a' + 10,
        b'A'..=b'F' => letter - b'A' + 10,
        _ => 0,
    }
}

/// One word of a line and the rest behind it: up to a space, or in quotation marks, in which a backslash takes the next byte as it is.
/// `None` where a quotation mark is not closed.
pub fn word(line: &[u8]) -> Option<(Vec<u8>, bool, &[u8])> {
    let Some(quoted) = line.strip_prefix(b"\"") else {
        let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
        let (word, rest) = line.split_at(end);
        return Some((word.to_vec(), false, rest.trim_ascii_start()));
    };
    let mut out = Vec::new();
    let mut bytes = quoted.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some((out, true, quoted.get(at + 1..).unwrap_or_default().trim_ascii_start())),
            b'\\' => out.push(*bytes.next()?.1),
            byte => out.push(*byte),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_could_end_a_field_is_escaped() {
        for (field, wanted) in [
            ("plain-._*!$(),;/?:@=&", "plain-._*!$(),;/?:@=&"),
            ("a b", "a%20b"),
            ("100%", "100%25"),
            ("a\nb\r", "a%0Ab%0D"),
            ("\"q\" <#>", "%22q%22%20%3C%23%3E"),
            ("ü", "%C3%BC"),
            ("", ""),
        ] {
            let mut out = Vec::new();
            push(&mut out, field.as_bytes());
            assert_eq!(String::from_utf8(out).unwrap(), wanted, "{field:?}");
        }
        let mut out = Vec::new();
        push_bare(&mut out, b"http://a/%20?x= \n");
        assert_eq!(out, b"http://a/%20?x=%20%0A");
    }

    #[test]
    fn words_of_a_line() {
        for (line, wanted) in [
            ("a b", Some(("a", false, "b"))),
            ("a", Some(("a", false, ""))),
            ("\"a b\" c", Some(("a b", true, "c"))),
            (r#""a\"b\\" c"#, Some((r#"a"b\"#, true, "c"))),
            ("\"a", None),
            ("\"a\\", None),
            ("\"\"x", Some(("", true, "x"))),
        ] {
            let found = word(line.as_bytes());
            let wanted = wanted.map(|(word, quoted, rest)| (word.as_bytes().to_vec(), quoted, rest.as_bytes()));
            assert_eq!(found, wanted, "{line}");
        }
    }

    proptest! {
        #[test]
        fn every_field_comes_back(field: Vec<u8>) {
            let mut out = Vec::new();
            push(&mut out, &field);
            prop_assert!(out.iter().all(u8::is_ascii_graphic));
            prop_assert_eq!(decode(&out), field);
        }

        #[test]
        fn random_bytes_are_read_without_a_panic(line: Vec<u8>) {
            let _ = (word(&line), decode(&line));
        }
    }
}
