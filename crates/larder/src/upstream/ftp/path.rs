//! The path of an ftp URL as a server is asked for it (RFC 1738 section 3.2.2, RFC 3986 section 2.1).

/// A file or folder, relative to the folder in which a login begins unless it begins with a slash.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FtpPath {
    /// One character for each byte (Latin-1), as file names are bytes.
    pub name: String,
    /// The URL ends with a slash, or has no path at all: the contents are asked for.
    pub is_folder: bool,
}

impl FtpPath {
    /// The path that this target means: encodings undone, `;type=` left out (all is sent as it is), and `%2F` at the beginning for the
    /// root of the server. An error says what is wrong with it.
    pub fn of(target: &str) -> Result<FtpPath, &'static str> {
        let written = target.strip_prefix('/').unwrap_or(target);
        let written = match written.rsplit_once(";type=") {
            Some((path, "a" | "A" | "i" | "I" | "d" | "D")) => path,
            _ => written,
        };
        let name = decode(written).ok_or("a % in the path begins no encoding")?;
        if name.chars().any(|letter| letter.is_control()) {
            return Err("the path has a control character in it, which would end the command to the server");
        }
        if name.split('/').any(|part| part == "." || part == "..") {
            return Err("the path has dot segments; ask for the folder itself");
        }
        let is_folder = name.is_empty() || name.ends_with('/');
        let trimmed = name.trim_end_matches('/');
        let name = if trimmed.is_empty() && !name.is_empty() { "/" } else { trimmed };
        Ok(FtpPath { name: name.to_owned(), is_folder })
    }
}

/// Bytes as characters of the same number.
pub(super) fn latin1(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// Characters as bytes of the same number; `None` where one has none.
pub(super) fn bytes_of(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|letter| u8::try_from(u32::from(letter)).ok()).collect()
}

fn decode(written: &str) -> Option<String> {
    let mut name = String::with_capacity(written.len());
    let mut rest = written.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        match first {
            b'%' => {
                let (high, low) = (char::from(*behind.first()?), char::from(*behind.get(1)?));
                name.push(char::from_u32(high.to_digit(16)? << 4 | low.to_digit(16)?)?);
                rest = &behind[2..];
            }
            byte => name.push(char::from(*byte)),
        }
    }
    Some(name)
}

/// Appends a name as a segment of a URL's path.
pub(super) fn encode(name: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in name {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let digit = |of: u8| char::from(DIGITS[usize::from(of & 15)]);
            out.extend(['%', digit(byte >> 4), digit(byte)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_relative_to_the_login_and_names_a_folder_by_its_last_slash() {
        for (target, name, is_folder) in [
            ("/", "", true),
            ("/pub/", "pub", true),
            ("/pub/a.iso", "pub/a.iso", false),
            ("/pub/a.iso;type=i", "pub/a.iso", false),
            ("/a;type=x", "a;type=x", false),
            ("/%2Fetc/motd", "/etc/motd", false),
            ("/%2f", "/", true),
            ("//", "/", true),
            ("/a%20b?c", "a b?c", false),
            ("/%c3%a4", "\u{c3}\u{a4}", false),
        ] {
            let path = FtpPath::of(target).unwrap_or_else(|wrong| panic!("{target}: {wrong}"));
            assert_eq!((path.name.as_str(), path.is_folder), (name, is_folder), "{target}");
        }
    }

    #[test]
    fn no_path_adds_a_command_or_climbs() {
        for target in
            ["/a%0d%0aDELE%20b", "/a%00", "/%0a", "/a/../b", "/..", "/.%2e/x", "/%", "/%g0", "/a%2", "/a%7f", "/%85"]
        {
            assert!(FtpPath::of(target).is_err(), "{target}");
        }
    }

    #[test]
    fn names_survive_a_link() {
        let name: Vec<u8> = (32..=255).filter(|byte| !(127..160).contains(byte) && *byte != b'/').collect();
        let mut link = String::from("/x");
        encode(&name, &mut link);
        assert_eq!(FtpPath::of(&link).ok().and_then(|path| bytes_of(&path.name)), Some([b"x", &*name].concat()));
    }
}
