//! The keys by which cookies of sessions and their forms are signed. They lie beside the store, so that sessions survive a restart, and are
//! replaced every thirty days: the key before counts for as long again, which is as long as a session may last.

use crate::clock;
use aws_lc_rs::hmac;
use parking_lot::RwLock;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file in the folder of the store.
const FILE: &str = "login.key";

const KEY_BYTES: usize = 32;

/// How long a key signs.
const KEY_SECONDS: u64 = 30 * 86_400;

/// The key that signs, and the one before it.
const KEYS_MAX: usize = 2;

/// The keys of a server.
#[derive(Default)]
pub struct SessionKeys {
    folder: Option<PathBuf>,
    /// The newest first.
    keys: RwLock<Vec<SessionKey>>,
}

struct SessionKey {
    /// In seconds since 1970.
    made: u64,
    bytes: [u8; KEY_BYTES],
    key: hmac::Key,
}

impl SessionKey {
    fn new(made: u64, bytes: [u8; KEY_BYTES]) -> SessionKey {
        SessionKey { made, bytes, key: hmac::Key::new(hmac::HMAC_SHA256, &bytes) }
    }

    fn draw() -> io::Result<SessionKey> {
        let bytes = super::random().ok_or_else(|| io::Error::other("the system has no random bytes"))?;
        Ok(SessionKey::new(clock::now().0, bytes))
    }
}

impl SessionKeys {
    /// The keys in this folder, or some of this process where there is none. Nothing is read before [`SessionKeys::take_up`].
    pub fn new(folder: Option<PathBuf>) -> SessionKeys {
        SessionKeys { folder, keys: RwLock::default() }
    }

    /// Reads the file, or makes it: a file that was deleted ends all sessions that were signed by its keys.
    pub fn take_up(&self) {
        let read = match &self.folder {
            Some(folder) => read(&folder.join(FILE)),
            None => Ok(Vec::new()),
        };
        match read {
            Ok(keys) if keys.is_empty() && self.folder.is_none() && !self.keys.read().is_empty() => {}
            Ok(keys) => *self.keys.write() = keys,
            Err(error) => {
                let what = "the keys of logins by form can't be read; sessions end with this process";
                tracing::warn!(%error, "{what}");
            }
        }
        self.turn();
    }

    /// Makes a new key where the newest one has signed for its time.
    pub fn turn(&self) {
        let now = clock::now().0;
        let mut keys = self.keys.write();
        if keys.first().is_some_and(|newest| now < newest.made.saturating_add(KEY_SECONDS)) {
            return;
        }
        match SessionKey::draw() {
            Ok(key) => keys.insert(0, key),
            Err(error) => return tracing::warn!(%error, "no new key for logins by form"),
        }
        keys.truncate(KEYS_MAX);
        keys.retain(|key| now < key.made.saturating_add(2 * KEY_SECONDS));
        if let Some(folder) = &self.folder
            && let Err(error) = write(&folder.join(FILE), &keys)
        {
            tracing::warn!(%error, "the keys of logins by form can't be written: their sessions end with this process");
        }
    }

    /// Whether there are keys, and a new one is due.
    pub fn is_due(&self) -> bool {
        let keys = self.keys.read();
        keys.first().is_some_and(|newest| clock::now().0 >= newest.made.saturating_add(KEY_SECONDS))
    }

    /// The signature of a message; `None` where there is no key.
    pub fn sign(&self, message: &[u8]) -> Option<hmac::Tag> {
        Some(hmac::sign(&self.keys.read().first()?.key, message))
    }

    /// Whether one of the keys has signed the message.
    pub fn is_signed(&self, message: &[u8], tag: &[u8]) -> bool {
        self.keys.read().iter().any(|key| hmac::verify(&key.key, message, tag).is_ok())
    }
}

/// The keys in a file; none where there is no file.
fn read(path: &Path) -> io::Result<Vec<SessionKey>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    let key_of = |line: &str| {
        let (made, key) = line.split_once(' ')?;
        Some(SessionKey::new(made.parse().ok()?, super::bytes_of(key)?.try_into().ok()?))
    };
    let wrong = || {
        let what = "has a line that is no key; delete the file, which ends all sessions, or restore it";
        io::Error::other(format!("{} {what}", path.display()))
    };
    text.lines().take(KEYS_MAX).map(|line| key_of(line).ok_or_else(wrong)).collect()
}

/// Writes the file whole before it has its name.
fn write(path: &Path, keys: &[SessionKey]) -> io::Result<()> {
    let mut text = String::new();
    for key in keys {
        let _ = writeln!(text, "{} {}", key.made, super::hex(&key.bytes));
    }
    replace(path, text.as_bytes())
}

/// Puts a file that nobody else may read in the place of another one.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&draft);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path).inspect_err(|_| _ = fs::remove_file(&draft))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    #[test]
    fn keys_lie_closed_beside_the_store_and_turn() {
        let folder = tempfile::tempdir().unwrap();
        let in_folder = || {
            let keys = SessionKeys::new(Some(folder.path().to_owned()));
            keys.take_up();
            keys
        };
        let day = Duration::from_secs(86_400);
        clock::simulate(Some(20_000 * day));
        let keys = in_folder();
        let tag = |keys: &SessionKeys| keys.sign(b"a").unwrap().as_ref().to_vec();
        let first = tag(&keys);
        let mode = fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
        assert!(tag(&in_folder()) == first && !keys.is_signed(b"b", &first) && !keys.is_signed(b"a", b""));
        clock::jump(29 * day);
        assert!(!keys.is_due());
        clock::jump(day);
        assert!(keys.is_due());
        keys.turn();
        // The key before counts for its sessions, also after a restart, and no longer than one can last.
        assert!(tag(&keys) != first && keys.is_signed(b"a", &first) && in_folder().is_signed(b"a", &first));
        clock::jump(30 * day);
        assert!(!in_folder().is_signed(b"a", &first));
        // Somebody ends all sessions.
        let last = tag(&in_folder());
        fs::remove_file(folder.path().join(FILE)).unwrap();
        keys.take_up();
        assert!(!keys.is_signed(b"a", &last) && keys.sign(b"a").is_some());
        // A file that can't be read leaves the keys that are there.
        let last = tag(&keys);
        fs::write(folder.path().join(FILE), "20 x").unwrap();
        keys.take_up();
        assert!(keys.is_signed(b"a", &last));
        clock::simulate(None);
    }

    #[test]
    fn without_a_folder_keys_last_as_long_as_the_process() {
        let keys = SessionKeys::default();
        assert!(keys.sign(b"a").is_none());
        keys.take_up();
        let tag = keys.sign(b"a").unwrap();
        keys.take_up();
        assert!(keys.is_signed(b"a", tag.as_ref()), "a reload ends no session");
        let other = SessionKeys::default();
        other.take_up();
        assert!(!other.is_signed(b"a", tag.as_ref()));
    }
}
