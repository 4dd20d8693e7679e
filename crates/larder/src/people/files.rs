//! The files of a login.

use crate::base64;
use crate::config::{Login, LoginScheme};
use crate::file_state::FileState;
use crate::lines;
use larder_people::groups::{Groups, LineFault};
use larder_people::htdigest::Htdigest;
use larder_people::htpasswd::Htpasswd;
use larder_people::ldap::Password;
use larder_people::token::Keys;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;

/// A longer file is not read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Faults that one message names.
const FAULTS_NAMED_MAX: usize = 10;

/// The users and groups in the files of a login.
#[derive(Debug, Default)]
pub(super) struct UserFiles {
    pub users: KnownUsers,
    pub groups: Groups,
    /// Lines that were passed over, each with its file and its remedy.
    pub warnings: Vec<String>,
    /// By which it is known that a file has changed.
    seen: Mutex<FileStamp>,
    /// The files that were read.
    stamp: FileStamp,
}

/// By which the files of users, of groups and of a directory's password are known: the same value, the same content.
pub type FileStamp = [Option<FileState>; 3];

/// The users of a login.
#[derive(Clone, Debug, Default)]
pub(super) enum KnownUsers {
    /// A helper knows them.
    #[default]
    ByHelper,
    Passwords(Arc<Htpasswd>),
    Digests(Arc<Htdigest>),
    Issuer(Arc<Keys>),
    /// A directory knows them; this is the password by which it is searched, where there is one.
    ByDirectory(Option<Arc<Password>>),
    /// The keys of the issuer have not come yet.
    IssuerToCome,
}

impl UserFiles {
    /// Reads the files; the error names file and line.
    pub fn read(login: &Login) -> Result<UserFiles, String> {
        let seen = look_at(login);
        let mut warnings = Vec::new();
        let users = match (&login.file, login.scheme) {
            (None, LoginScheme::Basic) if !login.ldap.servers.is_empty() => {
                let password = login.ldap.password_file.as_ref().map(|path| password_in(path)).transpose()?;
                KnownUsers::ByDirectory(password)
            }
            (None, LoginScheme::Bearer) => KnownUsers::IssuerToCome,
            (None, _) => KnownUsers::ByHelper,
            (Some(path), LoginScheme::Digest) => {
                let text = text_of(path)?;
                let read = Htdigest::parse(&text, &login.realm).map_err(|faults| in_words(path, &faults))?;
                if read.is_empty() {
                    let path = path.display();
                    return Err(format!("{path} has no user of the realm {:?}", login.realm));
                }
                KnownUsers::Digests(Arc::new(read))
            }
            (Some(path), LoginScheme::Bearer) => {
                let keys = Keys::parse(&text_of(path)?).map_err(|fault| format!("{}: {fault}", path.display()))?;
                KnownUsers::Issuer(Arc::new(keys))
            }
            (Some(path), _) => {
                let read = Htpasswd::parse(&text_of(path)?, base64::decode);
                let read = read.map_err(|faults| in_words(path, &faults))?;
                let passed_over: Vec<LineFault> = read.passed_over().cloned().collect();
                if !passed_over.is_empty() {
                    warnings.push(format!("{}; nobody logs in by such a line", in_words(path, &passed_over)));
                }
                KnownUsers::Passwords(Arc::new(read))
            }
        };
        Ok(UserFiles { users, groups: groups(login)?, warnings, seen: Mutex::new(seen), stamp: seen })
    }

    /// These files, with other users.
    pub fn with(&self, users: KnownUsers) -> UserFiles {
        let (groups, warnings) = (self.groups.clone(), self.warnings.clone());
        UserFiles { users, groups, warnings, seen: Mutex::new(*self.seen.lock()), stamp: self.stamp }
    }

    /// The names of all users; `None` where files do not say who there is.
    pub fn names(&self) -> Option<Vec<&str>> {
        match &self.users {
            KnownUsers::Passwords(users) => Some(users.names().collect()),
            KnownUsers::Digests(users) => Some(users.names().collect()),
            KnownUsers::ByHelper | KnownUsers::ByDirectory(_) | KnownUsers::Issuer(_) | KnownUsers::IssuerToCome => {
                None
            }
        }
    }

    /// The stamp of the files as they were read.
    pub fn stamp(&self) -> FileStamp {
        self.stamp
    }

    /// Whether a file is another one than when it was read.
    pub fn have_changed(&self, login: &Login) -> bool {
        look_at(login) != *self.seen.lock()
    }

    /// Takes the files for seen as they are now, though they could not be read.
    pub fn mark_seen(&self, login: &Login) {
        *self.seen.lock() = look_at(login);
    }
}

/// The groups in the file of a login.
pub(super) fn groups(login: &Login) -> Result<Groups, String> {
    match &login.groups {
        None => Ok(Groups::default()),
        Some(path) => Groups::parse(&text_of(path)?).map_err(|faults| in_words(path, &faults)),
    }
}

fn look_at(login: &Login) -> FileStamp {
    let look = |path: &Option<std::path::PathBuf>| FileState::of(path.as_ref()?);
    [look(&login.file), look(&login.groups), look(&login.ldap.password_file)]
}

fn password_in(path: &Path) -> Result<Arc<Password>, String> {
    let text = text_of(path)?;
    let password = Password::new(text.trim_end_matches(['\r', '\n']).as_bytes());
    password.map(Arc::new).ok_or_else(|| format!("{} has no password, or one with a NUL", path.display()))
}

fn text_of(path: &Path) -> Result<String, String> {
    lines::text_of(path, FILE_BYTES_MAX).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn in_words(path: &Path, faults: &[LineFault]) -> String {
    let named = faults.iter().take(FAULTS_NAMED_MAX);
    let named: Vec<String> = named.map(|fault| format!("{}:{}: {}", path.display(), fault.line, fault.what)).collect();
    let more = faults.len().saturating_sub(FAULTS_NAMED_MAX);
    let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
    named.join("\n") + &more
}
