//! People: the logins of a configuration, and whether a request's credential is right. Passwords and tokens are checked on threads of
//! their own; credentials that were right are remembered by a keyed hash for a time. Challenges and answers are those of
//! RFC 9110 section 11; the formats are in `larder-people`.

mod certificate;
mod connection;
mod cookie_sessions;
mod directory;
mod directory_login;
mod files;
mod hex;
mod issuer;
mod key_fetcher;
mod ldap;
mod login;
mod notes;
mod page_login;
mod session_journal;
mod session_keys;
mod sessions;
#[cfg(test)]
mod tests_of_ldap;
#[cfg(test)]
mod tests_of_ldap_servers;
mod turns;
mod verifier;

pub use certificate::ClientCertificate;
pub use connection::ConnectionLogin;
pub use cookie_sessions::{CookieSessions, NoSession};
pub use files::FileStamp;
pub use login::{Attempt, Checked, LoginQuestion, LoginRefusal, LoginReply, LoginState};
pub use session_journal::UserMark;
pub use sessions::{PageSessions, Sealed};

use crate::config::{Config, Login, LoginScheme};
use crate::helper::{self, Helpers};
use files::UserFiles;
use hex::{bytes_of, hex};
use parking_lot::{Mutex, RwLock};
use rustls::ClientConfig;
use session_journal::SessionJournal;
use session_keys::SessionKeys;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use verifier::Verifier;

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Somebody who has logged in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct User {
    /// The name.
    pub name: Arc<str>,
    /// The groups, each once.
    pub groups: Box<[Box<str>]>,
    /// The name of the login that knows the user; empty where a helper of `external_acl` or a certificate named the user.
    pub login: Box<str>,
}

/// Counts since the start.
#[derive(Debug, Default)]
pub struct LoginCounts {
    /// Credentials that were checked and right.
    pub right: AtomicU64,
    /// Credentials that were wrong.
    pub wrong: AtomicU64,
    /// Requests that were refused without a check, because their client had failed too often.
    pub limited: AtomicU64,
}

/// The logins and helpers of a server.
#[derive(Default)]
pub struct People {
    logins: RwLock<HashMap<String, Arc<LoginState>>>,
    /// Programs that are asked about requests and people.
    pub helpers: Helpers,
    edition: Arc<AtomicU64>,
    /// Sessions of login pages that ended at once, by a logout or another login.
    sessions_ended: AtomicU64,
    /// Counts for people.
    pub counts: Arc<LoginCounts>,
    verifier: Arc<Verifier>,
    /// TLS towards issuers of tokens.
    tls: OnceLock<Arc<ClientConfig>>,
    watcher: Mutex<Option<Watcher>>,
    session_keys: Arc<SessionKeys>,
    session_journal: Arc<SessionJournal>,
}

struct Watcher {
    /// Dropped to end the thread.
    _ends: Sender<()>,
    handle: JoinHandle<()>,
}

/// The logins of a configuration, with their files read.
pub struct PreparedLogins {
    logins: Vec<Arc<LoginState>>,
    /// Notes for whoever wrote the configuration or its files.
    notes: Vec<String>,
}

impl People {
    /// Nobody yet; sessions of logins by form are kept in this folder, that of the store, where there is one.
    pub fn of_store(folder: Option<PathBuf>) -> People {
        let mut people = People::default();
        people.session_keys = Arc::new(SessionKeys::new(folder.clone()));
        people.session_journal = Arc::new(SessionJournal::new(folder));
        people
    }

    /// Reads the files of all logins, and looks for the programs of helpers; `Err` has all that is wrong with them.
    pub fn prepare(&self, config: &Config) -> Result<PreparedLogins, String> {
        let (mut logins, mut troubles) = (Vec::new(), Vec::new());
        for login in &config.logins {
            let state = |files| {
                let (verifier, counts) = (Arc::clone(&self.verifier), Arc::clone(&self.counts));
                LoginState::new(Arc::clone(login), files, verifier, counts)
            };
            match UserFiles::read(login).and_then(state) {
                Ok(mut state) => {
                    self.keep_keys(&state);
                    self.keep_sessions(&mut state, config);
                    self.keep_cookies(&mut state);
                    logins.push(Arc::new(state));
                }
                Err(trouble) => troubles.push(format!("{}: login {}: {trouble}", login.place, login.name)),
            }
        }
        troubles.extend(config.helpers.iter().filter_map(|helper| {
            let trouble = helper::program_trouble(helper)?;
            Some(format!("{}: helper {}: {trouble}", helper.place, helper.name))
        }));
        if !troubles.is_empty() {
            return Err(troubles.join("\n"));
        }
        let notes = notes::all(config, &logins);
        Ok(PreparedLogins { logins, notes })
    }

    /// A login that takes the place of one with keys from the same URL does not wait for them to be fetched again.
    fn keep_keys(&self, new: &LoginState) {
        let Some(old) = self.login(&new.config().name).filter(|old| old.config().jwks == new.config().jwks) else {
            return;
        };
        if let (Some(_), Some(keys)) = (&new.config().jwks, old.keys()) {
            new.take_keys((*keys).clone());
        }
    }

    /// Sessions go on where nothing that they stand on is configured otherwise; files that have changed end them in any case.
    fn keep_sessions(&self, new: &mut LoginState, config: &Config) {
        let wanted = Arc::clone(new.config());
        let Some(old) = self.login(&wanted.name).filter(|old| *old.config() == wanted) else { return };
        let users = config.logins.iter().find(|login| login.name == wanted.users);
        if users.zip(self.login(&wanted.users)).is_some_and(|(new, old)| old.config() == new) {
            new.take_sessions(&old);
        }
    }

    /// A login of form has the sessions of the one whose place it takes, where it is the same; else it takes them up from the disk.
    fn keep_cookies(&self, new: &mut LoginState) {
        if new.config().scheme != LoginScheme::Form {
            return;
        }
        let old = self.login(&new.config().name).filter(|old| old.config() == new.config());
        let made = || {
            let (keys, journal) = (Arc::clone(&self.session_keys), Arc::clone(&self.session_journal));
            Arc::new(CookieSessions::new(new.config(), keys, journal))
        };
        new.cookies = Some(old.and_then(|old| old.cookie_sessions().cloned()).unwrap_or_else(made));
    }

    /// A session of a login page has ended at once: verdicts that are remembered may be by it.
    pub fn note_session_ended(&self) {
        self.sessions_ended.fetch_add(1, Ordering::Release);
    }

    /// How many such ends there were.
    pub fn sessions_ended(&self) -> u64 {
        self.sessions_ended.load(Ordering::Acquire)
    }

    /// Fetches keys of issuers with this TLS; a server says so before its first logins are in force.
    pub fn fetch_with(&self, tls: Arc<ClientConfig>) {
        let _ = self.tls.set(tls);
    }

    /// Has exactly these logins and the helpers of the configuration from now on. Nothing that was remembered counts any more.
    pub fn have(&self, prepared: PreparedLogins, config: &Config) -> std::io::Result<()> {
        self.helpers.have(&config.helpers)?;
        prepared.notes.iter().for_each(|note| tracing::warn!("{note}"));
        let new: HashMap<_, _> =
            prepared.logins.into_iter().map(|login| (login.config().name.clone(), login)).collect();
        let watched: Vec<Arc<LoginState>> = new.values().map(Arc::clone).collect();
        let forms: Vec<_> = watched.iter().filter_map(|login| login.cookie_sessions()).collect();
        if !forms.is_empty() {
            self.session_keys.take_up();
            forms.iter().for_each(|sessions| sessions.go_on());
        }
        let old = std::mem::replace(&mut *self.logins.write(), new);
        old.values().for_each(|login| login.issuer().end());
        if let Some(tls) = self.tls.get() {
            for login in &watched {
                login.directory().connect_with(tls);
                key_fetcher::begin(login, Arc::clone(tls), Arc::clone(&self.edition))?;
            }
        }
        self.edition.fetch_add(1, Ordering::Release);
        let sessions = (Arc::clone(&self.session_keys), Arc::clone(&self.session_journal));
        let watcher = watch(watched, Arc::clone(&self.edition), sessions)?;
        let old = std::mem::replace(&mut *self.watcher.lock(), watcher);
        end_watcher(old);
        Ok(())
    }

    /// The login with this name.
    pub fn login(&self, name: &str) -> Option<Arc<LoginState>> {
        self.logins.read().get(name).map(Arc::clone)
    }

    /// The edition of what is known of users. A verdict by an earlier one may be wrong.
    pub fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// Ends processes and threads.
    pub fn stop(&self) {
        end_watcher(self.watcher.lock().take());
        self.logins.read().values().for_each(|login| login.issuer().end());
        self.session_journal.flush();
        self.helpers.stop();
    }
}

impl Drop for People {
    fn drop(&mut self) {
        self.stop();
    }
}

fn end_watcher(watcher: Option<Watcher>) {
    if let Some(Watcher { _ends, handle }) = watcher {
        drop(_ends);
        let _ = handle.join();
    }
}

/// Looks at the files of these logins once a second, and takes them up where they have changed. Writes which sessions were seen, and has a new
/// key sign where that is due.
fn watch(
    logins: Vec<Arc<LoginState>>,
    edition: Arc<AtomicU64>,
    (keys, journal): (Arc<SessionKeys>, Arc<SessionJournal>),
) -> std::io::Result<Option<Watcher>> {
    if logins.is_empty() {
        return Ok(None);
    }
    let (ends, ended) = channel::<()>();
    let work = move || {
        while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            let changed = logins.iter().filter(|login| login.take_changed_files()).count();
            if changed > 0 {
                edition.fetch_add(1, Ordering::Release);
            }
            if keys.is_due() {
                keys.turn();
            }
            journal.flush();
        }
    };
    let handle = std::thread::Builder::new().name("people".into()).spawn(work)?;
    Ok(Some(Watcher { _ends: ends, handle }))
}

/// A user by whom questions are supposed to be asked, as each login knows them: in these groups, and in those of the login's file.
pub fn suppose(config: &Config, name: &str, groups: &[String]) -> Result<Vec<Arc<User>>, String> {
    if config.logins.is_empty() {
        return Err("nobody can log in by this configuration: it has no [[login]], so leave --user out".to_owned());
    }
    let known = |login: &Arc<Login>| {
        // The users of a page are those of another login.
        let users = config.logins.iter().find(|users| login.scheme.is_by_page() && users.name == login.users);
        let of_file = files::groups(users.unwrap_or(login))
            .map_err(|trouble| format!("{}: login {}: {trouble}", login.place, login.name))?;
        let all: BTreeSet<&str> = groups.iter().map(String::as_str).chain(of_file.of(name)).collect();
        let groups = all.into_iter().map(Box::from).collect();
        Ok(Arc::new(User { name: name.into(), groups, login: login.name.as_str().into() }))
    };
    config.logins.iter().map(known).collect()
}

/// Random bytes; `None` where the system has none.
fn random<const BYTES: usize>() -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    aws_lc_rs::rand::fill(&mut bytes).ok().map(|()| bytes)
}

/// For `larder check`: notes on the files of logins and on rules about their users. `Err` has all that is wrong with these files and with the
/// programs of helpers.
pub fn examine(config: &Config) -> Result<Vec<String>, String> {
    People::default().prepare(config).map(|prepared| prepared.notes)
}
