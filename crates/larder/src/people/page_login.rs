//! Logins by a page, of an address or of a site: their sessions, and the check of a password that was typed.

use super::files::{FileStamp, KnownUsers};
use super::login::{Attempt, Checked, LoginReply};
use super::verifier::Busy;
use super::{CookieSessions, LoginState, PageSessions, UserMark};
use crate::base64;
use crate::helper::Helpers;
use aws_lc_rs::digest::{Context, SHA256};
use std::net::IpAddr;
use std::sync::Arc;

impl LoginState {
    /// The sessions of a login of page.
    pub fn sessions(&self) -> &Arc<PageSessions> {
        &self.sessions
    }

    /// Goes on with the sessions of the login whose place it takes.
    pub(super) fn take_sessions(&mut self, old: &LoginState) {
        self.sessions = Arc::clone(&old.sessions);
    }

    /// By which the files of users and groups in force are known.
    pub fn stamp(&self) -> FileStamp {
        self.files().stamp()
    }

    /// Whether a password that was typed is right, as one of Basic is: remembered, limited and counted alike.
    pub async fn check_password(
        self: &Arc<Self>,
        client: IpAddr,
        (user, password): (&str, &str),
        helpers: &Helpers,
    ) -> LoginReply {
        // The first colon ends the user of Basic (RFC 7617 section 2): this would be checked as another one.
        let user = if user.contains(':') { "" } else { user };
        let field = format!("Basic {}", base64::encode(format!("{user}:{password}").as_bytes()));
        let attempt =
            Attempt { field: Some(&field), method: "POST", target: "", path: "", client, connection: None, edition: 0 };
        match self.check(&attempt) {
            Checked::User(user, until) => Ok((user, until)),
            Checked::Refused(refusal) => Err(refusal),
            Checked::Question(question) => question.find_out(helpers).await,
        }
    }

    /// The sessions of a login of form; none of another one.
    pub fn cookie_sessions(&self) -> Option<&Arc<CookieSessions>> {
        self.cookies.as_ref()
    }

    /// All that is known here of a user, as a hash: where it is another one, a session of the user is over. `None`: there is no such user.
    /// Of users that a helper or a directory knows it says who knows them, and the groups in the file.
    pub fn mark(&self, user: &str) -> Option<UserMark> {
        let (files, config) = (self.files(), self.config());
        let known = match &files.users {
            KnownUsers::Passwords(users) => users.hash_text(user)?,
            KnownUsers::ByHelper => format!("helper {}", config.helper),
            KnownUsers::ByDirectory(_) => {
                format!("{:?} {} {:?}", config.ldap.servers, config.ldap.base, config.ldap.user_dn)
            }
            KnownUsers::Digests(_) | KnownUsers::Issuer(_) | KnownUsers::IssuerToCome => return None,
        };
        let mut sum = Context::new(&SHA256);
        for part in [&*config.name, user, &known].into_iter().chain(files.groups.of(user)) {
            sum.update(&(part.len() as u64).to_be_bytes());
            sum.update(part.as_bytes());
        }
        UserMark::try_from(sum.finish().as_ref()).ok()
    }

    /// Writes to disk which sessions have begun and ended, off the worker. Sessions go on in memory where that fails.
    pub async fn keep_sessions(&self) {
        if let Some(sessions) = self.cookies.clone()
            && let Err(Busy) = self.verifier.run(move || sessions.flush()).await
        {
            tracing::warn!(
                "login {}: sessions are written to disk later, for too many checks wait",
                self.config().name
            );
        }
    }
}
