//! SOCKS version 5 as a client speaks it (RFC 1928), and in [`server`] as a server does, with a login by user and password (RFC 1929): a server
//! connects to a host and a port in the client's place, and from then on every byte goes through.
//!
//! ```text
//!  client: 5, number of methods, methods          server: 5, method
//!  client: 1, length, user, length, password      server: 1, 0 where it is right
//!  client: 5, 1 (connect), 0, kind, address, port server: 5, 0 where it has connected, 0, kind, address, port
//! ```
//!
//! A name goes to the server as it is, which looks it up. Each answer is read to its last byte and no further: what comes behind it is the
//! far end's.

pub mod server;

use crate::Host;
use std::fmt;
use std::net::IpAddr;

/// The port that servers listen on.
pub const DEFAULT_PORT: u16 = 1080;
/// A longer user, password or name can't be said.
pub const TEXT_BYTES_MAX: usize = 255;

const VERSION: u8 = 5;
const NO_LOGIN: u8 = 0;
const BY_PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// A client that asks for one connection.
pub struct Client<'a> {
    host: &'a Host,
    port: u16,
    login: Option<(&'a str, &'a str)>,
    state: State,
}

/// The answer that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Method,
    Login,
    Reply,
    NameLength,
    Address(usize),
}

/// The step that follows on an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// These bytes are sent, and the next answer is read.
    Send(Vec<u8>),
    /// More of the answer is read.
    Read,
    /// The server has connected.
    Connected,
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocksFault {
    /// The server speaks another protocol, or an older version.
    Version(u8),
    /// It takes no client without a login, and there is none.
    WantsLogin,
    /// It does not take this login.
    LoginRefused,
    /// It chose a method that was not offered.
    Method(u8),
    /// It did not connect, for this reason.
    Refused(u8),
    /// Its answer has an address of an unknown kind.
    AddressKind(u8),
}

impl SocksFault {
    /// Whether a person has to give another login.
    pub fn is_about_login(self) -> bool {
        matches!(self, SocksFault::WantsLogin | SocksFault::LoginRefused)
    }
}

impl fmt::Display for SocksFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocksFault::Version(version) => write!(f, "does not speak SOCKS 5: its answer begins with {version}"),
            SocksFault::WantsLogin => f.write_str("takes no client without a login that it knows"),
            SocksFault::LoginRefused => f.write_str("does not take the login"),
            SocksFault::Method(method) => write!(f, "chose the method {method}, which was not offered"),
            SocksFault::Refused(code) => write!(f, "did not connect: {}", reason(*code)),
            SocksFault::AddressKind(kind) => write!(f, "answered with an address of the unknown kind {kind}"),
        }
    }
}

impl std::error::Error for SocksFault {}

/// The reason of a refusal (RFC 1928 section 6).
fn reason(code: u8) -> &'static str {
    match code {
        1 => "a failure of the server",
        2 => "its rules do not permit it",
        3 => "the network is unreachable",
        4 => "the host is unreachable",
        5 => "the connection was refused",
        6 => "the time to live is over",
        7 => "it knows no CONNECT",
        8 => "it knows no such addresses",
        _ => "for an unknown reason",
    }
}

impl<'a> Client<'a> {
    /// Asks for a connection to this host and port. `None` where a text is longer than can be said.
    pub fn new((host, port): (&'a Host, u16), login: Option<(&'a str, &'a str)>) -> Option<Client<'a>> {
        let fits = |text: &str| (1..=TEXT_BYTES_MAX).contains(&text.len());
        let is_good = fits(host.as_str()) && login.is_none_or(|(user, password)| fits(user) && fits(password));
        is_good.then_some(Client { host, port, login, state: State::Method })
    }

    /// The first bytes that are sent.
    pub fn greeting(&self) -> Vec<u8> {
        match self.login {
            None => vec![VERSION, 1, NO_LOGIN],
            Some(_) => vec![VERSION, 2, NO_LOGIN, BY_PASSWORD],
        }
    }

    /// How many bytes are read next: never more than the answer has.
    pub fn wanted(&self) -> usize {
        match self.state {
            State::Method | State::Login => 2,
            State::Reply => 4,
            State::NameLength => 1,
            State::Address(len) => len,
        }
    }

    /// Takes the bytes that were read, as many as [`Client::wanted`] says.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Step, SocksFault> {
        let at = |place: usize| bytes.get(place).copied().unwrap_or_default();
        match self.state {
            State::Method if at(0) != VERSION => Err(SocksFault::Version(at(0))),
            State::Method => match (at(1), self.login) {
                (NO_LOGIN, _) => Ok(self.request()),
                (BY_PASSWORD, Some((user, password))) => {
                    self.state = State::Login;
                    let mut out = vec![1];
                    push_text(&mut out, user);
                    push_text(&mut out, password);
                    Ok(Step::Send(out))
                }
                (NO_METHOD, None) => Err(SocksFault::WantsLogin),
                // It wants one of another kind.
                (NO_METHOD, Some(_)) => Err(SocksFault::LoginRefused),
                (method, _) => Err(SocksFault::Method(method)),
            },
            // Servers differ about the version here; the status counts.
            State::Login if at(1) != 0 => Err(SocksFault::LoginRefused),
            State::Login => Ok(self.request()),
            State::Reply if at(0) != VERSION => Err(SocksFault::Version(at(0))),
            State::Reply if at(1) != 0 => Err(SocksFault::Refused(at(1))),
            State::Reply => {
                self.state = match at(3) {
                    IPV4 => State::Address(4 + 2),
                    IPV6 => State::Address(16 + 2),
                    NAME => State::NameLength,
                    kind => return Err(SocksFault::AddressKind(kind)),
                };
                Ok(Step::Read)
            }
            State::NameLength => {
                self.state = State::Address(usize::from(at(0)) + 2);
                Ok(Step::Read)
            }
            State::Address(_) => Ok(Step::Connected),
        }
    }

    fn request(&mut self) -> Step {
        self.state = State::Reply;
        let mut out = vec![VERSION, CONNECT, 0];
        match self.host.ip() {
            Some(IpAddr::V4(ip)) => {
                out.push(IPV4);
                out.extend_from_slice(&ip.octets());
            }
            Some(IpAddr::V6(ip)) => {
                out.push(IPV6);
                out.extend_from_slice(&ip.octets());
            }
            None => {
                out.push(NAME);
                push_text(&mut out, self.host.as_str());
            }
        }
        out.extend_from_slice(&self.port.to_be_bytes());
        Step::Send(out)
    }
}

/// A text behind its length, which fits into a byte.
fn push_text(out: &mut Vec<u8>, text: &str) {
    out.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays answers of a server to a client; gives what the client sent, and the bytes of the answers that it left.
    fn play(
        host: &str,
        login: Option<(&str, &str)>,
        mut answers: &[u8],
    ) -> (Vec<Vec<u8>>, Result<usize, Option<SocksFault>>) {
        let host = Host::parse(host).unwrap();
        let mut client = Client::new((&host, 443), login).unwrap();
        let mut sent = vec![client.greeting()];
        loop {
            let Some((bytes, rest)) = answers.split_at_checked(client.wanted()) else { return (sent, Err(None)) };
            answers = rest;
            match client.take(bytes) {
                Ok(Step::Send(bytes)) => sent.push(bytes),
                Ok(Step::Read) => {}
                Ok(Step::Connected) => return (sent, Ok(answers.len())),
                Err(fault) => return (sent, Err(Some(fault))),
            }
        }
    }

    const TO_V4: &[u8] = &[5, 0, 5, 0, 0, 1, 10, 0, 0, 1, 0, 80];

    #[test]
    fn conversations_that_lead_to_a_connection() {
        let request = |kind: u8, address: &[u8]| [&[5, 1, 0, kind], address, &[1, 187]].concat();
        let name = |name: &str| request(3, &[&[name.len() as u8], name.as_bytes()].concat());
        let login = [&[1, 3][..], b"joe", &[4], b"pear"].concat();
        let joe = Some(("joe", "pear"));
        let long = [&[5, 0, 5, 0, 0, 3, 4][..], b"home", &[0, 80]].concat();
        let v6 = [&[5, 0, 5, 0, 0, 4][..], &[0; 18]].concat();
        let with_login = [&[5, 2, 1, 0][..], &TO_V4[2..]].concat();
        let odd_version = [&[5, 2, 5, 0][..], &TO_V4[2..]].concat();
        for (host, login_of, answers, wanted) in [
            ("a.example", None, TO_V4, vec![vec![5, 1, 0], name("a.example")]),
            ("10.0.0.7", None, TO_V4, vec![vec![5, 1, 0], request(1, &[10, 0, 0, 7])]),
            ("[::1]", None, &v6, vec![vec![5, 1, 0], request(4, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])]),
            ("a.example", None, &long, vec![vec![5, 1, 0], name("a.example")]),
            ("a.example", joe, TO_V4, vec![vec![5, 2, 0, 2], name("a.example")]),
            ("a.example", joe, &with_login, vec![vec![5, 2, 0, 2], login.clone(), name("a.example")]),
            ("a.example", joe, &odd_version, vec![vec![5, 2, 0, 2], login.clone(), name("a.example")]),
        ] {
            assert_eq!(play(host, login_of, answers), (wanted.clone(), Ok(0)), "{host} {answers:?}");
            // Bytes that the far end says at once are not read, and an answer that ends early is none.
            let greeted = [answers, b"SSH-2.0"].concat();
            assert_eq!(play(host, login_of, &greeted), (wanted, Ok(7)), "{host} {answers:?}");
            for len in 0..answers.len() {
                assert_eq!(play(host, login_of, &answers[..len]).1, Err(None), "{host} {len} of {answers:?}");
            }
        }
    }

    #[test]
    fn conversations_that_fail_are_named() {
        let joe = Some(("joe", "pear"));
        for (login, answers, wanted) in [
            (None, &[4, 0][..], SocksFault::Version(4)),
            (None, b"HT", SocksFault::Version(b'H')),
            (None, &[5, 0xff], SocksFault::WantsLogin),
            (joe, &[5, 0xff], SocksFault::LoginRefused),
            (joe, &[5, 2, 1, 1], SocksFault::LoginRefused),
            (None, &[5, 2], SocksFault::Method(2)),
            (joe, &[5, 1], SocksFault::Method(1)),
            (None, &[5, 0, 5, 5, 0, 1], SocksFault::Refused(5)),
            (None, &[5, 0, 5, 99, 0, 1], SocksFault::Refused(99)),
            (None, &[5, 0, 4, 0, 0, 1], SocksFault::Version(4)),
            (None, &[5, 0, 5, 0, 0, 9], SocksFault::AddressKind(9)),
        ] {
            let (_, ended) = play("a.example", login, answers);
            assert_eq!(ended, Err(Some(wanted)), "{answers:?}");
            assert!(!wanted.to_string().is_empty());
        }
        assert!(SocksFault::LoginRefused.is_about_login() && !SocksFault::Refused(2).is_about_login());
    }

    #[test]
    fn texts_that_do_not_fit_are_no_request() {
        let host = Host::parse("a.example").unwrap();
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        for login in [("", "p"), ("u", ""), (long.as_str(), "p"), ("u", long.as_str())] {
            assert!(Client::new((&host, 1), Some(login)).is_none());
        }
        assert!(Client::new((&host, 1), Some((&long[1..], &long[1..]))).is_some());
    }
}
