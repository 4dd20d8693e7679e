//! How long the machine of a cache remembers a connection that the cache closed (TIME-WAIT).
//!
//! The MSL test of the cache-offs sent an old SYN each second with raw packets and waited for a new connection; it
//! passed if TIME-WAIT lasted 60 s. Linux fixes it at 60 s and rightly takes a SYN with a higher sequence number or a
//! newer timestamp at once (RFC 6191), so that test says little today. Here the state is observed: the cache is made to
//! close first, and the kernel's table of connections tells how long it keeps the pair of addresses. That needs no raw
//! packets and no root, but the cache must be on this machine.

use crate::stop;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The time that the test of 2000 asked for.
pub const ASKED: Duration = Duration::from_secs(60);
/// The timer of the kernel runs in steps; a state that is seen until this much before the minute lasted a minute.
const TOLERANCE: Duration = Duration::from_secs(1);
const TIME_WAIT: &str = "06";
const POLL: Duration = Duration::from_millis(100);
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Observes TIME-WAIT of a cache on this machine.
#[derive(clap::Args, Debug)]
pub struct MslArgs {
    /// The cache
    #[arg(value_name = "ADDR:PORT")]
    cache: SocketAddr,
    /// Seconds to watch
    #[arg(long, default_value_t = 90)]
    watch_s: u64,
}

impl MslArgs {
    /// Observes and prints; fails if the test of 2000 would have failed.
    pub fn run(&self) -> Result<ExitCode, String> {
        let observed = observe(self.cache, Duration::from_secs(self.watch_s))?;
        println!("{}", observed.verdict());
        Ok(if observed.passes() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// The state lasted this long.
    Lasted(Duration),
    /// It was there still when the watching ended.
    Longer(Duration),
    /// The cache's side never had it: it closed by a reset, or waited for the client to close.
    Never,
}

impl Observed {
    /// Whether the test of 2000 would have been passed.
    pub fn passes(self) -> bool {
        match self {
            Self::Lasted(time) | Self::Longer(time) => time + TOLERANCE >= ASKED,
            Self::Never => false,
        }
    }

    /// The result beside what the test of 2000 asked for.
    pub fn verdict(self) -> String {
        let (found, asked) = (self.sentence(), ASKED.as_secs());
        match self {
            Self::Longer(watched) if !self.passes() => {
                let watched = watched.as_secs();
                format!("{found}; the test of 2000 asked for {asked} s, and this one watched for {watched} s only")
            }
            passing if passing.passes() => format!("{found}; passes the test of 2000, which asked for {asked} s"),
            _ => format!("{found}; does not pass the test of 2000, which asked for {asked} s"),
        }
    }

    /// The result in a sentence.
    fn sentence(self) -> String {
        match self {
            Self::Lasted(time) => {
                format!("TIME-WAIT lasted {:.1} s, MSL is {:.1} s", time.as_secs_f64(), time.as_secs_f64() / 2.0)
            }
            Self::Longer(time) => format!("TIME-WAIT lasts longer than {:.0} s", time.as_secs_f64()),
            Self::Never => {
                "the cache's side never was in TIME-WAIT: it reset the connection, or the client had to close"
                    .to_owned()
            }
        }
    }
}

/// Makes the cache close a connection and watches its side of it.
pub fn observe(cache: SocketAddr, watch: Duration) -> Result<Observed, String> {
    let fail = |error: std::io::Error| format!("{cache} cannot be asked: {error}");
    let mut stream = TcpStream::connect_timeout(&cache, Duration::from_secs(5)).map_err(fail)?;
    let own = stream.local_addr().map_err(fail)?;
    stream.set_read_timeout(Some(POLL)).map_err(fail)?;
    // Junk, as in the test of 2000: every server answers with an error and closes.
    stream.write_all(b"\x01 junk\r\n\r\n").map_err(fail)?;
    let closed = closes(&mut stream);
    drop(stream);
    if stop::is_asked() {
        return Err(format!("stopped before {cache} had closed the connection"));
    }
    if !closed {
        return Ok(Observed::Never);
    }
    let begun = Instant::now();
    if !appears(cache, own) {
        return Ok(Observed::Never);
    }
    while in_time_wait(&tables(), cache, own) {
        if begun.elapsed() > watch {
            return Ok(Observed::Longer(watch));
        }
        if stop::is_asked() {
            return Ok(Observed::Longer(begun.elapsed()));
        }
        std::thread::sleep(POLL);
    }
    Ok(Observed::Lasted(begun.elapsed()))
}

/// Whether the other side ends the connection in time and in order; what it says before does not matter.
fn closes(stream: &mut TcpStream) -> bool {
    let (begun, mut buffer) = (Instant::now(), [0; 4096]);
    while begun.elapsed() < ANSWER_MAX && !stop::is_asked() {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    false
}

/// The state needs the last packets of both sides first.
fn appears(cache: SocketAddr, own: SocketAddr) -> bool {
    (0..20).any(|_| {
        std::thread::sleep(POLL / 10);
        in_time_wait(&tables(), cache, own)
    })
}

fn tables() -> String {
    ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default()).concat()
}

fn in_time_wait(table: &str, local: SocketAddr, remote: SocketAddr) -> bool {
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let is = |cell: Option<&&str>, address: SocketAddr| cell.and_then(|cell| parse(cell)) == Some(address);
    rows.into_iter().any(|row| row.get(3) == Some(&TIME_WAIT) && is(row.get(1), local) && is(row.get(2), remote))
}

/// An address of IPv4 as the kernel's table writes it: the four bytes as one number of this machine, mapped ones too.
fn parse(cell: &str) -> Option<SocketAddr> {
    let (address, port) = cell.split_once(':')?;
    let last = address.get(address.len().checked_sub(8)?..)?;
    let number = u32::from_str_radix(last, 16).ok()?;
    let address = IpAddr::V4(Ipv4Addr::from(number.to_ne_bytes()));
    Some(SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_state_is_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:0C38 0200007F:9C40 06 x\n   1: 0000000000000000FFFF00000100007F:0C39 0000000000000000FFFF00000200007F:9C40 06 x\n   2: 0100007F:0C3A 0200007F:9C40 01 x\n";
        let remote = "127.0.0.2:40000".parse().unwrap();
        for (port, found) in [(3_128, true), (3_129, true), (3_130, false), (3_131, false)] {
            assert_eq!(in_time_wait(table, SocketAddr::from(([127, 0, 0, 1], port)), remote), found, "{port}");
        }
        assert_eq!(parse("nonsense"), None);
        assert_eq!(parse("12:34"), None);
    }

    fn observed(answer: &'static [u8], wait_for_client: bool) -> Observed {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 99]);
            let _ = stream.write_all(answer);
            if wait_for_client {
                let _ = stream.read(&mut [0; 99]);
            }
        });
        let observed = observe(address, Duration::from_millis(400)).unwrap();
        server.join().unwrap();
        observed
    }

    #[test]
    fn a_server_that_closes_first_is_seen_in_time_wait() {
        assert_eq!(observed(b"HTTP/1.1 400 Bad Request\r\n\r\n", false), Observed::Longer(Duration::from_millis(400)));
        assert!(!Observed::Longer(Duration::from_millis(400)).passes() && Observed::Lasted(ASKED).passes());
        assert!(Observed::Longer(Duration::from_secs(2)).verdict().contains("watched for 2 s only"));
        assert!(Observed::Longer(ASKED).verdict().contains("; passes"));
        assert!(Observed::Never.verdict().contains("; does not pass"));
    }
}
