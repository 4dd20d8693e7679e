//! The account at an authority and the certificates that it has issued, on disk: a folder (mode 0700) for each authority, with
//! `account.json`, for each certificate one file with key and chain, so that no power cut leaves a pair that does not belong together, and
//! one with the orders that have failed. All of them have mode 0600, and are put in place at once.

use super::issued::Issued;
use super::schedule::Failures;
use crate::whole_file::{self, Durability};
use aws_lc_rs::digest;
use larder_wire::Url;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A longer file was not written here.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Letters of a name in the name of its file.
const NAME_LETTERS_MAX: usize = 80;

const ACCOUNT: &str = "account.json";

/// The folder of one authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// The folder of the authority with this directory, below that of all authorities.
    pub(super) fn of(all: &Path, directory: &Url) -> Folder {
        Folder(all.join(format!("{}-{}", plain(directory.host.as_str()), hash(&directory.to_string(), 4))))
    }

    /// Makes it, and closes it to others.
    pub(super) fn make(&self) -> io::Result<()> {
        let all = self.0.parent().unwrap_or(&self.0);
        for folder in [all, &self.0] {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            fs::set_permissions(folder, Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    /// The file of the certificate for these names.
    pub(super) fn file(&self, names: &[Arc<str>]) -> PathBuf {
        self.0.join(format!("{}.pem", stem(names)))
    }

    /// The certificate for these names, where there is one.
    pub(super) fn certificate(&self, names: &[Arc<str>]) -> Result<Option<Issued>, String> {
        let path = self.file(names);
        let told = |trouble: String| format!("{}: {trouble}", path.display());
        match read(&path) {
            Ok(pem) => Issued::read(&pem, names).map(Some).map_err(told),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(told(error.to_string())),
        }
    }

    /// Keeps the certificate for these names.
    pub(super) fn keep_certificate(&self, names: &[Arc<str>], pem: &str) -> Result<(), String> {
        self.write(&self.file(names), pem)
    }

    /// The account, as it was kept.
    pub(super) fn account(&self) -> Option<Vec<u8>> {
        read(&self.0.join(ACCOUNT)).ok()
    }

    /// Keeps the account.
    pub(super) fn keep_account(&self, text: &str) -> Result<(), String> {
        self.write(&self.0.join(ACCOUNT), text)
    }

    /// Forgets the account, which the authority does not know any more.
    pub(super) fn forget_account(&self) {
        let _ = fs::remove_file(self.0.join(ACCOUNT));
    }

    /// Orders of this certificate that have failed.
    pub(super) fn failures(&self, names: &[Arc<str>]) -> Failures {
        let text = read(&self.failures_file(names)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Keeps them; none leave no file.
    pub(super) fn keep_failures(&self, names: &[Arc<str>], failures: Failures) {
        let path = self.failures_file(names);
        if failures == Failures::default() {
            let _ = fs::remove_file(path);
            return;
        }
        // Where they can't be kept, the certificate could not be either, which is told.
        let text = serde_json::to_string(&failures).unwrap_or_default();
        let _ = self.write(&path, &text);
    }

    fn failures_file(&self, names: &[Arc<str>]) -> PathBuf {
        self.0.join(format!("{}.failures.json", stem(names)))
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), String> {
        self.make().map_err(|error| format!("{}: {error}", self.0.display()))?;
        // The new name of the file has to outlast a power cut too.
        let written = whole_file::replace(path, text.as_bytes(), 0o600, Durability::Name);
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

/// Reads a file of this folder. One that others can read is closed to them: its key may be known already, which is told.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mode = file.metadata()?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        tracing::warn!("{} could be read by others (mode {mode:04o}), and is closed to them now", path.display());
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    let mut content = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut content)?;
    Ok(content)
}

/// The name of the files of a certificate: its first name, for people, and what tells all of its names from those of others.
fn stem(names: &[Arc<str>]) -> String {
    let first = names.first().map_or("", |name| name);
    format!("{}-{}", plain(first), hash(&names.join("\n"), 8))
}

fn plain(name: &str) -> String {
    let letters = name.chars().take(NAME_LETTERS_MAX);
    letters
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '.' || letter == '-' { letter } else { '_' })
        .collect()
}

fn hash(text: &str, bytes: usize) -> String {
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    hash.as_ref().iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::date::Stamp;

    fn names(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    fn pem(names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let pair = rcgen::generate_simple_self_signed(names).unwrap();
        pair.signing_key.serialize_pem() + &pair.cert.pem()
    }

    #[test]
    fn certificates_are_kept_by_their_names_and_closed_to_others() {
        let all = tempfile::tempdir().unwrap();
        let directory = Url::parse("https://ca.example/directory").unwrap();
        let folder = Folder::of(all.path(), &directory);
        assert!(folder.certificate(&names(&["a.example"])).unwrap().is_none());
        folder.keep_certificate(&names(&["a.example", "b.example"]), &pem(&["a.example", "b.example"])).unwrap();
        assert!(folder.certificate(&names(&["a.example", "b.example"])).unwrap().is_some());
        assert!(folder.certificate(&names(&["a.example"])).unwrap().is_none(), "other names are another certificate");
        let path = folder.file(&names(&["a.example", "b.example"]));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&folder.0)), (0o600, 0o700));
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(folder.certificate(&names(&["a.example", "b.example"])).unwrap().is_some());
        assert_eq!(mode(&path), 0o600);
        let other = Folder::of(all.path(), &Url::parse("https://ca.example/other").unwrap());
        assert!(other.certificate(&names(&["a.example", "b.example"])).unwrap().is_none(), "another authority");
    }

    #[test]
    fn certificates_for_others_and_torn_files_are_refused() {
        let all = tempfile::tempdir().unwrap();
        let folder = Folder::of(all.path(), &Url::parse("https://ca.example/directory").unwrap());
        let of = names(&["a.example"]);
        let mixed = pem(&["a.example"]).split_once("-----BEGIN CERT").unwrap().0.to_owned();
        let mixed = mixed
            + pem(&["a.example"])
                .split_once("-----BEGIN CERT")
                .map(|(_, rest)| format!("-----BEGIN CERT{rest}"))
                .unwrap()
                .as_str();
        let whole = pem(&["a.example"]);
        for (text, words) in [
            (pem(&["b.example"]), "not for a.example"),
            (mixed, "not usable"),
            (whole[..whole.len() / 2].to_owned(), "PEM"),
            (String::new(), "no certificate"),
            (whole.repeat(11), "more than 10"),
        ] {
            folder.keep_certificate(&of, &text).unwrap();
            let trouble = folder.certificate(&of).unwrap_err();
            assert!(trouble.contains(words), "{words} in {trouble}");
        }
    }

    #[test]
    fn failures_outlast_the_server() {
        let all = tempfile::tempdir().unwrap();
        let folder = Folder::of(all.path(), &Url::parse("https://ca.example/directory").unwrap());
        let of = names(&["a.example"]);
        assert_eq!(folder.failures(&of), Failures::default());
        let failed = Failures::default().and_one(Stamp(1_000), 3);
        folder.keep_failures(&of, failed);
        assert_eq!(folder.failures(&of), failed);
        fs::write(folder.failures_file(&of), "{torn").unwrap();
        assert_eq!(folder.failures(&of), Failures::default());
        folder.keep_failures(&of, Failures::default());
        assert!(!folder.failures_file(&of).exists());
    }
}
