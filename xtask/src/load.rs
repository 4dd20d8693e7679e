//! A load of many addresses: connections that are kept, one request after the other on each, all of them in one
//! thread. Every length is checked, and the bytes of one object in some against the law.

use crate::law;
use crate::shell::Trouble;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A load on a server.
pub struct Load<'a, Next> {
    /// The server on 127.0.0.1.
    pub port: u16,
    /// Length of every object.
    pub length: u64,
    /// How many ask at once.
    pub connections: usize,
    /// The next object; `None` is the end, answers under way are awaited.
    pub next: &'a mut Next,
}

/// The result of a load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Answers that were whole and right.
    pub right: u64,
    /// Those among them whose bytes were compared.
    pub compared: u64,
    /// Others, lost connections included.
    pub wrong: u64,
    /// From the first request to the last answer.
    pub wall: Duration,
}

/// The bytes of one object in so many are compared.
const COMPARED_ONE_IN: u64 = 16;
const PATIENCE: Duration = Duration::from_secs(20);
const READ_BYTES: usize = 256 * 1024;
const HEAD_BYTES_MAX: usize = 16 * 1024;

impl<Next: FnMut() -> Option<u64>> Load<'_, Next> {
    /// Plays it to its end.
    pub fn play(self) -> Result<Outcome, Trouble> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| format!("no epoll: {error}"))?;
        let (mut clients, mut outcome, began) = (Vec::new(), Outcome::default(), Instant::now());
        let mut busy = 0;
        for number in 0..self.connections {
            let Some(object) = (self.next)() else { break };
            let mut client = Client::open(&poll, self.port, number as u64)?;
            client.ask(object, self.length).map_err(|error| format!("port {}: {error}", self.port))?;
            clients.push(client);
            busy += 1;
        }
        let (mut events, mut buffer, mut heard) = (Vec::with_capacity(256), vec![0; READ_BYTES], Instant::now());
        let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
        while busy > 0 {
            events.clear();
            match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&second)) {
                Ok(0) if heard.elapsed() > PATIENCE => {
                    return Err(format!("port {}: {busy} answers are missing for {PATIENCE:?}", self.port));
                }
                Err(error) if error != rustix::io::Errno::INTR => return Err(format!("epoll: {error}")),
                Ok(1..) => heard = Instant::now(),
                _ => {}
            }
            for event in &events {
                let number = event.data.u64() as usize;
                let done = match clients[number].read(&mut buffer, self.length) {
                    Ok(None) => continue,
                    Ok(Some(is_compared)) => {
                        outcome.right += 1;
                        outcome.compared += u64::from(is_compared);
                        true
                    }
                    Err(trouble) => {
                        if outcome.wrong < 3 {
                            eprintln!("xtask: port {}: {trouble}", self.port);
                        }
                        outcome.wrong += 1;
                        false
                    }
                };
                let Some(object) = (self.next)() else {
                    epoll::delete(&poll, &clients[number].stream).map_err(|error| format!("epoll: {error}"))?;
                    busy -= 1;
                    continue;
                };
                // After an error, or where the server leaves between two answers, the next one needs a new way.
                if !done || clients[number].ask(object, self.length).is_err() {
                    clients[number] = Client::open(&poll, self.port, number as u64)?;
                    clients[number].ask(object, self.length).map_err(|error| format!("asking: {error}"))?;
                }
            }
        }
        outcome.wall = began.elapsed();
        Ok(outcome)
    }
}

struct Client {
    stream: TcpStream,
    object: u64,
    head: Vec<u8>,
    /// Body bytes that came; `None` before the end of the head.
    at: Option<u64>,
}

impl Client {
    fn open(poll: &OwnedFd, port: u16, number: u64) -> Result<Client, Trouble> {
        let open = || -> std::io::Result<TcpStream> {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            epoll::add(poll, &stream, EventData::new_u64(number), EventFlags::IN)?;
            Ok(stream)
        };
        let stream = open().map_err(|error| format!("port {port}: {error}"))?;
        Ok(Client { stream, object: 0, head: Vec::new(), at: None })
    }

    fn ask(&mut self, object: u64, length: u64) -> std::io::Result<()> {
        (self.object, self.at) = (object, None);
        self.head.clear();
        let request = format!("GET /{object}/{length} HTTP/1.1\r\nHost: objects.test\r\n\r\n");
        self.stream.write_all(request.as_bytes())
    }

    /// Reads once; at the end of an answer gives whether its bytes were compared.
    fn read(&mut self, buffer: &mut [u8], length: u64) -> Result<Option<bool>, String> {
        let read = match self.stream.read(buffer) {
            Ok(0) => return Err(format!("closed after {:?} of {length} bytes", self.at)),
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => return Ok(None),
            Err(error) => return Err(format!("reading: {error}")),
        };
        let got = &buffer[..read];
        match self.at {
            Some(at) => self.take(at, got, length)?,
            None => {
                self.head.extend_from_slice(got);
                let Some(end) = self.head.windows(4).position(|window| window == b"\r\n\r\n") else {
                    return if self.head.len() > HEAD_BYTES_MAX { Err("an endless head".into()) } else { Ok(None) };
                };
                judge_head(&self.head[..end], length)?;
                let body = self.head.split_off(end + 4);
                self.take(0, &body, length)?;
            }
        }
        Ok((self.at == Some(length)).then_some(self.is_compared()))
    }

    fn is_compared(&self) -> bool {
        law::mix(self.object).is_multiple_of(COMPARED_ONE_IN)
    }

    fn take(&mut self, at: u64, got: &[u8], length: u64) -> Result<(), String> {
        let end = at + got.len() as u64;
        if end > length {
            return Err(format!("{} bytes too many", end - length));
        }
        if self.is_compared() && law::bytes(self.object, 0, at..end) != got {
            return Err(format!("wrong bytes of object {} between {at} and {end}", self.object));
        }
        self.at = Some(end);
        Ok(())
    }
}

fn judge_head(head: &[u8], length: u64) -> Result<(), String> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 200") {
        return Err(format!("answered {status:?}"));
    }
    let said = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<u64>().ok())?
    });
    if said == Some(length) { Ok(()) } else { Err(format!("said {said:?} bytes instead of {length}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::Origin;

    #[test]
    fn every_object_is_asked_for_once_and_wrong_lengths_are_seen() {
        let (origin, port) = Origin::start().unwrap();
        let mut objects = 0..100;
        let outcome = Load { port, length: 3_000, connections: 7, next: &mut || objects.next() }.play().unwrap();
        let asked = origin.requests.load(std::sync::atomic::Ordering::SeqCst);
        assert_eq!((outcome.right, outcome.wrong, asked), (100, 0, 100));
        assert!(outcome.compared > 0 && outcome.compared < 50);
    }

    #[test]
    fn heads_are_judged() {
        assert!(judge_head(b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 5", 5).is_ok());
        assert!(judge_head(b"HTTP/1.1 200 OK\r\nContent-Length: 4", 5).is_err());
        assert!(judge_head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", 5).is_err());
        assert!(judge_head(b"HTTP/1.1 502 No\r\nContent-Length: 5", 5).is_err());
    }
}
