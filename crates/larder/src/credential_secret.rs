//! The secret of a store with which credentials are hashed, where they are a part of keys (decision 051). It lies beside the store, so that the hashes
//! are the same after a restart.

use aws_lc_rs::hmac;
use std::fmt::{self, Write as _};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The secret's file in the store folder.
const FILE: &str = "credential.key";
const SECRET_BYTES: usize = 32;
/// Bytes of the hash that stand in a key: two credentials never have the same.
const HASH_BYTES: usize = 16;

/// The secret with which hashes of credentials are made.
pub struct CredentialSecret {
    folder: Option<PathBuf>,
    key: OnceLock<Option<hmac::Key>>,
}

impl fmt::Debug for CredentialSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialSecret(hidden)")
    }
}

impl CredentialSecret {
    /// The secret of a store folder, or one of this process where there is no folder.
    pub fn new(folder: Option<PathBuf>) -> CredentialSecret {
        CredentialSecret { folder, key: OnceLock::new() }
    }

    /// The file is read, or made, for the first credential.
    fn key(&self) -> Option<&hmac::Key> {
        let read = || match &self.folder {
            Some(folder) => secret(&folder.join(FILE)),
            None => draw().map(|bytes| hmac::Key::new(hmac::HMAC_SHA256, &bytes)),
        };
        let warn =
            |error: &io::Error| tracing::warn!(%error, "no secret for credentials: nothing is stored by credential");
        self.key.get_or_init(|| read().inspect_err(warn).ok()).as_ref()
    }

    /// The hash of a credential; `None` where there is no secret to be had.
    pub fn hash(&self, value: &[u8]) -> Option<Box<str>> {
        let key = self.key()?;
        let mut text = String::new();
        for byte in &hmac::sign(key, value).as_ref()[..HASH_BYTES] {
            let _ = write!(text, "{byte:02x}");
        }
        Some(text.into())
    }
}

fn draw() -> io::Result<[u8; SECRET_BYTES]> {
    let mut bytes = [0; SECRET_BYTES];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| io::Error::other("cannot draw random bytes"))?;
    Ok(bytes)
}

fn secret(path: &Path) -> io::Result<hmac::Key> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(path)?,
        read => read?,
    };
    match bytes.len() {
        SECRET_BYTES => Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes)),
        len => Err(io::Error::other(format!("{} has {len} bytes, not {SECRET_BYTES}", path.display()))),
    }
}

/// Makes the file whole before it has its name: another process that begins at the same time finds one secret.
fn make(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = draw()?;
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&draft);
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?.write_all(&bytes)?;
    let linked = fs::hard_link(&draft, path);
    let _ = fs::remove_file(&draft);
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::read(path),
        linked => linked.map(|()| bytes.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_lies_closed_beside_the_store_and_stays() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let hash = |folder: &Path| CredentialSecret::new(Some(folder.to_owned())).hash(b"Bearer x");
        let first = hash(folder.path()).unwrap();
        assert_eq!(hash(folder.path()).as_ref(), Some(&first), "after a restart");
        assert_ne!(hash(tempfile::tempdir().unwrap().path()), Some(first), "in another store");
        let file = folder.path().join(FILE);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        fs::write(&file, "short").unwrap();
        assert_eq!(hash(folder.path()), None, "a secret that is not one");
    }
}
