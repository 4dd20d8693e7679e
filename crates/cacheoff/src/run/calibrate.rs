//! Calibration: before a run, the round trip over the server's link is measured from outside, against the origins that
//! will play. If it is not what the workload says, there is no run.

use crate::engine::{Seat, Settings, Worker};
use crate::journal::Journal;
use crate::ledger::{Link, Side, Tally};
use crate::origin::OriginSettings;
use crate::robot::RobotSettings;
use crate::schedule::{Goal, Phase, Schedule};
use crate::wire::CALIBRATE;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Round trips that are measured.
pub const CALIBRATION: u32 = 16;
/// How far the median may be off, besides a fiftieth of the delay and the jitter.
const TOLERANCE: Duration = Duration::from_millis(5);

/// Measures the links. `Err` says which one is not as it should be.
pub fn calibrate(settings: &Settings, sockets: &[TcpListener]) -> Result<Vec<Link>, String> {
    let failed = |error: io::Error| format!("the calibration of the link failed: {error}");
    let mut tally = Tally::default();
    let mut trips = measure(settings, sockets).map_err(failed)?;
    trips.iter().for_each(|trip| tally.add(trip.as_micros() as u64));
    trips.sort();
    let link = settings.origins.link;
    let (median, wanted) = (trips[trips.len() / 2], link.delay * 2 + link.jitter);
    if median.abs_diff(wanted) > TOLERANCE + wanted / 50 + link.jitter {
        return Err(format!(
            "the link of the origins takes {median:?} for a round trip instead of {wanted:?}: the machine is too busy to play it"
        ));
    }
    let line = |side, link: &crate::link::Link, measured| Link {
        side: Some(side),
        model: if link.is_plain() { "none" } else { "user-space" }.to_owned(),
        delay_us: link.delay.as_micros() as u64,
        jitter_us: link.jitter.as_micros() as u64,
        bits_per_s: link.bits_per_s,
        loss: link.loss,
        measured,
    };
    let client = line(Side::Client, &settings.robots.link, Default::default());
    Ok(vec![client, line(Side::Server, &settings.origins.link, tally.take())])
}

fn measure(settings: &Settings, sockets: &[TcpListener]) -> io::Result<Vec<Duration>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, sockets[0].local_addr()?.port()));
    let quiet = Settings {
        robots: RobotSettings { count: 0, ..settings.robots.clone() },
        origins: OriginSettings { uses: None, faults: Vec::new(), ..settings.origins.clone() },
        workers: sockets.len() as u16,
        drain: Duration::ZERO,
        // The link alone is calibrated, without TLS.
        tls: None,
        ..settings.clone()
    };
    let phase = Phase { logged: false, ..Phase::flat("calibration", Goal::Replies(u64::MAX)) };
    let (quiet, schedule, start) =
        (Arc::new(quiet), Arc::new(Schedule::new(vec![phase], sockets.len() as u16)), Instant::now());
    let (sender, receiver) = mpsc::channel();
    let through = Arc::new(AtomicUsize::new(0));
    let journal = Arc::new(Journal::new(settings.seal, sockets.len() as u16, settings.robots.may_invalidate()));
    let (mut threads, partners) = (Vec::new(), sockets.len());
    for (number, socket) in sockets.iter().enumerate() {
        let (socket, sender) = (socket.try_clone()?, sender.clone());
        let (quiet, schedule, journal, through) = (quiet.clone(), schedule.clone(), journal.clone(), through.clone());
        threads.push(std::thread::spawn(move || {
            let seat = Seat { number: number as u16, listener: Some(socket), through, partners };
            Worker::new(seat, quiet, schedule, journal, start)?.run(&sender)
        }));
    }
    let trips = probe(address);
    schedule.stop(start.elapsed());
    drop(receiver);
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("a worker panicked"))??;
    }
    trips
}

/// Round trips of requests on one connection; the first, which holds the handshake, is left out.
fn probe(address: SocketAddr) -> io::Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let request = format!("GET {CALIBRATE} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let mut trips = Vec::new();
    for _ in 0..=CALIBRATION {
        let begun = Instant::now();
        stream.write_all(request.as_bytes())?;
        let mut reply = Vec::new();
        while !reply.ends_with(b"\r\n\r\n") {
            let mut piece = [0; 1024];
            match stream.read(&mut piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => reply.extend_from_slice(&piece[..len]),
            }
        }
        trips.push(begun.elapsed());
    }
    trips.remove(0);
    Ok(trips)
}
