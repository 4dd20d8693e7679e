//! A fixed responder: one thread, one reply, whatever is asked. It does as little as a server can, so that a run
//! against it shows the capacity of the load generator.

use crate::engine::{Poll, Ready, Slot, Slots};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const LISTENER: u64 = 1;
const CONNECTION: u64 = 2;
const BUFFER_BYTES: usize = 64 * 1024;
const LOOK: Duration = Duration::from_millis(100);
const END: &[u8; 4] = b"\r\n\r\n";

/// Answers every request with the bytes of a file until it is ended.
#[derive(clap::Args, Debug)]
pub struct ResponderArgs {
    /// Where it listens
    listen: SocketAddr,
    /// The reply, head and body
    reply: PathBuf,
}

impl ResponderArgs {
    /// Serves for ever.
    pub fn run(&self) -> Result<ExitCode, String> {
        let reply = std::fs::read(&self.reply).map_err(|error| format!("{}: {error}", self.reply.display()))?;
        let listener = TcpListener::bind(self.listen).map_err(|error| format!("{}: {error}", self.listen))?;
        serve(&listener, &reply).map_err(|error| error.to_string())?;
        Ok(ExitCode::SUCCESS)
    }
}

struct Connection {
    stream: TcpStream,
    /// How much of the blank line that ends a head was seen.
    matched: usize,
    /// Replies that are owed, and how much of the first of them was written.
    owed: usize,
    written: usize,
}

fn serve(listener: &TcpListener, reply: &[u8]) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut poll = Poll::new()?;
    poll.listen(listener, LISTENER << 56)?;
    let (mut all, mut ready, mut buffer) = (Slots::<Connection>::default(), Vec::new(), vec![0; BUFFER_BYTES]);
    loop {
        poll.wait(LOOK, &mut ready)?;
        for Ready { token, ended, .. } in ready.drain(..) {
            let (kind, slot) = Slot::of_token(token);
            if kind == LISTENER {
                accept(listener, &poll, &mut all);
                continue;
            }
            let Some(connection) = all.at(slot) else { continue };
            if connection.go_on(reply, &mut buffer).is_err() || ended {
                all.remove(slot);
            }
        }
    }
}

fn accept(listener: &TcpListener, poll: &Poll, all: &mut Slots<Connection>) {
    while let Ok((stream, _)) = listener.accept() {
        if stream.set_nonblocking(true).is_err() || stream.set_nodelay(true).is_err() {
            continue;
        }
        let slot = all.insert(Connection { stream, matched: 0, owed: 0, written: 0 });
        let watched = all.at(slot).map(|one| poll.watch(&one.stream, slot.token(CONNECTION)));
        if !matches!(watched, Some(Ok(()))) {
            all.remove(slot);
        }
    }
}

impl Connection {
    /// Reads what is there, writes what is owed. `Err` when the other end is gone.
    fn go_on(&mut self, reply: &[u8], buffer: &mut [u8]) -> io::Result<()> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => {
                    self.owed += self.ends(&buffer[..len]);
                    if len < buffer.len() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        while self.owed > 0 {
            match self.stream.write(&reply[self.written..]) {
                Ok(len) => self.written += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            if self.written == reply.len() {
                (self.owed, self.written) = (self.owed - 1, 0);
            }
        }
        Ok(())
    }

    /// Heads that end in these bytes.
    fn ends(&mut self, bytes: &[u8]) -> usize {
        // One request a read is what all but pipelining clients send.
        if self.matched == 0 && bytes.ends_with(END) && !bytes[..bytes.len() - 4].windows(4).any(|w| w == END) {
            return 1;
        }
        let mut ends = 0;
        for byte in bytes {
            self.matched = match *byte == END[self.matched] {
                true => self.matched + 1,
                false => usize::from(*byte == b'\r'),
            };
            if self.matched == END.len() {
                (ends, self.matched) = (ends + 1, 0);
            }
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_head_gets_a_reply_however_it_is_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
        let mut stream = TcpStream::connect(address).unwrap();
        for piece in ["GET / HTTP/1.1\r\n\r", "\nGET / HTTP/1.1\r\nA: b\r\n\r\nGET / HTTP/1.1\r\n", "\r\n"] {
            stream.write_all(piece.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut replies = vec![0; 3 * 40];
        stream.read_exact(&mut replies).unwrap();
        assert_eq!(String::from_utf8(replies).unwrap().matches("200 OK").count(), 3);
    }
}
