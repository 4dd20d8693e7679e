//! One login: challenges, and whether a credential is right.

use super::connection::ConnectionLogin;
use super::directory::Directory;
use super::files::{KnownUsers, UserFiles};
use super::issuer::Issuer;
use super::sessions::PageSessions;
use super::turns::{NoTurn, Turn, Turns};
use super::verifier::{Busy, Verifier};
use super::{CookieSessions, LoginCounts, User, random};
use crate::base64;
use crate::clock;
use crate::config::{Login, LoginScheme};
use crate::helper::{HelperTrouble, Helpers};
use aws_lc_rs::hmac;
use larder_people::answer::{Answer, Outcome};
use larder_people::attempts::{Attempts, ClientKey, TURNS_MAX};
use larder_people::authorization::{Authorization, Basic};
use larder_people::digest::{self, Algorithm, CountState, Counts, Ha1, NonceState, Nonces, Response};
use larder_people::line;
use larder_people::memo::Memo;
use larder_people::token::{Keys, TokenFault, TokenRules};
use larder_rules::rate::client_key;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Credentials of one login that are remembered.
const REMEMBERED_MAX: usize = 20_000;

/// Memory for them: names and groups are small.
const REMEMBERED_BYTES_MAX: usize = 16 << 20;

/// Clients whose failed logins are known.
const CLIENTS_MAX: usize = 20_000;

/// Nonces whose counts are known.
const NONCES_MAX: usize = 20_000;

/// The longest credential that is read, in bytes.
const CREDENTIAL_BYTES_MAX: usize = 24 << 10;

/// A keyed hash of a credential.
pub(super) type CredentialHash = [u8; 32];

/// The state of one `[[login]]`.
pub struct LoginState {
    config: Arc<Login>,
    name: Arc<str>,
    files: RwLock<Arc<UserFiles>>,
    pub(super) verifier: Arc<Verifier>,
    counts: Arc<LoginCounts>,
    /// Drawn at the start: hashes of credentials say nothing outside this process.
    secret: hmac::Key,
    /// Users by their credentials, each with the client that gave it when it was checked.
    remembered: Mutex<Memo<CredentialHash, (Arc<User>, ClientKey)>>,
    turns: Arc<Turns>,
    nonces: Nonces,
    nonce_counts: Mutex<Counts>,
    issuer: Arc<Issuer>,
    directory: Directory,
    pub(super) sessions: Arc<PageSessions>,
    /// Of form.
    pub(super) cookies: Option<Arc<CookieSessions>>,
}

/// A request that wants to be let in.
pub struct Attempt<'a> {
    /// The value of `Proxy-Authorization` or `Authorization`.
    pub field: Option<&'a str>,
    /// The method.
    pub method: &'a str,
    /// The request target.
    pub target: &'a str,
    /// The path of its URL.
    pub path: &'a str,
    /// The client.
    pub client: IpAddr,
    /// The connection.
    pub connection: Option<&'a Arc<ConnectionLogin>>,
    /// The edition of what is known of people.
    pub edition: u64,
}

/// The part of an answer to an attempt that is known at once.
pub enum Checked {
    /// This user, until then.
    User(Arc<User>, Instant),
    /// Nobody.
    Refused(LoginRefusal),
    /// It has to be found out.
    Question(LoginQuestion),
}

/// The user that was found out, and until when that counts.
pub type LoginReply = Result<(Arc<User>, Instant), LoginRefusal>;

/// Why nobody is let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginRefusal {
    /// There is no credential of this scheme.
    Missing,
    /// The credential is wrong.
    Wrong,
    /// It is right, and its nonce is too old or was used: the client answers a new challenge by itself.
    Stale,
    /// The handshake goes on with this token.
    Continues(String),
    /// The client has failed too often, and has to wait.
    Limited(Duration),
    /// The login is bound to a connection, and this one is another proxy's.
    PassedOn,
    /// Whether it is right can't be found out.
    Trouble(&'static str),
}

/// A question about a credential, to be answered off the worker.
#[derive(Clone)]
pub struct LoginQuestion {
    login: Arc<LoginState>,
    client: IpAddr,
    asked: Asked,
    edition: u64,
}

#[derive(Clone)]
enum Asked {
    Password(Basic, CredentialHash),
    Token(String, CredentialHash),
    Digest { method: String, response: Box<Response> },
    Handshake { token: String, connection: Arc<ConnectionLogin> },
}

impl std::fmt::Debug for LoginQuestion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LoginQuestion({}, hidden)", self.login.config.name)
    }
}

impl LoginState {
    pub(super) fn new(
        config: Arc<Login>,
        files: UserFiles,
        verifier: Arc<Verifier>,
        counts: Arc<LoginCounts>,
    ) -> Result<LoginState, String> {
        let secret = || random::<32>().ok_or("the system has no random bytes for its secrets");
        Ok(LoginState {
            files: RwLock::new(Arc::new(files)),
            verifier,
            counts,
            secret: hmac::Key::new(hmac::HMAC_SHA256, &secret()?),
            remembered: Mutex::new(Memo::new(REMEMBERED_MAX, REMEMBERED_BYTES_MAX)),
            turns: Arc::new(Turns::new(Attempts::new(config.failures_max, config.failure_period, CLIENTS_MAX))),
            nonces: Nonces::new(&secret()?, config.nonce_ttl),
            nonce_counts: Mutex::new(Counts::new(NONCES_MAX)),
            issuer: Arc::default(),
            directory: Directory::new(&config.ldap),
            sessions: Arc::new(PageSessions::new(&secret()?, &config)),
            cookies: None,
            name: config.name.as_str().into(),
            config,
        })
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its settings.
    pub fn config(&self) -> &Arc<Login> {
        &self.config
    }

    /// Reads the files again where they have changed; whether they were taken up. Files that can't be read change nothing.
    pub(super) fn take_changed_files(&self) -> bool {
        let old = Arc::clone(&self.files.read());
        if !old.have_changed(&self.config) {
            return false;
        }
        match UserFiles::read(&self.config) {
            Ok(mut files) => {
                let warnings = std::mem::take(&mut files.warnings);
                warnings.iter().for_each(|warning| tracing::warn!("login {}: {warning}", self.config.name));
                {
                    let mut in_force = self.files.write();
                    if self.config.jwks.is_some() {
                        files.users = in_force.users.clone();
                    }
                    *in_force = Arc::new(files);
                }
                self.remembered.lock().clear();
                tracing::info!("login {}: its files have changed, and count now", self.config.name);
                true
            }
            Err(trouble) => {
                tracing::warn!(
                    "login {}: its files have changed, and the old ones count on: {trouble}",
                    self.config.name
                );
                old.mark_seen(&self.config);
                false
            }
        }
    }

    /// The files that count.
    pub(super) fn files(&self) -> Arc<UserFiles> {
        Arc::clone(&self.files.read())
    }

    /// The LDAP servers, where those know the users.
    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The fetches of the issuer's keys.
    pub(super) fn issuer(&self) -> &Arc<Issuer> {
        &self.issuer
    }

    /// The keys of the issuer, where they have been fetched.
    pub(super) fn keys(&self) -> Option<Arc<Keys>> {
        match &self.files.read().users {
            KnownUsers::Issuer(keys) => Some(Arc::clone(keys)),
            _ => None,
        }
    }

    /// Puts keys of the issuer in force; whether they are others than before. All tokens are checked again by them.
    pub(super) fn take_keys(&self, keys: Keys) -> bool {
        {
            let mut in_force = self.files.write();
            if matches!(&in_force.users, KnownUsers::Issuer(old) if **old == keys) {
                return false;
            }
            *in_force = Arc::new(in_force.with(KnownUsers::Issuer(Arc::new(keys))));
        }
        self.remembered.lock().clear();
        tracing::info!("login {}: the keys of its issuer have come, and count now", self.config.name);
        true
    }

    /// The challenges for a client that is refused.
    pub fn challenges(&self, refusal: &LoginRefusal) -> Vec<String> {
        let scheme = self.config.scheme.in_fields();
        match (self.config.scheme, refusal) {
            (LoginScheme::Basic, _) => {
                vec![format!("Basic realm={}, charset=\"UTF-8\"", digest::quoted(&self.config.realm))]
            }
            (LoginScheme::Bearer, LoginRefusal::Wrong) => {
                vec![format!("Bearer realm={}, error=\"invalid_token\"", digest::quoted(&self.config.realm))]
            }
            (LoginScheme::Bearer, _) => vec![format!("Bearer realm={}", digest::quoted(&self.config.realm))],
            (LoginScheme::Digest, _) => {
                let files = Arc::clone(&self.files.read());
                let (algorithms, userhash) = match &files.users {
                    KnownUsers::Digests(users) => (users.algorithms().to_vec(), true),
                    // Helpers of Squid know hashes by MD5.
                    _ => (vec![Algorithm::Md5], false),
                };
                let nonce = self.nonces.make(now_millis(), u64::from_ne_bytes(random().unwrap_or_default()));
                digest::challenges(&self.config.realm, &algorithms, &nonce, *refusal == LoginRefusal::Stale, userhash)
            }
            (LoginScheme::Negotiate | LoginScheme::Ntlm, LoginRefusal::Continues(token)) => {
                vec![format!("{scheme} {token}")]
            }
            (LoginScheme::Negotiate | LoginScheme::Ntlm, _) => vec![scheme.to_owned()],
            (LoginScheme::Page | LoginScheme::Form, _) => Vec::new(),
        }
    }

    /// Checks an attempt as far as that takes no time.
    pub fn check(self: &Arc<Self>, attempt: &Attempt<'_>) -> Checked {
        let scheme = self.config.scheme;
        let by_connection = || attempt.connection.and_then(|it| it.user(&self.name, attempt.edition));
        let field = match attempt.field {
            None => match by_connection() {
                Some(user) => return Checked::User(user, clock::instant()),
                None => return Checked::Refused(LoginRefusal::Missing),
            },
            // A client that sends another credential does not ask as the connection's user.
            Some(field) => match Authorization::parse(field).filter(|field| field.is(scheme.in_fields())) {
                Some(field) => field,
                None => return Checked::Refused(LoginRefusal::Missing),
            },
        };
        if field.rest.len() > CREDENTIAL_BYTES_MAX {
            return Checked::Refused(LoginRefusal::Wrong);
        }
        let hash = self.hash(field.rest);
        let is_remembered = matches!(scheme, LoginScheme::Basic | LoginScheme::Bearer);
        let (client, found) = (client_key(attempt.client), is_remembered.then(|| self.recall(&hash)).flatten());
        if let Some((user, until, _)) = found.as_ref().filter(|(_, _, of)| *of == client) {
            return Checked::User(Arc::clone(user), *until);
        }
        // A client that has failed too often is not told that it has guessed what others have.
        if let Some(wait) = self.turns.wait(&client) {
            return Checked::Refused(self.limited(wait));
        }
        if let Some((user, until, _)) = found {
            return Checked::User(user, until);
        }
        let asked = match scheme {
            LoginScheme::Basic => Basic::parse(field.rest, base64::decode).map(|basic| Asked::Password(basic, hash)),
            LoginScheme::Bearer => Some(Asked::Token(field.rest.to_owned(), hash)),
            LoginScheme::Digest => match self.check_digest(field.rest, attempt) {
                Ok(checked) => return checked,
                Err(asked) => asked,
            },
            LoginScheme::Negotiate | LoginScheme::Ntlm => attempt.connection.map(|connection| Asked::Handshake {
                token: field.rest.to_owned(),
                connection: Arc::clone(connection),
            }),
            // No field says who is here.
            LoginScheme::Page | LoginScheme::Form => return Checked::Refused(LoginRefusal::Missing),
        };
        match asked {
            Some(asked) => {
                let (client, edition) = (attempt.client, attempt.edition);
                Checked::Question(LoginQuestion { login: Arc::clone(self), client, asked, edition })
            }
            None => Checked::Refused(self.fails(attempt.client, "")),
        }
    }

    /// Answers to Digest are checked at once where a file knows the hashes; else the helper is asked for one.
    fn check_digest(&self, rest: &str, attempt: &Attempt<'_>) -> Result<Checked, Option<Asked>> {
        let Some(response) = Response::parse(rest) else { return Err(None) };
        if response.realm != self.config.realm || !response.is_for(attempt.target, attempt.path) {
            return Err(None);
        }
        let files = Arc::clone(&self.files.read());
        let KnownUsers::Digests(users) = &files.users else {
            let method = attempt.method.to_owned();
            return Err(Some(Asked::Digest { method, response: Box::new(response) }));
        };
        let user = match response.user_is_hashed {
            true => users.user_of_hash(&response.user),
            false => Some(response.user.as_str()),
        };
        let known = user.and_then(|user| Some((user, users.hash(user, response.algorithm)?)));
        let is_right = match known {
            Some((_, ha1)) => response.is_right(attempt.method, ha1),
            // As long as for a known one.
            None => {
                std::hint::black_box(response.is_right(attempt.method, &Ha1::of_nobody(response.algorithm)));
                false
            }
        };
        match known.filter(|_| is_right) {
            Some((user, _)) => Ok(self.settle_digest(&response, user, &[])),
            None => Ok(Checked::Refused(self.fails(attempt.client, &response.user))),
        }
    }

    /// The answer is right; its nonce decides.
    fn settle_digest(&self, response: &Response, user: &str, groups: &[String]) -> Checked {
        let is_good = self.nonces.state(&response.nonce, now_millis()) == NonceState::Good;
        if !is_good || self.nonce_counts.lock().note(&response.nonce, response.count) == CountState::Used {
            return Checked::Refused(LoginRefusal::Stale);
        }
        self.counts.right.fetch_add(1, Ordering::Relaxed);
        // Each request has a proof of its own.
        let files = Arc::clone(&self.files.read());
        Checked::User(self.user(&files, user, groups), clock::instant())
    }

    fn hash(&self, credential: &str) -> CredentialHash {
        let sum = hmac::sign(&self.secret, credential.as_bytes());
        <CredentialHash>::try_from(sum.as_ref()).unwrap_or_default()
    }

    /// A user with all groups that are known.
    fn user(&self, files: &UserFiles, name: &str, groups: &[String]) -> Arc<User> {
        let all: BTreeSet<&str> = groups.iter().map(String::as_str).chain(files.groups.of(name)).collect();
        Arc::new(User {
            name: name.into(),
            groups: all.into_iter().map(Box::from).collect(),
            login: self.config.name.as_str().into(),
        })
    }

    /// Remembers a credential that was right by these files, unless others count now.
    fn remember(
        &self,
        files: &Arc<UserFiles>,
        (hash, client): (CredentialHash, IpAddr),
        user: &Arc<User>,
        until: Instant,
    ) {
        let bytes =
            size_of::<User>() + user.name.len() + user.groups.iter().map(|group| group.len() + 32).sum::<usize>();
        if !self.config.ttl.is_zero() {
            // New files are put in force before all that is remembered is forgotten, so none of the old ones is kept after that.
            let mut remembered = self.remembered.lock();
            if Arc::ptr_eq(files, &self.files.read()) {
                remembered.keep(hash, (Arc::clone(user), client_key(client)), bytes, until);
            }
        }
    }

    /// Notes a failed login. Its password stands nowhere.
    pub(super) fn fails(&self, client: IpAddr, user: &str) -> LoginRefusal {
        self.turns.failed(&client_key(client));
        self.counts.wrong.fetch_add(1, Ordering::Relaxed);
        let client = client.to_canonical();
        match user {
            "" => tracing::warn!("login {}: a credential from {client} is wrong", self.config.name),
            user => tracing::warn!("login {}: a credential of {user:?} from {client} is wrong", self.config.name),
        }
        LoginRefusal::Wrong
    }
}

impl LoginQuestion {
    /// Finds out whether the credential is right. Cancel-safe.
    pub async fn find_out(self, helpers: &Helpers) -> LoginReply {
        let LoginQuestion { login, client, asked, edition } = self;
        match asked {
            Asked::Password(basic, hash) if !login.config.ldap.servers.is_empty() => {
                login.password_by_directory(client, basic, hash).await
            }
            Asked::Password(basic, hash) if login.config.helper.is_empty() => login.password(client, basic, hash).await,
            Asked::Password(basic, hash) => login.password_by_helper(helpers, client, (basic, hash)).await,
            Asked::Token(token, hash) => login.token(client, token, hash).await,
            Asked::Digest { method, response } => login.digest_by_helper(helpers, client, (&method, &response)).await,
            Asked::Handshake { token, connection } => {
                login.handshake(helpers, client, (&token, &connection), edition).await
            }
        }
    }
}

impl LoginState {
    /// A turn for a check.
    pub(super) async fn turn(&self, client: IpAddr, turns_max: u32) -> Result<Turn, LoginRefusal> {
        self.turns.begin(client_key(client), turns_max).await.map_err(|none| match none {
            NoTurn::Limited(wait) => self.limited(wait),
            NoTurn::Busy => LoginRefusal::Trouble("login-busy"),
        })
    }

    fn limited(&self, wait: Duration) -> LoginRefusal {
        self.counts.limited.fetch_add(1, Ordering::Relaxed);
        LoginRefusal::Limited(wait)
    }

    /// The user of a credential that is remembered, until when it counts, and the client that gave it first.
    pub(super) fn recall(&self, hash: &CredentialHash) -> Option<(Arc<User>, Instant, ClientKey)> {
        let remembered = self.remembered.lock();
        remembered.find(hash, clock::instant()).map(|((user, client), until)| (Arc::clone(user), until, *client))
    }

    /// A credential was right by these files: its user, and until when it counts.
    pub(super) fn lets_in(
        &self,
        files: &Arc<UserFiles>,
        (name, groups): (&str, &[String]),
        credential: (CredentialHash, IpAddr),
        valid_for: Duration,
    ) -> (Arc<User>, Instant) {
        self.counts.right.fetch_add(1, Ordering::Relaxed);
        let user = self.user(files, name, groups);
        let until = clock::instant() + valid_for.min(self.config.ttl);
        self.remember(files, credential, &user, until);
        (user, until)
    }

    /// The check counts where it is made: whether its client still waits for it is nothing to the limit.
    async fn password(self: &Arc<Self>, client: IpAddr, basic: Basic, hash: CredentialHash) -> LoginReply {
        let (login, turn) = (Arc::clone(self), self.turn(client, TURNS_MAX).await?);
        let check = move || {
            let _turn = turn;
            // Another request of the page may have had the same one checked meanwhile.
            if let Some((user, until, _)) = login.recall(&hash) {
                return Ok((user, until));
            }
            let files = Arc::clone(&login.files.read());
            let is_right = match &files.users {
                KnownUsers::Passwords(users) => users.is_right(&basic.user, &basic.password),
                _ => false,
            };
            match is_right {
                true => Ok(login.lets_in(&files, (&basic.user, &[]), (hash, client), login.config.ttl)),
                false => Err(login.fails(client, &basic.user)),
            }
        };
        self.verifier.run(check).await.map_err(|Busy| LoginRefusal::Trouble("login-busy"))?
    }

    /// A token with a key that is not known is checked again once the issuer's keys were fetched, where they come from a URL. It counts as
    /// failed only then.
    async fn token(self: &Arc<Self>, client: IpAddr, token: String, hash: CredentialHash) -> LoginReply {
        let turn = self.turn(client, TURNS_MAX).await?;
        let token: Arc<str> = token.into();
        let check = |login: &Arc<LoginState>| {
            let (login, token) = (Arc::clone(login), Arc::clone(&token));
            move || login.check_token(&token, (hash, client))
        };
        let busy = |Busy| LoginRefusal::Trouble("login-busy");
        let keys = || self.config.jwks.as_ref().and_then(|_| self.keys());
        let before = keys();
        let mut checked = self.verifier.run(check(self)).await.map_err(busy)?;
        let is_key_missing = matches!(checked, Err(TokenTrouble::NoKeys | TokenTrouble::Fault(TokenFault::Key)));
        if is_key_missing && self.config.jwks.is_some() {
            let is_fetched = self.issuer.fetch_again().await;
            // They may also have come between the check and the question for them.
            if is_fetched || keys().as_ref().map(Arc::as_ptr) != before.as_ref().map(Arc::as_ptr) {
                checked = self.verifier.run(check(self)).await.map_err(busy)?;
            }
        }
        let reply = match checked {
            Ok(found) => Ok(found),
            Err(TokenTrouble::NoKeys) => Err(LoginRefusal::Trouble("login-keys")),
            Err(TokenTrouble::Fault(fault)) => {
                tracing::info!("login {}: a token is refused: {}", self.config.name, fault.as_str());
                Err(self.fails(client, ""))
            }
        };
        drop(turn);
        reply
    }

    fn check_token(
        &self,
        token: &str,
        (hash, client): (CredentialHash, IpAddr),
    ) -> Result<(Arc<User>, Instant), TokenTrouble> {
        if let Some((user, until, _)) = self.recall(&hash) {
            return Ok((user, until));
        }
        let files = Arc::clone(&self.files.read());
        let KnownUsers::Issuer(keys) = &files.users else { return Err(TokenTrouble::NoKeys) };
        let config = &self.config;
        let rules = TokenRules {
            issuer: config.issuer.clone(),
            audience: config.audience.clone(),
            user_claim: config.user_claim.clone(),
            groups_claim: config.groups_claim.clone(),
        };
        let now = clock::wall().as_secs();
        let claims = keys.check(token, &rules, now).map_err(TokenTrouble::Fault)?;
        let valid_for = Duration::from_secs(claims.until.saturating_sub(now));
        Ok(self.lets_in(&files, (&claims.user, &claims.groups), (hash, client), valid_for))
    }

    async fn password_by_helper(
        self: &Arc<Self>,
        helpers: &Helpers,
        client: IpAddr,
        (basic, hash): (Basic, CredentialHash),
    ) -> LoginReply {
        let _turn = self.turn(client, TURNS_MAX).await?;
        if let Some((user, until, _)) = self.recall(&hash) {
            return Ok((user, until));
        }
        let files = Arc::clone(&self.files.read());
        let answer = self.ask(helpers, line::basic(basic.user.as_bytes(), &basic.password)).await?;
        let name = answer.get("user").unwrap_or(&basic.user);
        match answer.result {
            Outcome::Ok => Ok(self.lets_in(&files, (name, &groups_of(&answer)), (hash, client), self.config.ttl)),
            _ => Err(self.fails(client, name)),
        }
    }

    async fn digest_by_helper(
        self: &Arc<Self>,
        helpers: &Helpers,
        client: IpAddr,
        (method, response): (&str, &Response),
    ) -> LoginReply {
        let Some(line) = line::digest(&response.user, &response.realm) else { return Err(self.fails(client, "")) };
        let _turn = self.turn(client, TURNS_MAX).await?;
        let answer = self.ask(helpers, line).await?;
        let ha1 = answer.get("ha1").and_then(Ha1::parse).filter(|_| answer.result == Outcome::Ok);
        let ha1 = ha1.filter(|(algorithm, _)| *algorithm == response.algorithm).map(|(_, ha1)| ha1);
        match ha1.filter(|ha1| response.is_right(method, ha1)) {
            None => Err(self.fails(client, &response.user)),
            Some(_) => match self.settle_digest(response, &response.user, &groups_of(&answer)) {
                Checked::User(user, until) => Ok((user, until)),
                Checked::Refused(refusal) => Err(refusal),
                Checked::Question(_) => Err(LoginRefusal::Wrong),
            },
        }
    }

    /// One step of a handshake. It has its turn until it ends, so that no client holds all processes of a helper.
    async fn handshake(
        self: &Arc<Self>,
        helpers: &Helpers,
        client: IpAddr,
        (token, connection): (&str, &Arc<ConnectionLogin>),
        edition: u64,
    ) -> LoginReply {
        let pool = helpers.find(&self.config.helper).ok_or(LoginRefusal::Trouble("helper-gone"))?;
        let (conversation, turn) = match connection.take_conversation(&self.name) {
            Some((conversation, turn)) => (Some(conversation), turn),
            // A handshake has a process for itself, so that one client gets half of them.
            None => {
                (None, self.turn(client, u32::try_from(pool.config().children_max / 2).unwrap_or(TURNS_MAX)).await?)
            }
        };
        let Some(line) = line::handshake(conversation.is_none(), token) else { return Err(self.fails(client, "")) };
        let asked = pool.converse(line, conversation).await;
        let (answer, conversation) = asked.map_err(|trouble| LoginRefusal::Trouble(trouble.as_str()))?;
        match (answer.result, conversation, answer.get("user")) {
            (Outcome::Continues, Some(conversation), _) => {
                let number = connection.continues(&self.name, conversation, turn);
                let (login, connection) = (Arc::clone(self), Arc::downgrade(connection));
                let patience = pool.config().timeout;
                tokio::spawn(async move { login.end_unfinished(client, &connection, number, patience).await });
                Err(LoginRefusal::Continues(answer.get("token").unwrap_or_default().to_owned()))
            }
            (Outcome::Ok, _, Some(name)) => {
                self.counts.right.fetch_add(1, Ordering::Relaxed);
                let files = Arc::clone(&self.files.read());
                let user = self.user(&files, name, &groups_of(&answer));
                connection.done(Arc::clone(&user), edition);
                Ok((user, clock::instant() + self.config.ttl))
            }
            _ => Err(self.fails(client, "")),
        }
    }

    /// Ends a handshake whose client says nothing more within `patience`. It counts as failed; one whose connection has ended does not.
    async fn end_unfinished(
        &self,
        client: IpAddr,
        connection: &Weak<ConnectionLogin>,
        number: u64,
        patience: Duration,
    ) {
        tokio::time::sleep(patience).await;
        if connection.upgrade().is_some_and(|connection| connection.leaves(number)) {
            self.fails(client, "");
        }
    }

    async fn ask(&self, helpers: &Helpers, line: Vec<u8>) -> Result<Arc<Answer>, LoginRefusal> {
        let refused = |trouble: HelperTrouble| LoginRefusal::Trouble(trouble.as_str());
        let pool = helpers.find(&self.config.helper).ok_or_else(|| refused(HelperTrouble::Gone))?;
        let Some(answer) = pool.remembered(&line) else { return pool.ask(line).await.map_err(refused) };
        Ok(answer)
    }
}

/// Why a token lets nobody in.
#[derive(Clone, Copy)]
enum TokenTrouble {
    /// The keys of the issuer are not there yet.
    NoKeys,
    Fault(TokenFault),
}

fn groups_of(answer: &Answer) -> Vec<String> {
    answer.all("group").flat_map(|groups| groups.split(',')).map(|group| group.trim().to_owned()).collect()
}

fn now_millis() -> u64 {
    u64::try_from(clock::wall().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loaded;
    use crate::people::People;

    /// A login whose file has ada with the password `secret`.
    fn login(settings: &str) -> (tempfile::TempDir, People, Arc<LoginState>) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        std::fs::write(&file, "ada:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n").unwrap();
        let text = format!("[[login]]\nname = \"office\"\nscheme = \"basic\"\nfile = {file:?}\n{settings}");
        let loaded = Loaded::parse("test", &text, &[]).unwrap_or_else(|report| panic!("{report}"));
        let people = People::default();
        let login = people.prepare(&loaded.config).unwrap().logins.remove(0);
        (folder, people, login)
    }

    #[test]
    fn a_credential_is_not_remembered_by_files_that_have_changed() {
        let (folder, _people, login) = login("");
        let (old, hash) = (Arc::clone(&login.files.read()), login.hash("x"));
        let let_in =
            |files: &Arc<UserFiles>| login.lets_in(files, ("ada", &[]), (hash, [192, 0, 2, 1].into()), Duration::MAX);
        let (_, until) = let_in(&old);
        assert!(until <= clock::instant() + login.config.ttl, "a token without an end in sight counts for `ttl`");
        assert!(login.recall(&hash).is_some());
        std::fs::write(folder.path().join("users"), "bob:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n").unwrap();
        assert!(login.take_changed_files() && login.recall(&hash).is_none());
        // A check that had begun before ends only now.
        let_in(&old);
        assert!(login.recall(&hash).is_none());
        let_in(&Arc::clone(&login.files.read()));
        assert!(login.recall(&hash).is_some());
    }

    /// Credentials that are known count for the client that has given them, however often its name was misused. Others learn no more by
    /// them than by wrong ones.
    #[test]
    fn a_client_over_its_limit_guesses_no_password_that_is_remembered() {
        let (_folder, _people, login) = login("failures = 1\nfailure_period = \"1h\"\n");
        let credential = base64::encode(b"ada:secret");
        let from = |client: [u8; 4]| {
            let field = format!("Basic {credential}");
            let (field, client) = (Some(&*field), client.into());
            login.check(&Attempt { field, method: "GET", target: "", path: "/", client, connection: None, edition: 0 })
        };
        let (ada, guesser) = ([192, 0, 2, 1], [192, 0, 2, 2]);
        let files = Arc::clone(&login.files.read());
        login.lets_in(&files, ("ada", &[]), (login.hash(&credential), ada.into()), Duration::MAX);
        for client in [ada, guesser] {
            assert!(matches!(from(client), Checked::User(..)), "{client:?}");
            login.fails(client.into(), "ada");
        }
        assert!(matches!(from(ada), Checked::User(..)));
        assert!(matches!(from(guesser), Checked::Refused(LoginRefusal::Limited(_))));
    }

    #[tokio::test]
    async fn simultaneous_guesses_are_within_the_limit() {
        let (_folder, people, login) = login("failures = 3\nfailure_period = \"1h\"\n");
        let ask = |password: String, client: [u8; 4]| {
            let credential = base64::encode(format!("ada:{password}").as_bytes());
            let attempt = Attempt {
                field: Some(&format!("Basic {credential}")),
                method: "GET",
                target: "",
                path: "/",
                client: client.into(),
                connection: None,
                edition: 0,
            };
            match login.check(&attempt) {
                Checked::Question(question) => question,
                _ => panic!("{password} is known at once"),
            }
        };
        // All are asked before the first one has an answer.
        let guesses: Vec<_> = (0..20).map(|number| ask(format!("guess {number}"), [192, 0, 2, 1])).collect();
        let others: Vec<_> = (0..20).map(|_| ask("secret".into(), [192, 0, 2, 2])).collect();
        let (people, mut tasks) = (Arc::new(people), tokio::task::JoinSet::new());
        for question in guesses.into_iter().chain(others) {
            let people = Arc::clone(&people);
            tasks.spawn(async move { question.find_out(&people.helpers).await });
        }
        let replies = tasks.join_all().await;
        let count = |wanted: fn(&LoginRefusal) -> bool| {
            replies.iter().filter(|reply| reply.as_ref().is_err_and(wanted)).count()
        };
        assert_eq!(count(|refusal| *refusal == LoginRefusal::Wrong), 3, "{replies:?}");
        assert_eq!(count(|refusal| matches!(refusal, LoginRefusal::Limited(_))), 17, "{replies:?}");
        // A page asks for many things at once with the same password: it waits for the first check.
        assert_eq!(replies.iter().filter(|reply| reply.is_ok()).count(), 20, "{replies:?}");
    }
}
