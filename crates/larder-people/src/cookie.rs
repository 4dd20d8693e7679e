//! Cookies of requests, as browsers send them (RFC 6265 section 4.2): the value of one, and a field without some of them.

/// The value of a cookie in these lines of `Cookie`. Names count by their case. `None` where there is none, and where there are several with
/// different values, because readers disagree about which one counts.
pub fn value<'f>(lines: impl Iterator<Item = &'f [u8]>, name: &str) -> Option<&'f [u8]> {
    let mut found: Option<&[u8]> = None;
    for (_, value) in lines.flat_map(pairs).filter(|(known, _)| *known == name.as_bytes()) {
        if found.is_some_and(|found| found != value) {
            return None;
        }
        found = Some(value);
    }
    found
}

/// A line of `Cookie` without those cookies; `None` where it has none of them.
pub fn without(line: &[u8], is_taken: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let is_left = |part: &&[u8]| !is_taken(pair(part).0);
    if parts(line).all(|part| is_left(&part)) {
        return None;
    }
    let left: Vec<&[u8]> =
        parts(line).filter(is_left).map(<[u8]>::trim_ascii).filter(|part| !part.is_empty()).collect();
    Some(left.join(&b"; "[..]))
}

fn parts(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b';')
}

fn pairs(line: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    parts(line).map(pair)
}

fn pair(part: &[u8]) -> (&[u8], &[u8]) {
    let part = part.trim_ascii();
    match part.iter().position(|byte| *byte == b'=') {
        Some(at) => {
            let (name, value) = part.split_at(at);
            (name.trim_ascii_end(), value.get(1..).unwrap_or_default().trim_ascii_start())
        }
        None => (part, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found<'l>(lines: &[&'l str], name: &str) -> Option<&'l str> {
        value(lines.iter().map(|line| line.as_bytes()), name).map(|value| std::str::from_utf8(value).unwrap())
    }

    fn left(line: &str) -> Option<String> {
        without(line.as_bytes(), |name| name.starts_with(b"own")).map(|left| String::from_utf8(left).unwrap())
    }

    #[test]
    fn one_value_counts() {
        for (lines, wanted) in [
            (&["a=1"][..], Some("1")),
            (&["b=2; a=1"], Some("1")),
            (&["b=2;a = 1 ;c"], Some("1")),
            (&["b=2", "a=1"], Some("1")),
            (&["a=1; a=1"], Some("1")),
            (&["a=x=y"], Some("x=y")),
            (&["a"], Some("")),
            (&["a=1; a=2"], None),
            (&["a=1", "a=2"], None),
            (&["A=1"], None),
            (&["xa=1; a.=2"], None),
            (&[], None),
        ] {
            assert_eq!(found(lines, "a"), wanted, "{lines:?}");
        }
    }

    #[test]
    fn others_are_left_as_they_were_sent() {
        for (line, wanted) in [
            ("a=1; b=2", None),
            ("own=1", Some("")),
            ("a=1; own=2; b=\"x y\"", Some("a=1; b=\"x y\"")),
            ("own.x=1;a=1;own=3", Some("a=1")),
            ("a=1; own", Some("a=1")),
            ("Own=1", None),
            ("a=own=1", None),
            ("", None),
        ] {
            assert_eq!(left(line).as_deref(), wanted, "{line}");
        }
    }

    proptest! {
        #[test]
        fn a_cookie_that_was_taken_off_is_not_found(line in "[a-z=; ]{0,40}") {
            if let Some(left) = without(line.as_bytes(), |name| name == b"a") {
                prop_assert_eq!(value([&*left].into_iter(), "a"), None);
                prop_assert_eq!(without(&left, |name| name == b"a"), None);
            }
        }
    }
}
