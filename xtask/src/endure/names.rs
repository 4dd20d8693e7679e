//! A name server that can be made to fail: it says 127.0.0.1 for every name, nothing, an error, or far too much.

use crate::shell::Trouble;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// How it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// One address that lives for two seconds.
    Right = 0,
    /// Nothing.
    Silent = 1,
    /// SERVFAIL.
    Fails = 2,
    /// Hundreds of addresses, the right one among them.
    Floods = 3,
}

/// It serves until the process ends.
pub struct NameServer {
    /// Where it is asked, at port 53.
    pub address: Ipv4Addr,
    mood: Arc<AtomicU8>,
}

/// More than fit into one packet of Ethernet, fewer than one of UDP takes.
const FLOOD: u16 = 200;

impl NameServer {
    /// Begins to answer, at an address of the loopback range that nobody else uses at port 53.
    pub fn start() -> Result<NameServer, Trouble> {
        let tried = (77..97).map(|last| Ipv4Addr::new(127, 0, 53, last));
        let bound = tried.filter_map(|address| Some((address, UdpSocket::bind((address, 53)).ok()?))).next();
        let (address, socket) = bound.ok_or("no address of 127.0.53.0/24 is free at port 53")?;
        let mood = Arc::new(AtomicU8::new(Mood::Right as u8));
        let server = NameServer { address, mood: Arc::clone(&mood) };
        std::thread::spawn(move || {
            let mut room = [0; 4_096];
            while let Ok((read, from)) = socket.recv_from(&mut room) {
                if let Some(answer) = answer(&room[..read], mood.load(Ordering::Relaxed)) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Ok(server)
    }

    /// From now on it answers so.
    pub fn be(&self, mood: Mood) {
        self.mood.store(mood as u8, Ordering::Relaxed);
    }
}

/// RFC 1035 section 4: the question comes back, addresses behind it.
fn answer(question: &[u8], mood: u8) -> Option<Vec<u8>> {
    if question.len() < 17 || mood == Mood::Silent as u8 {
        return None;
    }
    let name_end = 12 + question[12..].iter().position(|byte| *byte == 0)?;
    let question_end = name_end + 5;
    let kind = u16::from_be_bytes([*question.get(name_end + 1)?, *question.get(name_end + 2)?]);
    const ADDRESS: u16 = 1;
    let count = match mood {
        mood if mood == Mood::Fails as u8 => 0,
        _ if kind != ADDRESS => 0,
        mood if mood == Mood::Floods as u8 => FLOOD,
        _ => 1,
    };
    let code = if mood == Mood::Fails as u8 { 0x82 } else { 0x80 };
    let mut out = question[..2].to_vec();
    out.extend_from_slice(&[0x81, code, 0, 1]);
    out.extend_from_slice(&count.to_be_bytes());
    out.extend_from_slice(&[0, 0, 0, 0]);
    out.extend_from_slice(question.get(12..question_end)?);
    for number in 0..count {
        out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 2, 0, 4, 127, 0, 0]);
        // All of them lead to this machine; a proxy that takes only the first few is right.
        out.push(if number == 0 { 1 } else { (number % 250) as u8 + 1 });
    }
    Some(out)
}
