//! Whole runs, bounded and on loopback: through a proxy that lies in one way or in none, through none, and with what
//! can go wrong on the referee's own side.

use super::*;
use crate::distribution::Distribution;
use crate::ledger::{Class, Mode, Trouble};
use crate::link::Link;
use crate::object::{Content, Law, Life};
use crate::origin::OriginSettings;
use crate::robot::{Pace, RobotSettings, Special};
use crate::schedule::Goal;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Lie {
    None,
    Stale,
    Truncates,
    Mixes,
    /// Mixes, and never comes to its end.
    MixesAndStalls,
    StoresUncachable,
    IgnoresReload,
    IgnoresVary,
    Invents,
    /// The origin is asked for each request, and its answer thrown away.
    AsksAlways,
}

/// A small caching proxy that takes one request from each connection.
pub(super) struct Double {
    lie: Lie,
    store: Mutex<HashMap<String, Vec<u8>>>,
}

impl Double {
    pub(super) fn start(lie: Lie) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let double = Arc::new(Self { lie, store: Mutex::default() });
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let double = double.clone();
                std::thread::spawn(move || double.serve(stream));
            }
        });
        address
    }

    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut piece = [0; 4096];
            let len = stream.read(&mut piece).ok().filter(|len| *len > 0)?;
            request.extend_from_slice(&piece[..len]);
        }
        let request = String::from_utf8(request).ok()?;
        let url = request.split(' ').nth(1)?.to_owned();
        let reload = request.contains("no-cache") && self.lie != Lie::IgnoresReload;
        let stored = self.store.lock().unwrap().get(&url).filter(|_| !reload).cloned();
        let reply = match stored {
            Some(stored) if self.lie == Lie::AsksAlways => self.fetch(&request, &url).map(|_| stored)?,
            Some(stored) => self.hit(stored),
            None => self.fetch(&request, &url)?,
        };
        if self.lie == Lie::MixesAndStalls {
            stream.write_all(&reply[..reply.len() - 40]).ok()?;
            std::thread::sleep(Duration::from_secs(9));
            return None;
        }
        stream.write_all(&reply).ok()
    }

    fn hit(&self, stored: Vec<u8>) -> Vec<u8> {
        match self.lie {
            Lie::Truncates => stored[..stored.len() - 40].to_vec(),
            Lie::Mixes | Lie::MixesAndStalls => {
                let head = |reply: &[u8]| reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
                let (at, mut mixed) = (head(&stored), stored.clone());
                let store = self.store.lock().unwrap();
                let other = store.values().find(|other| other.len() > stored.len() + 512).cloned();
                if let Some(other) = other {
                    let from = head(&other);
                    let len = mixed.len() - at;
                    mixed[at..].copy_from_slice(&other[from..from + len]);
                }
                mixed
            }
            _ => stored,
        }
    }

    fn fetch(&self, request: &str, url: &str) -> Option<Vec<u8>> {
        let (host, path) = url.strip_prefix("http://")?.split_once('/')?;
        let mut origin = TcpStream::connect(host).ok()?;
        let rest = request.split_once("\r\n")?.1.replace("Connection: keep-alive\r\n", "");
        origin.write_all(format!("GET /{path} HTTP/1.0\r\n{rest}").as_bytes()).ok()?;
        let mut reply = Vec::new();
        origin.read_to_end(&mut reply).ok()?;
        let public = String::from_utf8_lossy(&reply).contains("Cache-Control: public");
        if public && (self.lie != Lie::AsksAlways || !self.store.lock().unwrap().contains_key(url))
            || self.lie == Lie::StoresUncachable
        {
            self.store.lock().unwrap().insert(url.to_owned(), reply.clone());
        }
        if self.lie == Lie::Invents {
            return Some(String::from_utf8_lossy(&reply).replacen("X-Xact: ", "X-Xact: 1", 1).into_bytes());
        }
        Some(reply)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn robots() -> RobotSettings {
    RobotSettings {
        count: 10,
        pace: Pace::Poisson(20.0),
        recurrence: 0.7,
        public: 0.8,
        kinds: vec![(Special::Reload, 0.1)],
        version: larder_wire::Version::Http10,
        accepts_gzip: 0.5,
        ..RobotSettings::default()
    }
}

pub(super) fn order(address: Option<SocketAddr>, lie: Lie) -> Order {
    let changes =
        Life::Cycle { length: Distribution::Constant(1.0), variance: 0.0, with_modified: 1.0, expires_after: 0.0 };
    let content = Content {
        cachable: 0.8,
        life: if lie == Lie::Stale { changes } else { Life::Static },
        variants: if lie == Lie::IgnoresVary { 2 } else { 1 },
        ..Content::plain("any", "image/gif", Distribution::Uniform(600.0, 9000.0), 9000)
    };
    let origins = OriginSettings { servers: 3, ..OriginSettings::default() };
    let seconds = if lie == Lie::Stale { 6 } else { 2 };
    let phase = Phase::flat("all", Goal::Time(Duration::from_secs(seconds)));
    let mut settings = Settings {
        seal: crate::engine::Seal::random(),
        law: Law { seed: 5, tag: 0x77, epoch: now(), contents: vec![content], ..Law::default() },
        origins,
        robots: robots(),
        route: route(address, None, 0),
        tls: None,
        freeze_at: None,
        freeze_after: None,
        preset: None,
        log: [].into(),
        workers: 2,
        drain: Duration::from_secs(2),
    };
    if lie == Lie::MixesAndStalls {
        settings.robots.timeout = Duration::from_millis(500);
    }
    Order {
        settings,
        phases: vec![phase],
        head: Run::default(),
        ledger: None,
        watched: Watched::Nobody,
        cores: Vec::new(),
        power: None,
        shows: false,
        stop: Arc::default(),
    }
}

pub(super) fn whole(ledger: &Ledger) -> Interval {
    let mut whole = Interval::default();
    ledger.intervals.iter().for_each(|interval| whole.extend(interval));
    whole
}

fn caught(lie: Lie) -> Interval {
    whole(&run(order(Some(Double::start(lie)), lie)).unwrap())
}

#[test]
fn an_honest_proxy_hits_and_is_not_accused() {
    let seen = caught(Lie::None);
    assert_eq!(seen.errors.total(), 0, "{:?}", seen.errors);
    let basic = seen.class(Class::Basic);
    assert!(basic.replies > 200, "{}", basic.replies);
    let missing: u64 = seen.missing.values().sum();
    assert!(basic.hits + missing >= basic.offered, "{} + {missing} of {}", basic.hits, basic.offered);
    assert!(basic.hits * 10 > basic.offered * 9);
}

#[test]
fn each_lie_is_caught() {
    let cases = [
        (Lie::Stale, Trouble::StaleHit),
        (Lie::Truncates, Trouble::Truncated),
        (Lie::Mixes, Trouble::WrongBytes),
        (Lie::MixesAndStalls, Trouble::WrongBytes),
        (Lie::StoresUncachable, Trouble::HitOnUncachable),
        (Lie::IgnoresReload, Trouble::HitOnReload),
        (Lie::IgnoresVary, Trouble::WrongVariant),
        (Lie::Invents, Trouble::ForeignReply),
    ];
    let runs = cases.map(|(lie, trouble)| (lie, trouble, std::thread::spawn(move || caught(lie))));
    for (lie, trouble, run) in runs {
        let seen = run.join().unwrap();
        assert!(seen.errors.of(trouble) > 0, "{lie:?}: {:?}", seen.errors);
    }
}

#[test]
fn without_a_proxy_everything_is_a_right_miss() {
    let order = order(None, Lie::None);
    assert_eq!(order.settings.route.mode, Mode::NoProxy);
    let ledger = run(order).unwrap();
    let seen = whole(&ledger);
    assert_eq!((seen.errors.total(), seen.class(Class::Basic).hits), (0, 0), "{:?}", seen.errors);
    assert_eq!(ledger.end.outcome, Outcome::Complete);
    assert_eq!(seen.sent, seen.replies());
    assert!(ledger.intervals.len() < 8, "{} intervals of two seconds", ledger.intervals.len());
    assert_eq!(seen.origin.requests, seen.replies());
}

#[test]
fn a_server_with_replies_made_beforehand_keeps_their_dates() {
    let made = now() - 3;
    let ledger = run_since(order(None, Lie::None), Some(made)).unwrap();
    assert_eq!(ledger.run.started_unix, made);
    let wrong = whole(&ledger).errors;
    assert_eq!(wrong.of(Trouble::ChangedField), 0, "{wrong:?}");
    assert!(run(order(None, Lie::None)).unwrap().run.started_unix > made, "other runs date anew");
}

#[test]
fn a_link_delays_by_two_round_trips_and_then_by_one() {
    let mut order = order(None, Lie::None);
    order.settings.origins.link = Link { delay: Duration::from_millis(20), ..Link::default() };
    let seen = whole(&run(order).unwrap());
    let (least, most) = (seen.service.all.min().unwrap(), seen.service.all.quantile(0.5).unwrap());
    assert!(least >= 40_000 && most < 100_000, "{least} {most}");
}

#[test]
fn nobody_listens() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ledger = run(order(Some(closed), Lie::None)).unwrap();
    let seen = whole(&ledger);
    assert!(seen.errors.of(Trouble::ConnectRefused) > 100, "{:?}", seen.errors);
    assert_eq!((ledger.end.outcome, seen.replies()), (Outcome::Complete, 0));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let mut order = order(None, Lie::None);
    order.settings.origins.port = taken.local_addr().unwrap().port();
    let error = run(order).err().unwrap();
    assert!(error.contains("--origin-port") && error.contains("in use"), "{error}");
}

#[test]
fn a_run_that_is_stopped_keeps_what_it_measured() {
    let order = order(None, Lie::None);
    let stop = order.stop.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1200));
        stop.store(true, Relaxed);
    });
    let ledger = run(order).unwrap();
    assert_eq!(ledger.end.outcome, Outcome::Interrupted);
    assert!(whole(&ledger).replies() > 20);
}
