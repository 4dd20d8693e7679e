//! Names of hosts: lower case, without the dot at the end, international ones in the form of the DNS (RFC 5891).

/// The longest name that a lookup takes, as [`larder_wire`'s hosts](https://www.rfc-editor.org/rfc/rfc1035#section-2.3.4) have it.
const NAME_BYTES_MAX: usize = 255;
/// RFC 1035 section 2.3.4.
const LABEL_BYTES_MAX: usize = 63;

/// A name in its normal form.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    len: u8,
}

impl Name {
    /// A name of a list: letters, digits, `-` and `_` in labels of 1 to 63 bytes. `None` for anything else, and for a name whose last label
    /// is a number, as that of an address.
    pub fn parse(text: &[u8]) -> Option<Name> {
        if !text.is_ascii() {
            let ascii = idna::domain_to_ascii(std::str::from_utf8(text).ok()?).ok()?;
            return Name::parse(ascii.as_bytes());
        }
        let name = Name::lowered(text)?;
        let mut last_is_number = false;
        for label in name.as_bytes().split(|&byte| byte == b'.') {
            let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            if label.is_empty() || label.len() > LABEL_BYTES_MAX || !label.iter().all(is_letter) {
                return None;
            }
            last_is_number = label.iter().all(u8::is_ascii_digit);
        }
        (!last_is_number).then_some(name)
    }

    /// The host of a request as it is compared: in lower case, without dots at its end. It may have any bytes, for a resolver may know names
    /// that no list has, below one that a list has. `None` where nothing is left or it is too long.
    pub fn lowered(text: &[u8]) -> Option<Name> {
        let end = text.iter().rposition(|&byte| byte != b'.')? + 1;
        let mut bytes = [0; NAME_BYTES_MAX];
        let to = bytes.get_mut(..end)?;
        to.copy_from_slice(&text[..end]);
        to.make_ascii_lowercase();
        Some(Name { bytes, len: u8::try_from(end).ok()? })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Whether it has one label.
    pub fn is_single_label(&self) -> bool {
        !self.as_bytes().contains(&b'.')
    }

    /// Where the names above it begin, the nearest first: `b.example.com` gives 2 and 10.
    pub fn above(&self) -> impl Iterator<Item = usize> + '_ {
        self.as_bytes().iter().enumerate().filter(|(_, byte)| **byte == b'.').map(|(at, _)| at + 1)
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<String> {
        Name::parse(text.as_bytes()).map(|name| format!("{name:?}"))
    }

    #[test]
    fn normal_forms() {
        for (text, wanted) in [
            ("Ads.Example.COM", Some("ads.example.com")),
            ("example.com.", Some("example.com")),
            ("_dmarc.a-b.example", Some("_dmarc.a-b.example")),
            ("bücher.example", Some("xn--bcher-kva.example")),
            ("BÜCHER.example.", Some("xn--bcher-kva.example")),
            ("localhost", Some("localhost")),
            ("", None),
            (".", None),
            (".com", None),
            ("a..b", None),
            ("a b.example", None),
            ("a/b", None),
            ("*.example.com", None),
            ("10.0.0.1", None),
            ("example.1", None),
            ("<html>", None),
            ("\u{fffd}\u{200b}.", None),
        ] {
            assert_eq!(shown(text).as_deref(), wanted, "{text}");
        }
        assert!(
            shown(&format!("{}.com", "a".repeat(63))).is_some() && shown(&format!("{}.com", "a".repeat(64))).is_none()
        );
        assert!(shown(&"a.".repeat(128)).is_some() && shown(&"a.".repeat(129)).is_none());
    }

    #[test]
    fn names_above() {
        let name = Name::parse(b"b.example.com").unwrap();
        assert_eq!(name.above().collect::<Vec<_>>(), [2, 10]);
        assert!(
            Name::parse(b"com").unwrap().above().next().is_none() && Name::parse(b"com").unwrap().is_single_label()
        );
        assert_eq!(Name::lowered(b"A~B.Example..").unwrap().as_bytes(), b"a~b.example");
    }
}
