//! A connection to an LDAP server, and the questions of a login on it: one at a time, each with an end.

use crate::config::{Ldap, LdapServer};
use crate::lists::download::{Timed, connect};
use crate::tls;
use larder_people::ber;
use larder_people::ldap::{self, LdapResult, MESSAGE_BYTES_MAX, Password, Reply, Scope, Search};
use larder_people::ldap_text::{self, Filter, Names};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A user is in so many groups at most; more are an error.
const GROUPS_MAX: u32 = 1_024;

/// Messages that answer one search.
const REPLIES_MAX: usize = 2_048;

/// All that answers one request, in bytes: 1,024 groups with long names are a tenth of it.
const REPLIES_BYTES_MAX: usize = 4 << 20;

/// Codes by which a server says that a user may not bind (RFC 4511 appendix A.2): the constraint of a locked account, no such entry, no
/// syntax of a name, no password, wrong, no rights, unwilling.
const REFUSALS: [u32; 7] = [19, 32, 34, 48, 49, 50, 53];

/// The answer of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The password is right; these are the groups.
    Right(Vec<String>),
    /// The server refused a bind.
    Wrong,
    /// No entry, or more than one: nothing was bound.
    Unknown,
}

/// A connection on which nothing is under way.
pub(super) struct Connection {
    stream: Stream,
    read: Vec<u8>,
    /// Bytes that have answered the last request.
    reply_bytes: usize,
    id: u32,
    /// Whether it is bound as the one who searches.
    is_searcher: bool,
    /// When it was used last.
    pub used: Instant,
}

enum Stream {
    Plain(Timed),
    Tls(Box<StreamOwned<ClientConnection, Timed>>),
}

fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

fn code(operation: &str, result: &LdapResult) -> io::Error {
    let more = if result.code == 10 { ", a referral, which is not followed" } else { "" };
    invalid(format!("{operation} was answered with code {}{more}: {:?}", result.code, result.words))
}

impl Connection {
    /// A new connection, with TLS where that is configured.
    pub fn open(
        server: &LdapServer,
        config: &Ldap,
        tls: Option<&Arc<ClientConfig>>,
        end: Instant,
    ) -> io::Result<Connection> {
        let plain = Timed { tcp: connect(&server.host, server.port, end)?, end };
        plain.tcp.set_nodelay(true)?;
        let stream = Stream::Plain(plain);
        let (read, used) = (Vec::new(), Instant::now());
        let mut new = Connection { stream, read, reply_bytes: 0, id: 0, is_searcher: false, used };
        if config.start_tls {
            let id = new.next_id();
            new.send(&ldap::start_tls(id))?;
            match new.reply(id)? {
                Reply::Extended(result) if result.code == 0 => {}
                Reply::Extended(result) => return Err(code("StartTLS", &result)),
                _ => return Err(invalid("StartTLS was answered by something else")),
            }
            // Bytes that came in clear must not count as protected ones.
            if !new.read.is_empty() {
                return Err(invalid("the server sent more in clear behind its answer to StartTLS"));
            }
        }
        if !server.tls && !config.start_tls {
            return Ok(new);
        }
        let tls = tls.ok_or_else(|| invalid("TLS is not ready"))?;
        let name = tls::server_name(&server.host).ok_or_else(|| invalid("no certificate can name its host"))?;
        let client = ClientConnection::new(Arc::clone(tls), name).map_err(io::Error::other)?;
        if let Stream::Plain(plain) = new.stream {
            new.stream = Stream::Tls(Box::new(StreamOwned::new(client, plain)));
        }
        Ok(new)
    }

    /// Finds out whether a password is right, and the groups of its user.
    pub fn find(
        &mut self,
        config: &Ldap,
        (user, password): (&str, &Password),
        secret: Option<&Password>,
        within: Duration,
    ) -> io::Result<Found> {
        self.set_end(Instant::now() + within);
        let (dn, mut groups) = match &config.filter {
            None => (ldap_text::dn_of(&config.user_dn, user), Vec::new()),
            Some(filter) => {
                self.bind_searcher(config, secret)?;
                let names = Names { user, dn: "" };
                let search = self.search(&config.base, Scope::Subtree, (&filter.filter, names), 2, &config.groups)?;
                match <[(String, Vec<String>); 1]>::try_from(search) {
                    Ok([(dn, groups)]) if !dn.is_empty() => (dn, groups),
                    _ => return Ok(Found::Unknown),
                }
            }
        };
        if !self.bind(&dn, password)? {
            return Ok(Found::Wrong);
        }
        let searches = !config.groups.is_empty() || config.groups_filter.is_some();
        if searches && !config.bind_dn.is_empty() {
            self.bind_searcher(config, secret)?;
        }
        let names = Names { user, dn: &dn };
        if config.filter.is_none() && !config.groups.is_empty() {
            let all = Filter::parse("(objectClass=*)").map_err(invalid)?;
            let found = self.search(&dn, Scope::Base, (&all, names), 1, &config.groups)?;
            groups.extend(found.into_iter().flat_map(|(_, groups)| groups));
        }
        if let Some(filter) = &config.groups_filter {
            let found = self.search(&config.groups_base, Scope::Subtree, (&filter.filter, names), GROUPS_MAX, "")?;
            groups.extend(found.into_iter().map(|(dn, _)| dn));
        }
        if groups.len() > GROUPS_MAX as usize {
            return Err(invalid(format!("the user is in more than {GROUPS_MAX} groups")));
        }
        let names = groups.iter().filter_map(|group| ldap_text::group_name(group, &config.groups_base));
        Ok(Found::Right(names.collect()))
    }

    /// Binds as the one who searches, unless it is that one already.
    fn bind_searcher(&mut self, config: &Ldap, secret: Option<&Password>) -> io::Result<()> {
        if self.is_searcher {
            return Ok(());
        }
        let id = self.next_id();
        let request = match secret.filter(|_| !config.bind_dn.is_empty()) {
            Some(secret) => ldap::bind(id, &config.bind_dn, secret),
            None => ldap::bind_as_nobody(id),
        };
        self.send(&request)?;
        match self.reply(id)? {
            Reply::Bind(result) if result.code == 0 => self.is_searcher = true,
            Reply::Bind(result) => return Err(code("the bind of `ldap_bind_dn`", &result)),
            _ => return Err(invalid("a bind was answered by something else")),
        }
        Ok(())
    }

    /// Whether a user's password is right.
    fn bind(&mut self, dn: &str, password: &Password) -> io::Result<bool> {
        self.is_searcher = false;
        let id = self.next_id();
        self.send(&ldap::bind(id, dn, password))?;
        match self.reply(id)? {
            Reply::Bind(result) if result.code == 0 => Ok(true),
            Reply::Bind(result) if REFUSALS.contains(&result.code) => Ok(false),
            Reply::Bind(result) => Err(code("the bind of a user", &result)),
            _ => Err(invalid("a bind was answered by something else")),
        }
    }

    /// The entries of a search, with the values of an attribute. More than `entries_max` are an error for groups; of users two say enough.
    fn search(
        &mut self,
        base: &str,
        scope: Scope,
        filter: (&Filter, Names<'_>),
        entries_max: u32,
        attribute: &str,
    ) -> io::Result<Vec<(String, Vec<String>)>> {
        let id = self.next_id();
        self.send(&ldap::search(id, &Search { base, scope, filter, entries_max, seconds_max: 60, attribute }))?;
        let mut found = Vec::new();
        for _ in 0..REPLIES_MAX {
            match self.reply(id)? {
                Reply::Entry { dn, attributes } => found.push((dn, ldap::values_of(attributes, attribute))),
                Reply::Reference => tracing::debug!("a search was answered with a referral, which is not followed"),
                Reply::Done(result) if result.code == 0 => return Ok(found),
                // More users than one.
                Reply::Done(result) if result.code == 4 && found.len() > 1 && entries_max == 2 => return Ok(found),
                Reply::Done(result) => return Err(code("a search", &result)),
                _ => return Err(invalid("a search was answered by something else")),
            }
        }
        Err(invalid(format!("a search has more than {REPLIES_MAX} answers")))
    }

    fn next_id(&mut self) -> u32 {
        self.id = self.id % 0x7fff_fff0 + 1;
        self.id
    }

    fn set_end(&mut self, end: Instant) {
        match &mut self.stream {
            Stream::Plain(timed) => timed.end = end,
            Stream::Tls(tls) => tls.sock.end = end,
        }
    }

    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.reply_bytes = 0;
        let stream: &mut dyn Write = match &mut self.stream {
            Stream::Plain(timed) => timed,
            Stream::Tls(tls) => tls,
        };
        stream.write_all(message)?;
        stream.flush()
    }

    /// The next message, which answers this request.
    fn reply(&mut self, id: u32) -> io::Result<Reply> {
        let fault = |_| invalid("the server sent no LDAP");
        loop {
            let length = ber::message_bytes(&self.read).map_err(fault)?;
            if length.is_some_and(|length| length > MESSAGE_BYTES_MAX) {
                return Err(invalid(format!("a message of the server is longer than {MESSAGE_BYTES_MAX} bytes")));
            }
            if let Some(message) = length.and_then(|length| self.read.get(..length)) {
                self.reply_bytes += message.len();
                if self.reply_bytes > REPLIES_BYTES_MAX {
                    return Err(invalid(format!(
                        "the answers to one request have more than {REPLIES_BYTES_MAX} bytes"
                    )));
                }
                let (found, reply) = ldap::reply(message).map_err(fault)?;
                self.read.drain(..length.unwrap_or(0));
                return match (found, reply) {
                    // A notice of disconnection (RFC 4511 section 4.4.1): on a connection that was idle it says no more than its end.
                    (0, Reply::Extended(result)) => {
                        let notice = code("the connection", &result);
                        Err(io::Error::new(io::ErrorKind::ConnectionAborted, notice.to_string()))
                    }
                    (found, reply) if found == id => Ok(reply),
                    _ => Err(invalid("the server answered something that was not asked")),
                };
            }
            let mut some = [0; 4 << 10];
            let read = match &mut self.stream {
                Stream::Plain(timed) => timed.read(&mut some),
                Stream::Tls(tls) => tls.read(&mut some),
            };
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.read.extend_from_slice(some.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
