//! The sessions of a login of form: a signed cookie is the user who has logged in on the page of a site. And the seals of its forms.
//!
//! A cookie is a number that was drawn, and its signature for one login and one origin (scheme, host and port): no other site takes it. The
//! server knows the session by the hash of the number, so that it can be ended, and a cookie that outlives its session is nothing.

use super::User;
use super::session_journal::{KeptSession, SessionHash, SessionJournal, UserMark};
use super::session_keys::SessionKeys;
use crate::clock;
use crate::config::Login;
use aws_lc_rs::digest::{SHA256, digest};
use larder_people::sessions::{SessionLimits, SessionTimes, Sessions};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sessions of one login, of 300 bytes about.
const SESSIONS_MAX: usize = 65_536;

/// Sessions of one user: browsers in which somebody is logged in.
const OF_USER_MAX: usize = 64;

/// A form is good for so long, and as long again at most.
const FORM_SECONDS: u64 = 3_600;

const NUMBER_BYTES: usize = 24;
const TAG_BYTES: usize = 32;

/// The letters of a cookie: a number and its signature, in hexadecimal digits.
const COOKIE_LETTERS: usize = 2 * (NUMBER_BYTES + TAG_BYTES);

/// The letters of the cookie that a form has.
const FORM_LETTERS: usize = 32;

/// The sessions of one login of form.
pub struct CookieSessions {
    login: Arc<str>,
    lifetime: Duration,
    idle: Duration,
    keys: Arc<SessionKeys>,
    journal: Arc<SessionJournal>,
    table: Mutex<Sessions<SessionHash, Arc<User>, UserMark>>,
}

/// Why no session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSession {
    /// As many people are logged in as may at once.
    Full,
    /// The system has no random bytes.
    NoKey,
}

impl CookieSessions {
    pub(super) fn new(login: &Login, keys: Arc<SessionKeys>, journal: Arc<SessionJournal>) -> CookieSessions {
        let limits = SessionLimits {
            lifetime: login.session,
            idle: login.idle,
            sessions_max: SESSIONS_MAX,
            of_user_max: OF_USER_MAX,
        };
        CookieSessions {
            login: login.name.as_str().into(),
            lifetime: login.session,
            idle: login.idle,
            keys,
            journal,
            table: Mutex::new(Sessions::new(limits)),
        }
    }

    /// Goes on with the sessions that are on disk, where it has none yet.
    pub(super) fn go_on(&self) {
        if !self.table.lock().is_empty() {
            return;
        }
        let (now, wall) = (clock::instant(), clock::wall());
        for session in self.journal.sessions(&self.login) {
            let before = |at: Duration| now.checked_sub(wall.saturating_sub(at));
            let (Some(began), Some(used)) = (before(session.began), before(session.used)) else { continue };
            let groups = session.groups.iter().map(|group| group.as_str().into()).collect();
            let user = User { name: session.user.as_str().into(), groups, login: (*self.login).into() };
            let times = (SessionTimes { began, used }, now);
            let _ = self.table.lock().go_on(session.hash, (&session.user, Arc::new(user)), session.mark, times);
        }
    }

    /// The user of a cookie at this origin, and until when that may be remembered. `mark` says what is known of a user now.
    pub fn user(
        &self,
        (cookie, origin): (&[u8], &str),
        mark: impl FnOnce(&str) -> Option<UserMark>,
    ) -> Option<(Arc<User>, Instant)> {
        let hash = self.hash_of(cookie, origin)?;
        let holds = |user: &Arc<User>, stamp: &UserMark| mark(&user.name).is_some_and(|mark| mark == *stamp);
        let found = self.table.lock().find(hash, holds, clock::instant())?;
        if found.is_to_note {
            self.journal.seen(&hash);
        }
        Some((found.user, found.until))
    }

    /// Begins a session; gives its cookie. `flush` has to follow.
    pub fn begin(&self, origin: &str, user: &Arc<User>, mark: UserMark) -> Result<String, NoSession> {
        let number: [u8; NUMBER_BYTES] = super::random().ok_or(NoSession::NoKey)?;
        let tag = self.keys.sign(&self.message(b's', origin, &number)).ok_or(NoSession::NoKey)?;
        let hash = hash_of(&number);
        let begun = self.table.lock().begin(hash, (&user.name, Arc::clone(user)), mark, clock::instant());
        if let Some(ended) = begun.map_err(|_| NoSession::Full)? {
            self.journal.ends(&ended);
        }
        let now = Duration::from_secs(clock::now().0);
        self.journal.begins(&KeptSession {
            hash,
            login: self.login.to_string(),
            began: now,
            used: now,
            lifetime: self.lifetime,
            idle: self.idle,
            mark,
            user: user.name.to_string(),
            groups: user.groups.iter().map(ToString::to_string).collect(),
        });
        Ok(super::hex(&number) + &super::hex(tag.as_ref()))
    }

    /// Ends the session of a cookie; whether it had one. `flush` has to follow.
    pub fn end(&self, cookie: &[u8], origin: &str) -> bool {
        let Some(hash) = self.hash_of(cookie, origin) else { return false };
        let had_session = self.table.lock().end(hash);
        if had_session {
            self.journal.ends(&hash);
        }
        had_session
    }

    /// Writes to disk which sessions have begun and ended. It may wait.
    pub(super) fn flush(&self) {
        self.journal.flush();
    }

    /// How long a session lasts.
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// The value for the cookie of a form: the one that the browser has, or a new one.
    pub fn form_cookie(&self, known: Option<&[u8]>) -> Option<String> {
        let known = known.and_then(|known| std::str::from_utf8(known).ok()).filter(|known| is_form_cookie(known));
        match known {
            Some(known) => Some(known.to_owned()),
            None => super::random::<{ FORM_LETTERS / 2 }>().map(|bytes| super::hex(&bytes)),
        }
    }

    /// The seal of a form for the browser with this cookie: no other page can have made it send the form.
    pub fn seal(&self, cookie: &str, origin: &str) -> Option<String> {
        let tag = self.keys.sign(&self.form_message(cookie, origin, hour()))?;
        Some(super::hex(tag.as_ref()))
    }

    /// Whether a form has such a seal.
    pub fn is_sealed(&self, cookie: &[u8], origin: &str, seal: &str) -> bool {
        let cookie = std::str::from_utf8(cookie).ok().filter(|cookie| is_form_cookie(cookie));
        let (Some(cookie), Some(tag)) = (cookie, super::bytes_of(seal)) else { return false };
        let is_of = |hour: u64| self.keys.is_signed(&self.form_message(cookie, origin, hour), &tag);
        is_of(hour()) || is_of(hour().saturating_sub(1))
    }

    fn form_message(&self, cookie: &str, origin: &str, hour: u64) -> Vec<u8> {
        self.message(b'f', origin, &[&hour.to_be_bytes(), cookie.as_bytes()].concat())
    }

    /// The last part has a fixed length for each kind, and names of logins have no line end: no message is read for another one.
    fn message(&self, kind: u8, origin: &str, last: &[u8]) -> Vec<u8> {
        [&[kind][..], self.login.as_bytes(), b"\n", origin.as_bytes(), b"\n", last].concat()
    }

    fn hash_of(&self, cookie: &[u8], origin: &str) -> Option<SessionHash> {
        let cookie = std::str::from_utf8(cookie).ok().filter(|cookie| cookie.len() == COOKIE_LETTERS)?;
        let bytes = super::bytes_of(cookie)?;
        let (number, tag) = bytes.split_at_checked(NUMBER_BYTES)?;
        self.keys.is_signed(&self.message(b's', origin, number), tag).then(|| hash_of(number))
    }
}

fn hash_of(number: &[u8]) -> SessionHash {
    SessionHash::try_from(digest(&SHA256, number).as_ref()).unwrap_or_default()
}

fn is_form_cookie(text: &str) -> bool {
    text.len() == FORM_LETTERS && super::bytes_of(text).is_some()
}

fn hour() -> u64 {
    clock::wall().as_secs() / FORM_SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: &str = "https://a.test";

    fn login(name: &str) -> Login {
        Login { name: name.to_owned(), ..Login::default() }
    }

    fn user(name: &str) -> Arc<User> {
        Arc::new(User { name: name.into(), groups: ["staff".into()].into(), login: "web".into() })
    }

    /// Sessions in a folder, after a start.
    fn started(name: &str, folder: &std::path::Path) -> CookieSessions {
        let keys = Arc::new(SessionKeys::new(Some(folder.to_owned())));
        keys.take_up();
        let sessions = CookieSessions::new(&login(name), keys, Arc::new(SessionJournal::new(Some(folder.to_owned()))));
        sessions.go_on();
        sessions
    }

    fn name_of(sessions: &CookieSessions, cookie: &str, origin: &str) -> Option<String> {
        sessions.user((cookie.as_bytes(), origin), |_| Some([1; 32])).map(|(user, _)| user.name.to_string())
    }

    #[test]
    fn a_cookie_is_for_one_login_and_one_origin() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = started("web", folder.path());
        let cookie = sessions.begin(SITE, &user("ada"), [1; 32]).unwrap();
        assert_eq!((name_of(&sessions, &cookie, SITE).as_deref(), cookie.len()), (Some("ada"), COOKIE_LETTERS));
        for other in ["http://a.test", "https://b.test", "https://a.test:8443", "https://A.test", ""] {
            assert_eq!(name_of(&sessions, &cookie, other), None, "{other}");
        }
        assert_eq!(name_of(&started("other", folder.path()), &cookie, SITE), None, "another login with the same keys");
        // Each letter counts.
        for at in 0..cookie.len() {
            let mut forged = cookie.clone().into_bytes();
            forged[at] = if forged[at] == b'0' { b'1' } else { b'0' };
            assert_eq!(sessions.user((&*forged, SITE), |_| Some([1; 32])), None, "{at}");
        }
        let upper = cookie.to_uppercase();
        for forged in ["", "0", &cookie[1..], &cookie[..111], &format!("{cookie}0"), &"f".repeat(1 << 20), &upper] {
            assert_eq!(name_of(&sessions, forged, SITE), None, "{:.20}", forged);
        }
    }

    #[test]
    fn a_session_ends_by_a_logout_by_another_mark_and_by_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = started("web", folder.path());
        let begin = |sessions: &CookieSessions, name: &str| sessions.begin(SITE, &user(name), [1; 32]).unwrap();
        let (first, second) = (begin(&sessions, "ada"), begin(&sessions, "ada"));
        assert_ne!(first, second);
        assert!(sessions.end(first.as_bytes(), SITE) && !sessions.end(first.as_bytes(), SITE));
        assert!(!sessions.end(second.as_bytes(), "https://b.test"), "only at its own origin");
        // Replayed, it is nothing; the other browser's goes on.
        assert_eq!([&first, &second].map(|it| name_of(&sessions, it, SITE)), [None, Some("ada".to_owned())]);
        for mark in [None, Some([2; 32])] {
            let cookie = begin(&sessions, "ada");
            assert_eq!(sessions.user((cookie.as_bytes(), SITE), |_| mark), None);
            assert_eq!(name_of(&sessions, &cookie, SITE), None, "what is over stays so");
        }
        let of_bob: Vec<String> = (0..=OF_USER_MAX).map(|_| begin(&sessions, "bob")).collect();
        assert_eq!(name_of(&sessions, &of_bob[0], SITE), None);
        assert!(of_bob[1..].iter().all(|cookie| name_of(&sessions, cookie, SITE).is_some()));
        // After a restart all is as it was.
        sessions.flush();
        let again = started("web", folder.path());
        let of = |cookie: &String| name_of(&again, cookie, SITE);
        assert_eq!([of(&first), of(&of_bob[0])], [None, None]);
        assert_eq!([of(&second).as_deref(), of(&of_bob[1]).as_deref()], [Some("ada"), Some("bob")]);
        let (found, _) = again.user((second.as_bytes(), SITE), |_| Some([1; 32])).unwrap();
        assert_eq!(*found, *user("ada"));
    }

    #[test]
    fn a_form_is_for_the_browser_that_got_it() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = started("web", folder.path());
        let cookie = sessions.form_cookie(None).unwrap();
        assert_eq!(sessions.form_cookie(Some(cookie.as_bytes())).as_deref(), Some(&*cookie));
        assert_ne!(sessions.form_cookie(Some(b"short")).unwrap(), "short", "browsers choose no value");
        let seal = sessions.seal(&cookie, SITE).unwrap();
        assert!(sessions.is_sealed(cookie.as_bytes(), SITE, &seal));
        let other = sessions.form_cookie(None).unwrap();
        assert!(!sessions.is_sealed(other.as_bytes(), SITE, &seal));
        assert!(!sessions.is_sealed(cookie.as_bytes(), "https://b.test", &seal));
        for forged in ["", "0", &seal[2..], &"0".repeat(64)] {
            assert!(!sessions.is_sealed(cookie.as_bytes(), SITE, forged), "{forged}");
        }
        // The signature of a form is none of a session.
        assert_eq!(name_of(&sessions, &(cookie[..32].to_owned() + &"0".repeat(16) + &seal), SITE), None);
    }
}
