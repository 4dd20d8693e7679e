//! SOCKS version 5 as a server speaks it: bytes of a client in, answers and the connection that it asks for out.

use super::{BY_PASSWORD, CONNECT, IPV4, IPV6, NAME, NO_LOGIN, NO_METHOD, VERSION};
use crate::Host;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// No message of a client is longer: a login with the longest user and password.
pub const MESSAGE_BYTES_MAX: usize = 3 + 255 + 255;

/// The version of the login by password (RFC 1929).
const LOGIN_VERSION: u8 = 1;

/// The answer to a client whose connection stands. The address is not told: programs do not ask for it.
pub const CONNECTED: &[u8] = &[VERSION, 0, 0, IPV4, 0, 0, 0, 0, 0, 0];

/// A client that has connected.
#[derive(Debug, Default)]
pub struct Server {
    state: State,
    login: Option<Login>,
}

/// The message that is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Greeting,
    Login,
    Request,
}

/// A user and a password, as the client gave them: any bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The user.
    pub user: Vec<u8>,
    /// The password.
    pub password: Vec<u8>,
}

/// The connection that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// To this host.
    pub host: Host,
    /// At this port.
    pub port: u16,
    /// The login that the client has given. Nobody has looked at it yet.
    pub login: Option<Login>,
}

/// The step that follows on bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerStep {
    /// More of the message is read.
    Read,
    /// So many bytes were a message, and these are the answer.
    Answer(usize, [u8; 2]),
    /// So many bytes were the request.
    Connect(usize, Asked),
}

/// Why a client gets no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFault {
    /// It speaks another protocol, or version 4.
    Version(u8),
    /// It offers no method that is known here: none, or a password.
    NoMethod,
    /// Its login has another form, or no user.
    Login,
    /// It asks for something else than a connection.
    Command(u8),
    /// It names its server by an address of an unknown kind.
    AddressKind(u8),
    /// It names no host, or port 0.
    Host,
}

impl fmt::Display for ServerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerFault::Version(version) => write!(f, "it does not speak SOCKS 5: its first byte is {version}"),
            ServerFault::NoMethod => f.write_str("it offers neither to go on without a login nor one by password"),
            ServerFault::Login => f.write_str("its login is none of RFC 1929"),
            ServerFault::Command(command) => {
                write!(f, "it asks for the command {command}, and only CONNECT is offered")
            }
            ServerFault::AddressKind(kind) => write!(f, "it names its server by an address of the unknown kind {kind}"),
            ServerFault::Host => f.write_str("it names no host with a port"),
        }
    }
}

impl std::error::Error for ServerFault {}

impl ServerFault {
    /// The last bytes that the client gets; none, where it could not read them.
    pub fn answer(self) -> Vec<u8> {
        match self {
            ServerFault::Version(_) => Vec::new(),
            ServerFault::NoMethod => vec![VERSION, NO_METHOD],
            ServerFault::Login => vec![LOGIN_VERSION, 1],
            ServerFault::Command(_) => refusal(7).to_vec(),
            ServerFault::AddressKind(_) => refusal(8).to_vec(),
            ServerFault::Host => refusal(4).to_vec(),
        }
    }
}

/// The answer to a client that gets no connection, for this reason (RFC 1928 section 6).
fn refusal(code: u8) -> [u8; 10] {
    [VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0]
}

/// [`CONNECTED`] for a connection that did not come about, by the status that a CONNECT would have got.
pub fn refusal_for(status: u16) -> [u8; 10] {
    refusal(match status {
        401 | 403 | 407 | 421 | 429 => 2,
        502..=504 => 4,
        _ => 1,
    })
}

impl Server {
    /// Takes all bytes of the client that were not used yet.
    ///
    /// # Errors
    ///
    /// The client breaks the protocol, or wants more of it than is offered.
    pub fn take(&mut self, bytes: &[u8]) -> Result<ServerStep, ServerFault> {
        match self.state {
            State::Greeting => self.greeted(bytes),
            State::Login => self.logged_in(bytes),
            State::Request => self.asked(bytes),
        }
    }

    /// A client that offers a password has one to give.
    fn greeted(&mut self, bytes: &[u8]) -> Result<ServerStep, ServerFault> {
        let [version, rest @ ..] = bytes else { return Ok(ServerStep::Read) };
        if *version != VERSION {
            return Err(ServerFault::Version(*version));
        }
        let Some((methods, used)) = text(rest).map(|methods| (methods, 2 + methods.len())) else {
            return Ok(ServerStep::Read);
        };
        let (state, method) = match (methods.contains(&BY_PASSWORD), methods.contains(&NO_LOGIN)) {
            (true, _) => (State::Login, BY_PASSWORD),
            (false, true) => (State::Request, NO_LOGIN),
            (false, false) => return Err(ServerFault::NoMethod),
        };
        self.state = state;
        Ok(ServerStep::Answer(used, [VERSION, method]))
    }

    fn logged_in(&mut self, bytes: &[u8]) -> Result<ServerStep, ServerFault> {
        let [version, rest @ ..] = bytes else { return Ok(ServerStep::Read) };
        if *version != LOGIN_VERSION {
            return Err(ServerFault::Login);
        }
        let Some(user) = text(rest) else { return Ok(ServerStep::Read) };
        let Some(password) = rest.get(1 + user.len()..).and_then(text) else { return Ok(ServerStep::Read) };
        // A colon would end the user where both become a credential of HTTP (RFC 7617 section 2).
        if user.is_empty() || user.contains(&b':') {
            return Err(ServerFault::Login);
        }
        self.login = Some(Login { user: user.to_vec(), password: password.to_vec() });
        self.state = State::Request;
        Ok(ServerStep::Answer(3 + user.len() + password.len(), [LOGIN_VERSION, 0]))
    }

    fn asked(&mut self, bytes: &[u8]) -> Result<ServerStep, ServerFault> {
        let [version, rest @ ..] = bytes else { return Ok(ServerStep::Read) };
        if *version != VERSION {
            return Err(ServerFault::Version(*version));
        }
        let [command, _, kind, rest @ ..] = rest else { return Ok(ServerStep::Read) };
        if *command != CONNECT {
            return Err(ServerFault::Command(*command));
        }
        let (host, used) = match *kind {
            IPV4 => {
                let Some(address) = rest.first_chunk::<4>() else { return Ok(ServerStep::Read) };
                (Some(Host::from(std::net::IpAddr::from(Ipv4Addr::from(*address)))), 4)
            }
            IPV6 => {
                let Some(address) = rest.first_chunk::<16>() else { return Ok(ServerStep::Read) };
                (Some(Host::from(std::net::IpAddr::from(Ipv6Addr::from(*address)))), 16)
            }
            NAME => {
                let Some(name) = text(rest) else { return Ok(ServerStep::Read) };
                (std::str::from_utf8(name).ok().and_then(Host::parse), 1 + name.len())
            }
            kind => return Err(ServerFault::AddressKind(kind)),
        };
        let Some(port) = rest.get(used..).and_then(|rest| rest.first_chunk::<2>()) else { return Ok(ServerStep::Read) };
        let (Some(host), port @ 1..) = (host, u16::from_be_bytes(*port)) else { return Err(ServerFault::Host) };
        Ok(ServerStep::Connect(4 + used + 2, Asked { host, port, login: self.login.take() }))
    }
}

/// A text behind its length; `None` while it is not whole.
fn text(bytes: &[u8]) -> Option<&[u8]> {
    let (len, rest) = bytes.split_first()?;
    rest.get(..usize::from(*len))
}

#[cfg(test)]
mod tests {
    use super::super::{Client, Step};
    use super::*;

    /// Plays a client in pieces of this size.
    fn play(client: &mut Client<'_>, piece: usize) -> Asked {
        let (mut server, mut read, mut going) = (Server::default(), Vec::new(), client.greeting());
        loop {
            for part in std::mem::take(&mut going).chunks(piece) {
                read.extend_from_slice(part);
                assert!(read.len() <= MESSAGE_BYTES_MAX);
                match server.take(&read).unwrap() {
                    ServerStep::Read => {}
                    ServerStep::Answer(used, answer) => {
                        read.drain(..used);
                        match client.take(&answer).unwrap() {
                            Step::Send(bytes) => going = bytes,
                            step => panic!("{step:?}"),
                        }
                    }
                    ServerStep::Connect(used, asked) => {
                        assert_eq!(used, read.len());
                        return asked;
                    }
                }
            }
        }
    }

    #[test]
    fn a_client_gets_what_it_asks_for_in_pieces_of_any_size() {
        for piece in [1, 2, 7, 1000] {
            for (text, port, login) in [
                ("a.test", 80, None),
                ("10.0.0.7", 443, Some(("ada", "pear:1"))),
                ("[2001:db8::1]", 8443, Some(("ada", "x"))),
            ] {
                let host = Host::parse(text).unwrap();
                let asked = play(&mut Client::new((&host, port), login).unwrap(), piece);
                let login = login.map(|(user, password)| Login { user: user.into(), password: password.into() });
                assert_eq!(asked, Asked { host, port, login });
            }
        }
    }

    #[test]
    fn faults_have_answers() {
        let after = |greeting: &[u8], bytes: &[u8]| {
            let mut server = Server::default();
            if !greeting.is_empty() {
                assert!(matches!(server.take(greeting), Ok(ServerStep::Answer(..))));
            }
            let fault = server.take(bytes).unwrap_err();
            (fault, fault.answer().get(1).copied())
        };
        let (open, by_password) = (&[5, 1, 0][..], &[5, 1, 2][..]);
        for (greeting, bytes, fault, code) in [
            (&[][..], &[4, 1][..], ServerFault::Version(4), None),
            (&[], b"GET / HTTP/1.1", ServerFault::Version(b'G'), None),
            (&[], &[5, 1, 1], ServerFault::NoMethod, Some(0xff)),
            (&[], &[5, 0], ServerFault::NoMethod, Some(0xff)),
            (by_password, &[1, 0, 1, b'x'], ServerFault::Login, Some(1)),
            (by_password, b"\x01\x03a:b\x01x", ServerFault::Login, Some(1)),
            (by_password, &[5, 1, 0], ServerFault::Login, Some(1)),
            (open, &[5, 2, 0, 1], ServerFault::Command(2), Some(7)),
            (open, &[5, 1, 0, 9], ServerFault::AddressKind(9), Some(8)),
            (open, b"\x05\x01\x00\x03\x03a b\x00\x50", ServerFault::Host, Some(4)),
            (open, b"\x05\x01\x00\x03\x00\x00\x50", ServerFault::Host, Some(4)),
            (open, b"\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x00", ServerFault::Host, Some(4)),
        ] {
            assert_eq!(after(greeting, bytes), (fault, code), "{bytes:?}");
        }
    }
}
