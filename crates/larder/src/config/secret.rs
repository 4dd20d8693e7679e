//! A value that is shown nowhere.

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

#[cfg(test)]
mod tests {
    use super::*;

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
