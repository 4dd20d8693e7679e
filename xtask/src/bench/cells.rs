//! The cells of the table: what is asked, who may be the best at it, and how near Larder is to come to them.

use super::field::{Contestant, Kind, Stage};
use super::tool::{Load, Script, Tool};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// For `--cell`.
    pub key: &'static str,
    /// The words in the table.
    pub name: &'static str,
    /// Where the objects lie.
    pub stage: Stage,
    /// The request, and how it is made.
    pub ask: Ask,
    /// Those that can be the best, and the limit.
    pub field: &'static [Kind],
    /// How near is near enough.
    pub goal: Goal,
}

/// The kinds of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// One object, over connections that stay.
    Hit(Body),
    /// One object, over as few connections as the referee's `hammer` has, from servers that are set as its are.
    Few(Body),
    /// One object, each time over a connection of its own.
    Close(Body),
    /// One object, one request after the other.
    Ab(Body),
    /// One object, sixteen requests in a write.
    Pipelined(Body),
    /// Many small objects of many hosts, few of them popular.
    Zipf,
    /// Many objects, each as likely as the others.
    Many(&'static str, u64, Body),
    /// Uncachable, and never the same address.
    Miss(Body),
    /// A request that the rules refuse.
    Denied,
    /// One object, asked of a forward proxy.
    Forward(Body),
    /// One object over TLS.
    Tls(Body),
    /// A full handshake, and nothing else.
    Handshake,
}

/// Bodies by their name at the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body {
    /// The path.
    pub path: &'static str,
    /// The length.
    pub bytes: usize,
}

/// The most that Larder may take, as a share of another's CPU per request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Goal {
    /// Of the best peer's.
    pub peer: Option<f64>,
    /// Of the limit's.
    pub limit: Option<f64>,
    /// Of its own in another cell.
    pub own: Option<(f64, &'static str)>,
}

const S: Body = Body { path: "/600", bytes: 600 };
/// The body of 600 bytes, where nginx has the referee's `tcp_nopush off`.
const FEW: Body = Body { path: "/few/600", bytes: 600 };
const M: Body = Body { path: "/16k", bytes: 16_384 };
const L: Body = Body { path: "/1m", bytes: 1 << 20 };
/// A body for disk hits.
const D11K: Body = Body { path: "/11k", bytes: 11_000 };
/// Bodies of the origin.
pub const BODIES: [Body; 6] = [S, M, L, D11K, Body { path: "/1k", bytes: 1024 }, Body { path: "/16", bytes: 16 }];

const ALL: &[Kind] = &[Larder, Nginx, Varnish, Haproxy, TrafficServer, Limit];
const MISS: &[Kind] = &[Larder, Nginx, Haproxy, TrafficServer, Relay];
const DISK: &[Kind] = &[Larder, Nginx, TrafficServer, Varnish];
const TLS: &[Kind] = &[Larder, Nginx, Haproxy, TrafficServer];
use Kind::*;

/// Objects of the cell of many hosts.
pub const ZIPF: (&str, u64, u64) = ("/o/", 100_000, 64);

/// A cell for comparison with another generator.
const NO_GOAL: Goal = Goal { peer: None, limit: None, own: None };

const fn peer(most: f64) -> Goal {
    Goal { peer: Some(most), limit: None, own: None }
}

const fn both(peer: f64, limit: f64) -> Goal {
    Goal { peer: Some(peer), limit: Some(limit), own: None }
}

const fn as_a_hit() -> Goal {
    Goal { peer: None, limit: None, own: Some((1.0, "hit-600")) }
}

const fn cell(key: &'static str, name: &'static str, ask: Ask, field: &'static [Kind], goal: Goal) -> Cell {
    let stage = if matches!(ask, Ask::Many(..)) { Stage::Disk } else { Stage::Memory };
    Cell { key, name, stage, ask, field, goal }
}

/// All of them. Left out of a field are HAProxy, which does badly when other processes keep the core awake (ab), and
/// Varnish, which takes several times as long as the others for a miss.
pub const CELLS: [Cell; 19] = [
    cell("hit-600", "memory hit 600 B, keep-alive", Ask::Hit(S), ALL, both(0.70, 1.15)),
    cell("hit-600-few", "memory hit 600 B, 15 connections and settings as in `hammer`", Ask::Few(FEW), ALL, NO_GOAL),
    cell("hit-16k", "memory hit 16 KB, keep-alive", Ask::Hit(M), ALL, both(0.78, 1.12)),
    cell("hit-1m", "memory hit 1 MB, keep-alive", Ask::Hit(L), ALL, both(0.95, 1.05)),
    cell("close-600", "hit 600 B, a connection per request", Ask::Close(S), ALL, both(0.85, 1.10)),
    cell(
        "ab-600",
        "hit 600 B, `ab -c 1`, no keep-alive",
        Ask::Ab(S),
        &[Larder, Nginx, Varnish, TrafficServer, Limit],
        both(0.88, 1.10),
    ),
    cell("pipelined", "hit 600 B, pipelined, depth 16", Ask::Pipelined(S), ALL, both(0.5, 1.3)),
    cell(
        "zipf",
        "hit 600 B, 64 hosts, 100,000 objects, Zipf",
        Ask::Zipf,
        &[Larder, Nginx, Varnish, Haproxy, TrafficServer],
        peer(0.7),
    ),
    cell("miss-600", "miss, uncachable 600 B", Ask::Miss(S), MISS, both(0.75, 1.3)),
    cell("miss-16k", "miss, uncachable 16 KB", Ask::Miss(M), MISS, peer(0.85)),
    cell("miss-1m", "miss, uncachable 1 MB", Ask::Miss(L), MISS, peer(0.85)),
    cell("denied", "denied URL (403)", Ask::Denied, &[Larder, Nginx, Haproxy], as_a_hit()),
    cell("forward-600", "forward-proxy hit 600 B", Ask::Forward(S), &[Larder, TrafficServer], as_a_hit()),
    cell(
        "forward-16k",
        "forward-proxy hit 16 KB",
        Ask::Forward(M),
        &[Larder, TrafficServer],
        Goal { peer: None, limit: None, own: Some((1.0, "hit-16k")) },
    ),
    cell("tls-600", "HTTPS hit 600 B, keep-alive", Ask::Tls(S), TLS, peer(0.9)),
    cell("tls-16k", "HTTPS hit 16 KB, keep-alive", Ask::Tls(M), TLS, peer(0.9)),
    cell("handshake", "TLS handshake", Ask::Handshake, TLS, peer(0.9)),
    cell("disk-11k", "disk hit 11 KB", Ask::Many("/d11k/", 9_090, D11K), DISK, peer(0.75)),
    cell("disk-1m", "disk hit 1 MB", Ask::Many("/d1m/", 100, L), DISK, peer(0.75)),
];

const CONNECTIONS: usize = 64;
const FEW_CONNECTIONS: usize = 15;
const PIPELINE_DEPTH: usize = 16;

impl Cell {
    /// The generator's load on this contestant.
    pub fn load(&self, contestant: &Contestant, origin: u16) -> Load {
        let doors = contestant.doors;
        let kept = Tool::Wrk { connections: CONNECTIONS, closes: false };
        let plain = |path: &str| format!("http://127.0.0.1:{}{path}", doors.plain);
        let load = |tool, url, script| Load { tool, url, script, status: 200 };
        match self.ask {
            Ask::Hit(body) => load(kept, plain(body.path), Script::Plain),
            Ask::Few(body) => {
                load(Tool::Wrk { connections: FEW_CONNECTIONS, closes: false }, plain(body.path), Script::Plain)
            }
            Ask::Close(body) => {
                load(Tool::Wrk { connections: CONNECTIONS, closes: true }, plain(body.path), Script::Plain)
            }
            Ask::Ab(body) => load(Tool::Ab { connections: 1, keeps: false }, plain(body.path), Script::Plain),
            Ask::Pipelined(body) => load(kept, plain(body.path), Script::Pipeline(PIPELINE_DEPTH)),
            Ask::Zipf => load(kept, plain("/"), Script::Zipf(ZIPF.0, ZIPF.1, ZIPF.2)),
            Ask::Many(folder, count, _) => load(kept, plain("/"), Script::Uniform(folder, count)),
            Ask::Miss(body) => load(kept, plain(&format!("/nc{}", body.path)), Script::Unique),
            Ask::Denied => denied(contestant, origin, kept),
            Ask::Forward(body) => {
                let authority = format!("127.0.0.1:{origin}");
                let script = Script::Forward(format!("http://{authority}{}", body.path), authority);
                load(kept, format!("http://127.0.0.1:{}/", doors.forward), script)
            }
            Ask::Tls(body) => load(kept, format!("https://127.0.0.1:{}{}", doors.tls, body.path), Script::Plain),
            Ask::Handshake => load(Tool::Handshakes, format!("https://127.0.0.1:{}/", doors.tls), Script::Plain),
        }
    }

    /// The body of a right answer; `None` where there is none to compare.
    pub fn body(&self) -> Option<Body> {
        match self.ask {
            Ask::Hit(body) | Ask::Few(body) | Ask::Close(body) | Ask::Ab(body) | Ask::Pipelined(body) => Some(body),
            Ask::Miss(body) | Ask::Forward(body) | Ask::Tls(body) | Ask::Many(_, _, body) => Some(body),
            Ask::Zipf => Some(S),
            Ask::Denied | Ask::Handshake => None,
        }
    }

    /// Folder and count of the objects that must be there before the load.
    pub fn objects(&self) -> Option<(&'static str, u64)> {
        match self.ask {
            Ask::Zipf => Some((ZIPF.0, ZIPF.1)),
            Ask::Many(folder, count, _) => Some((folder, count)),
            _ => None,
        }
    }
}

/// Larder refuses by the address of the client, the others by the path.
fn denied(contestant: &Contestant, origin: u16, tool: Tool) -> Load {
    let doors = contestant.doors;
    if !matches!(contestant.kind, Kind::Larder | Kind::Before) {
        let url = format!("http://127.0.0.1:{}/refused/600", doors.plain);
        return Load { tool, url, script: Script::Plain, status: 403 };
    }
    let authority = format!("127.0.0.1:{origin}");
    let script = Script::Forward(format!("http://{authority}/600"), authority);
    Load { tool, url: format!("http://[::1]:{}/", doors.refusing), script, status: 403 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_told_apart_and_larder_is_everywhere() {
        let keys: HashSet<&str> = CELLS.iter().map(|cell| cell.key).collect();
        assert_eq!(keys.len(), CELLS.len());
        for cell in CELLS {
            assert_eq!(cell.field[0], Kind::Larder, "{}", cell.key);
            assert!(cell.goal.own.is_none_or(|(_, other)| keys.contains(other)), "{}", cell.key);
            let has_limit = cell.field.iter().any(|kind| matches!(kind, Kind::Limit | Kind::Relay));
            assert!(has_limit || cell.goal.limit.is_none(), "{}", cell.key);
        }
    }
}
