//! The sessions by cookie on disk, so that they survive a restart: a line for each that begins, was seen, or ends. A session has the hash of
//! what its cookie says and no more, so that nobody makes a cookie of the file.

use super::session_keys::replace;
use crate::{clock, lines};
use larder_people::form;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file in the folder of the store.
const FILE: &str = "login.sessions";

/// A longer file is not read, and nothing is added to it.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Lines that wait to be written. Beyond that it is not noted that sessions were seen: after a restart they end earlier.
const PENDING_BYTES_MAX: usize = 1 << 20;

/// The file is written anew when more lines than this, and more than there are sessions, have come since.
const LINES_MIN: usize = 1_024;

/// A session as the server knows it: the hash of the number in its cookie.
pub(super) type SessionHash = [u8; 32];

/// All about a user by which a session goes on: another password, group or way to know users makes another one.
pub type UserMark = [u8; 32];

/// The sessions on disk.
#[derive(Default)]
pub(super) struct SessionJournal {
    path: Option<PathBuf>,
    pending: Mutex<String>,
    written: Mutex<Written>,
}

#[derive(Default)]
struct Written {
    /// Lines since the file was written anew.
    lines: usize,
    /// Sessions that were in it then.
    sessions: usize,
}

/// A session as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeptSession {
    pub hash: SessionHash,
    /// The name of its login.
    pub login: String,
    /// Since 1970, in whole seconds.
    pub began: Duration,
    /// When it was seen last, since 1970.
    pub used: Duration,
    /// How long it lasts.
    pub lifetime: Duration,
    /// How long without a request.
    pub idle: Duration,
    pub mark: UserMark,
    pub user: String,
    pub groups: Vec<String>,
}

impl KeptSession {
    fn is_over(&self, now: Duration) -> bool {
        now >= self.began.saturating_add(self.lifetime) || now >= self.used.saturating_add(self.idle)
    }

    fn line(&self) -> String {
        let KeptSession { hash, login, began, used, lifetime, idle, mark, user, groups } = self;
        let groups: Vec<String> = groups.iter().map(|group| form::encoded(group)).collect();
        let seconds = [began, used, lifetime, idle].map(|time| time.as_secs().to_string()).join(" ");
        let (hash, mark, user) = (super::hex(hash), super::hex(mark), form::encoded(user));
        format!("+ {hash} {login} {seconds} {mark} {user} {}\n", groups.join(","))
    }

    fn parse(rest: &str) -> Option<KeptSession> {
        let words: Vec<&str> = rest.split(' ').collect();
        let [hash, login, began, used, lifetime, idle, mark, user, groups] = words[..] else { return None };
        let seconds = |text: &str| text.parse().ok().map(Duration::from_secs);
        let groups = groups.split(',').filter(|group| !group.is_empty());
        Some(KeptSession {
            hash: super::bytes_of(hash)?.try_into().ok()?,
            login: login.to_owned(),
            began: seconds(began)?,
            used: seconds(used)?,
            lifetime: seconds(lifetime)?,
            idle: seconds(idle)?,
            mark: super::bytes_of(mark)?.try_into().ok()?,
            user: form::decoded(user)?,
            groups: groups.map(form::decoded).collect::<Option<_>>()?,
        })
    }
}

impl SessionJournal {
    /// The file in this folder; without one nothing is kept.
    pub fn new(folder: Option<PathBuf>) -> SessionJournal {
        SessionJournal { path: folder.map(|folder| folder.join(FILE)), ..SessionJournal::default() }
    }

    /// A session begins.
    pub fn begins(&self, session: &KeptSession) {
        self.add(&session.line());
    }

    /// A session was seen.
    pub fn seen(&self, hash: &SessionHash) {
        if self.pending.lock().len() < PENDING_BYTES_MAX {
            self.add(&format!("~ {} {}\n", super::hex(hash), clock::now().0));
        }
    }

    /// A session has ended before its time.
    pub fn ends(&self, hash: &SessionHash) {
        self.add(&format!("- {}\n", super::hex(hash)));
    }

    fn add(&self, line: &str) {
        if self.path.is_some() {
            self.pending.lock().push_str(line);
        }
    }

    /// Writes the lines that wait, to the disk itself. It may wait for that: not for a worker.
    pub fn flush(&self) {
        let Some(path) = &self.path else { return };
        let mut written = self.written.lock();
        let pending = std::mem::take(&mut *self.pending.lock());
        if pending.is_empty() {
            return;
        }
        if let Err(error) = append(path, &pending) {
            // They are tried again: without the line of its end, a session would be there again after a restart. A part of them may be
            // in the file, so the next ones begin on a line of their own.
            let mut waiting = self.pending.lock();
            if pending.len() + waiting.len() < PENDING_BYTES_MAX {
                waiting.insert_str(0, &format!("\n{}", pending.trim_start_matches('\n')));
            }
            return tracing::warn!(%error, "{}: sessions of logins by form are not kept over a restart", path.display());
        }
        written.lines += pending.lines().count();
        if written.lines > LINES_MIN.max(written.sessions) {
            match renew(path) {
                Ok(sessions) => *written = Written { lines: 0, sessions },
                Err(error) => tracing::warn!(%error, "{}: it is not written anew", path.display()),
            }
        }
    }

    /// The sessions of a login that are not over.
    pub fn sessions(&self, login: &str) -> Vec<KeptSession> {
        self.flush();
        let Some(path) = &self.path else { return Vec::new() };
        match live(path) {
            Ok(sessions) => sessions.into_iter().filter(|session| session.login == login).collect(),
            Err(error) => {
                tracing::warn!(%error, "{}: sessions of logins by form are not taken up", path.display());
                Vec::new()
            }
        }
    }
}

fn append(path: &Path, lines: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    if file.metadata()?.len() > FILE_BYTES_MAX {
        return Err(io::Error::other("the file is longer than 64 MiB"));
    }
    file.write_all(lines.as_bytes())?;
    file.sync_data()
}

/// Writes the file with the sessions alone that are not over; how many there are.
fn renew(path: &Path) -> io::Result<usize> {
    let sessions = live(path)?;
    let text: String = sessions.iter().map(KeptSession::line).collect();
    replace(path, text.as_bytes()).map(|()| sessions.len())
}

/// The sessions in a file that are not over, in the order in which they began. A line that a power cut has torn is passed over.
fn live(path: &Path) -> io::Result<Vec<KeptSession>> {
    let text = match lines::text_of(path, FILE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    let mut sessions: HashMap<SessionHash, (usize, KeptSession)> = HashMap::new();
    for (number, line) in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).enumerate() {
        let Some((kind, rest)) = line.split_once(' ') else { continue };
        let (hash, more) = rest.split_once(' ').unwrap_or((rest, ""));
        let hash = || super::bytes_of(hash).and_then(|bytes| SessionHash::try_from(bytes).ok());
        match kind {
            "+" => {
                if let Some(session) = KeptSession::parse(rest) {
                    sessions.insert(session.hash, (number, session));
                }
            }
            "~" => {
                if let (Some(hash), Ok(seconds)) = (hash(), more.parse())
                    && let Some((_, session)) = sessions.get_mut(&hash)
                {
                    session.used = Duration::from_secs(seconds);
                }
            }
            "-" => _ = hash().map(|hash| sessions.remove(&hash)),
            _ => {}
        }
    }
    let now = clock::wall();
    let mut sessions: Vec<_> = sessions.into_values().filter(|(_, session)| !session.is_over(now)).collect();
    sessions.sort_by_key(|(number, _)| *number);
    Ok(sessions.into_iter().map(|(_, session)| session).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn session(number: u8, began: u64) -> KeptSession {
        KeptSession {
            hash: [number; 32],
            login: "web".to_owned(),
            began: Duration::from_secs(began),
            used: Duration::from_secs(began),
            lifetime: Duration::from_secs(3_600),
            idle: Duration::from_secs(600),
            mark: [7; 32],
            user: "ada b\n,%".to_owned(),
            groups: vec!["staff".to_owned(), "a, b".to_owned()],
        }
    }

    fn numbers(journal: &SessionJournal) -> Vec<u8> {
        journal.sessions("web").iter().map(|session| session.hash[0]).collect()
    }

    #[test]
    fn sessions_are_there_after_a_restart_until_they_end() {
        clock::simulate(Some(Duration::from_secs(1_000_000)));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let open = || SessionJournal::new(Some(folder.path().to_owned()));
        let journal = open();
        for number in 1..=4 {
            journal.begins(&session(number, 1_000_000));
        }
        journal.ends(&[2; 32]);
        assert_eq!(open().sessions("web"), [], "nothing is written yet");
        journal.flush();
        assert_eq!(numbers(&open()), [1, 3, 4]);
        assert_eq!(open().sessions("web")[0], session(1, 1_000_000));
        assert_eq!(open().sessions("other"), []);
        clock::jump(Duration::from_secs(500));
        journal.seen(&[3; 32]);
        clock::jump(Duration::from_secs(100));
        assert_eq!(numbers(&journal), [3], "the others had no request for their idle time");
        // A power cut tears the last line, and only that.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}nonsense\n+ 12 x\n~ zz 1\n-\n- {}", "03".repeat(32))).unwrap();
        assert_eq!(numbers(&open()), [3]);
        clock::jump(Duration::from_secs(3_600));
        assert!(numbers(&open()).is_empty());
        clock::simulate(None);
    }

    #[test]
    fn ends_that_could_not_be_written_are_written_later() {
        clock::simulate(Some(Duration::from_secs(1_000_000)));
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("below");
        fs::create_dir(&below).unwrap();
        let journal = SessionJournal::new(Some(below.clone()));
        (1..=2).for_each(|number| journal.begins(&session(number, 1_000_000)));
        journal.flush();
        // A disk that takes nothing.
        fs::rename(&below, folder.path().join("away")).unwrap();
        journal.ends(&[1; 32]);
        (0..3).for_each(|_| journal.flush());
        fs::rename(folder.path().join("away"), &below).unwrap();
        journal.flush();
        assert_eq!(numbers(&SessionJournal::new(Some(below))), [2]);
        clock::simulate(None);
    }

    #[test]
    fn the_file_does_not_grow_with_what_is_over() {
        clock::simulate(Some(Duration::from_secs(1_000_000)));
        let folder = tempfile::tempdir().unwrap();
        let journal = SessionJournal::new(Some(folder.path().to_owned()));
        journal.begins(&session(9, 1_000_000));
        for _ in 0..LINES_MIN {
            journal.begins(&session(1, 1_000_000));
            journal.ends(&[1; 32]);
        }
        journal.flush();
        let text = fs::read_to_string(folder.path().join(FILE)).unwrap();
        assert_eq!(text, session(9, 1_000_000).line());
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode() & 0o777, 0o600);
        clock::simulate(None);
    }
}
