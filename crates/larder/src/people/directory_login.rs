//! A password that a directory knows: limited, counted and remembered as any other.

use super::directory::Check;
use super::files::KnownUsers;
use super::ldap::{Connection, Found};
use super::login::{CredentialHash, LoginRefusal, LoginReply, LoginState};
use larder_people::attempts::TURNS_MAX;
use larder_people::authorization::Basic;
use larder_people::ldap::Password;
use larder_people::ldap_text;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long a check may wait for a thread and for its answer altogether.
const CHECK_WITHIN: Duration = Duration::from_secs(30);

/// A reply, and the time before which it is not given.
type Timed = (LoginReply, Instant);

impl LoginState {
    /// The check counts where it is made: whether its client still waits for it is nothing to the limit.
    pub(super) async fn password_by_directory(
        self: &Arc<Self>,
        client: IpAddr,
        basic: Basic,
        hash: CredentialHash,
    ) -> LoginReply {
        let name = ldap_text::user_name(&basic.user).zip(Password::new(&basic.password));
        let Some((name, password)) = name else { return Err(self.fails(client, &basic.user)) };
        let (login, turn) = (Arc::clone(self), self.turn(client, TURNS_MAX).await?);
        let (send, receive) = oneshot::channel();
        let check: Check = Box::new(move |connection| {
            let _turn = turn;
            if !send.is_closed() {
                let _ = send.send(login.ask_directory(connection, client, (&name, &password), hash));
            }
        });
        let busy = || LoginRefusal::Trouble("login-busy");
        let queue = self.directory().queue().map_err(|_| busy())?;
        queue.try_send(check).map_err(|_| busy())?;
        let (reply, not_before) =
            tokio::time::timeout(CHECK_WITHIN, receive).await.ok().and_then(Result::ok).ok_or_else(busy)?;
        tokio::time::sleep_until(not_before.into()).await;
        reply
    }

    fn ask_directory(
        &self,
        connection: &mut Option<(usize, Connection)>,
        client: IpAddr,
        (name, password): (&str, &Password),
        hash: CredentialHash,
    ) -> Timed {
        let began = Instant::now();
        // Another request of the page may have had the same one checked meanwhile.
        if let Some((user, until, _)) = self.recall(&hash) {
            return (Ok((user, until)), began);
        }
        let files = self.files();
        let secret = match &files.users {
            KnownUsers::ByDirectory(secret) => secret.clone(),
            _ => None,
        };
        match self.directory().find(connection, (name, password), secret.as_deref()) {
            Ok(Found::Right(groups)) => {
                (Ok(self.lets_in(&files, (name, &groups), (hash, client), self.config().ttl)), began)
            }
            Ok(Found::Wrong) => (Err(self.fails(client, name)), began),
            Ok(Found::Unknown) => (Err(self.fails(client, name)), began + self.directory().refused_within()),
            Err(trouble) => {
                tracing::warn!(
                    "login {}: no LDAP server says whether {name:?} is right: {trouble}",
                    self.config().name
                );
                (Err(LoginRefusal::Trouble("login-ldap")), began)
            }
        }
    }
}
