//! The fields `Authorization` and `Proxy-Authorization` (RFC 9110 section 11.6.2).

/// A credential as it stands in a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization<'a> {
    /// The scheme, as it was written.
    pub scheme: &'a str,
    /// All behind it.
    pub rest: &'a str,
}

/// The parts of a credential of Basic (RFC 7617).
#[derive(Clone, PartialEq, Eq)]
pub struct Basic {
    /// The user.
    pub user: String,
    /// The password. It may be of any bytes.
    pub password: Vec<u8>,
}

impl std::fmt::Debug for Basic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Basic({}, hidden)", self.user)
    }
}

impl<'a> Authorization<'a> {
    /// Reads the value of a field.
    pub fn parse(value: &'a str) -> Option<Authorization<'a>> {
        let value = value.trim();
        let (scheme, rest) = value.split_once(' ').unwrap_or((value, ""));
        (!scheme.is_empty()).then(|| Authorization { scheme, rest: rest.trim() })
    }

    /// Whether it is of this scheme.
    pub fn is(&self, scheme: &str) -> bool {
        self.scheme.eq_ignore_ascii_case(scheme)
    }
}

impl Basic {
    /// Reads what stands behind the scheme, given a decoder of base64. A user has no control character, and a name.
    pub fn parse(rest: &str, decode: impl FnOnce(&str) -> Option<Vec<u8>>) -> Option<Basic> {
        let bytes = decode(rest)?;
        let at = bytes.iter().position(|byte| *byte == b':')?;
        let (user, password) = bytes.split_at(at);
        let user = std::str::from_utf8(user).ok()?;
        let is_name = !user.is_empty() && user.len() <= USER_BYTES_MAX && !user.contains(char::is_control);
        is_name.then(|| Basic { user: user.to_owned(), password: password.get(1..).unwrap_or_default().to_vec() })
    }
}

/// The longest name of a user, in bytes.
pub const USER_BYTES_MAX: usize = 256;

/// Parameters of one field; further ones make it unreadable.
const PARAMETERS_MAX: usize = 32;

/// Reads a list of parameters, `name=value` or `name="value"`; `None` where it is none or a name comes twice.
pub fn parameters(text: &str) -> Option<Vec<(String, String)>> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim().to_ascii_lowercase();
        let (value, after) = value_of(after.trim_start())?;
        let is_new = found.iter().all(|(known, _)| *known != name);
        if name.is_empty() || !is_new || found.len() == PARAMETERS_MAX {
            return None;
        }
        found.push((name, value));
        rest = after.trim_start();
        match rest.strip_prefix(',') {
            Some(further) => rest = further.trim_start(),
            None if rest.is_empty() => {}
            None => return None,
        }
    }
    Some(found)
}

fn value_of(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return Some((value.to_owned(), rest));
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, quoted.get(at + 1..)?)),
            '\\' => value.push(letters.next()?.1),
            letter => value.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn credentials_of_basic() {
        let read = |bytes: &[u8]| Basic::parse("", |_| Some(bytes.to_vec()));
        let found = read(b"ada:se:cret").unwrap();
        assert_eq!((found.user.as_str(), &*found.password), ("ada", &b"se:cret"[..]));
        assert_eq!(read(b"ada:").unwrap().password, b"");
        assert!(!format!("{found:?}").contains("se:cret"));
        for wrong in [&b"ada"[..], b":x", b"a\nb:x", b"\xff:x"] {
            assert!(read(wrong).is_none(), "{wrong:?}");
        }
        let field = Authorization::parse("basic  YTpi ").unwrap();
        assert!(field.is("Basic") && field.rest == "YTpi" && !field.is("Bas"));
        assert_eq!(Authorization::parse("  "), None);
    }

    #[test]
    fn lists_of_parameters() {
        let read = |text: &str| {
            parameters(text)
                .map(|found| found.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("|"))
        };
        assert_eq!(read(r#"a="x, \"y\"", B=z , c = 1"#).as_deref(), Some(r#"a=x, "y"|b=z|c=1"#));
        assert_eq!(read("").as_deref(), Some(""));
        for wrong in ["a", "a=\"x", "a=1, a=2", "a=1 b=2", "=x"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn random_texts_are_read_without_a_panic(text: String) {
            let _ = (parameters(&text), Authorization::parse(&text));
        }
    }
}
