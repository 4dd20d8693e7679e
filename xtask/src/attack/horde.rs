//! Many connections of one attacker, none of them waited for.

use crate::shell::Trouble;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::Duration;

/// Where attackers come from.
pub const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);

/// Connections that are open.
pub struct Horde {
    port: u16,
    from: Ipv4Addr,
    /// The connections.
    pub all: Vec<TcpStream>,
    /// How many were opened in all.
    pub opened: usize,
}

impl Horde {
    /// None yet, to this port of the server.
    pub fn at(port: u16) -> Horde {
        Horde { port, from: ATTACKER, all: Vec::new(), opened: 0 }
    }

    /// From another address.
    pub fn from(port: u16, from: Ipv4Addr) -> Horde {
        Horde { from, ..Horde::at(port) }
    }

    /// Opens one more, if that is possible, and says `words` on it.
    pub fn open(&mut self, words: &[u8]) -> bool {
        let Ok(mut stream) = connect_from(self.from, self.port) else {
            // The server's backlog is full, or it has had enough.
            std::thread::sleep(Duration::from_millis(2));
            return false;
        };
        let said = stream.write(words);
        self.opened += 1;
        self.all.push(stream);
        said.is_ok()
    }

    /// Opens until there are so many, or a tenth more tries than that were made.
    pub fn fill(&mut self, count: usize, words: impl Fn(usize) -> Vec<u8>) {
        for _ in 0..count + count / 10 {
            if self.all.len() < count {
                let number = self.opened;
                self.open(&words(number));
            }
        }
    }

    /// Says something on each; those whose server has left are dropped.
    pub fn say(&mut self, words: &[u8]) {
        self.all.retain_mut(|stream| match stream.write(words) {
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
    }

    /// Reads what is there; those whose server has left are dropped.
    pub fn hear(&mut self) {
        let mut room = [0; 16 * 1024];
        self.all.retain_mut(|stream| match stream.read(&mut room) {
            Ok(read) => read > 0,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
    }
}

/// A connection from an address of this machine; it does not block.
pub fn connect_from(from: Ipv4Addr, port: u16) -> std::io::Result<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrV4::new(from, 0))?;
    connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Thousands of connections on each side.
pub fn raise_descriptors() -> Result<(), Trouble> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).map_err(|error| format!("cannot raise the limit of descriptors: {error}"))
}
