//! A value that is shown nowhere.

use std::borrow::Cow;
use std::fmt;

/// A password or token. No page, log, dump or panic message shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a text from now on.
    pub fn new(text: String) -> Secret {
        Secret(text)
    }

    /// The text itself, for comparing and sending.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// A file that is longer holds no secret.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// The value behind `${ENV:NAME}` or `${FILE:PATH}`; any other text is the value itself.
pub(super) fn resolve(text: &str) -> Result<String, String> {
    let Some(inner) = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) else {
        return Ok(text.to_owned());
    };
    let value = match inner.split_once(':') {
        Some(("ENV", name)) => std::env::var(name).map_err(|_| format!("the environment has no variable {name}"))?,
        Some(("FILE", path)) => crate::lines::text_of(path.as_ref(), SECRET_BYTES_MAX)
            .map_err(|error| format!("cannot read {path}: {error}"))?,
        _ => return Err(format!("\"{text}\" is neither ${{ENV:NAME}} nor ${{FILE:PATH}}")),
    };
    Ok(value.trim_end_matches(['\r', '\n']).to_owned())
}

/// A line or a value as reports show it: with a star for each letter of a login in a URL, so that what is pointed at stays in its column.
pub(super) fn without_login(text: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = text.split_once("://") else { return Cow::Borrowed(text) };
    let (url, behind) = rest.split_at(rest.find(['"', '\'']).unwrap_or(rest.len()));
    match url.rsplit_once('@') {
        Some((login, host)) => Cow::Owned(format!("{scheme}://{}@{host}{behind}", "*".repeat(login.chars().count()))),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_in_urls_are_stars() {
        for (text, shown) in [
            ("http://joe:pe/ar@a.example/", "http://*********@a.example/"),
            ("url = \"socks5://joe@a\" # joe@b", "url = \"socks5://***@a\" # joe@b"),
            ("http://a.example", "http://a.example"),
            ("joe@a", "joe@a"),
        ] {
            assert_eq!(without_login(text), shown);
        }
    }

    #[test]
    fn a_secret_comes_from_the_environment_or_a_file_and_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "from a file\n").unwrap();
        assert_eq!(resolve(&format!("${{FILE:{}}}", file.display())).unwrap(), "from a file");
        assert_eq!(resolve("${ENV:CARGO_MANIFEST_DIR}").unwrap(), env!("CARGO_MANIFEST_DIR"));
        assert_eq!(resolve("plain").unwrap(), "plain");
        for bad in ["${ENV:NO_SUCH_VARIABLE_HERE}", "${FILE:/nonexistent}", "${nonsense}"] {
            assert!(resolve(bad).is_err(), "{bad}");
        }
        assert!(!format!("{:?}", Secret::new("abc".to_owned())).contains("abc"));
    }
}
