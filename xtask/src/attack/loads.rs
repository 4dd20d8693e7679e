//! The attacks, each a function that goes on until the stage is over and tells how many connections it had.

use super::Stage;
use super::horde::{ATTACKER, Horde};
use super::http2;
use super::origin::BIG_BYTES;
use std::net::Ipv4Addr;
use std::time::Duration;

/// A kind of attack.
pub struct Attack {
    /// Its name.
    pub name: &'static str,
    /// Plays it; gives the number of connections that it held at once.
    pub play: fn(&Stage) -> usize,
}

/// All of them.
pub const ATTACKS: &[Attack] = &[
    Attack { name: "silent clients", play: silent_clients },
    Attack { name: "partial heads", play: partial_heads },
    Attack { name: "unread hits of 8 MB", play: unread_hits },
    Attack { name: "pipelined hits, unread", play: pipelined_unread },
    Attack { name: "uploads of one byte, held", play: held_uploads },
    Attack { name: "chunks of one byte", play: small_chunks },
    Attack { name: "requests that are left at once", play: orphans },
    Attack { name: "requests that hang at the origin", play: hanging },
    Attack { name: "answers that vary by 4,000 names", play: vary_names },
    Attack { name: "variants without end", play: variants },
    Attack { name: "URLs without end", play: urls },
    Attack { name: "ranges by the hundred", play: ranges },
    Attack { name: "heads of many fields", play: many_fields },
    Attack { name: "answers with 800 tags", play: tags },
    Attack { name: "upgrades, held", play: upgrades },
    Attack { name: "tunnels through itself", play: nested_tunnels },
    Attack { name: "clients of ten thousand addresses", play: many_addresses },
    Attack { name: "admin, held and slow", play: admin },
    Attack { name: "HTTP/2: rapid resets", play: http2::rapid_resets },
    Attack { name: "HTTP/2: field blocks without end", play: http2::continuations },
    Attack { name: "HTTP/2: references to a long field", play: http2::table_bombs },
    Attack { name: "HTTP/2: hits without a window", play: http2::closed_windows },
    Attack { name: "HTTP/2: bodies without end", play: http2::held_bodies },
    Attack { name: "HTTP/2: frames that mean nothing", play: http2::control_frames },
];

fn rest() {
    std::thread::sleep(Duration::from_millis(100));
}

/// Opens connections that say `words`, holds them, and opens anew what the server closed.
fn held(stage: &Stage, port: u16, words: impl Fn(usize) -> Vec<u8>, then: &[u8]) -> usize {
    let mut horde = Horde::at(port);
    let mut most = 0;
    while stage.goes_on() {
        horde.fill(stage.connections, &words);
        most = most.max(horde.all.len());
        if !then.is_empty() {
            horde.say(then);
        }
        rest();
    }
    most
}

/// Sends the same kind of request over a few connections as fast as it is answered.
fn busy(stage: &Stage, connections: usize, request: impl Fn(usize) -> Vec<u8>) -> usize {
    let mut horde = Horde::at(stage.site);
    let mut number = 0;
    while stage.goes_on() {
        while horde.all.len() < connections && stage.goes_on() {
            number += 1;
            horde.open(&request(number));
        }
        number += 1;
        horde.say(&request(number));
        horde.hear();
        std::thread::sleep(Duration::from_micros(200));
    }
    connections
}

const FEW: usize = 16;

fn get(path: &str, fields: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: www.test\r\n{fields}\r\n").into_bytes()
}

fn silent_clients(stage: &Stage) -> usize {
    held(stage, stage.site, |_| Vec::new(), b"")
}

fn partial_heads(stage: &Stage) -> usize {
    // Just below what a head may have, and never its end.
    let head = |number: usize| {
        let mut head = format!("GET /partial/{number} HTTP/1.1\r\nHost: www.test\r\n").into_bytes();
        for field in 0..60 {
            head.extend_from_slice(format!("X-{field}: {}\r\n", "p".repeat(1_000)).as_bytes());
        }
        head
    };
    held(stage, stage.site, head, b"p")
}

fn unread_hits(stage: &Stage) -> usize {
    // The first makes it a hit; nobody reads a byte.
    held(stage, stage.site, |_| get("/big", ""), b"")
}

fn pipelined_unread(stage: &Stage) -> usize {
    let many = get("/hit", "").repeat(400);
    held(stage, stage.site, |_| many.clone(), &get("/hit", "").repeat(10))
}

fn held_uploads(stage: &Stage) -> usize {
    let head = |number: usize| {
        format!("POST /post/{number} HTTP/1.1\r\nHost: www.test\r\nContent-Length: 100000\r\n\r\nx").into_bytes()
    };
    held(stage, stage.site, head, b"")
}

fn small_chunks(stage: &Stage) -> usize {
    let head = b"POST /post HTTP/1.1\r\nHost: www.test\r\nTransfer-Encoding: chunked\r\n\r\n";
    held(stage, stage.site, |_| head.to_vec(), &b"1\r\nx\r\n".repeat(50))
}

fn orphans(stage: &Stage) -> usize {
    let mut number = 0;
    while stage.goes_on() {
        let mut horde = Horde::at(stage.site);
        horde.fill(stage.connections.min(200), |_| Vec::new());
        for stream in &mut horde.all {
            number += 1;
            let _ = std::io::Write::write(stream, &get(&format!("/hang/{number}"), ""));
        }
        // They leave before anything can be answered; eight rounds are 1,600 in a second.
        std::thread::sleep(Duration::from_millis(5));
        drop(horde);
        rest();
    }
    // Those of a second may be on their way at once.
    1_600
}

fn hanging(stage: &Stage) -> usize {
    held(stage, stage.site, |number| get(&format!("/hang/{number}"), ""), b"")
}

fn vary_names(stage: &Stage) -> usize {
    busy(stage, FEW, |number| get(&format!("/vary/{number}"), ""))
}

fn variants(stage: &Stage) -> usize {
    busy(stage, FEW, |number| get("/variant", &format!("X-Variant: {number}\r\n")))
}

fn urls(stage: &Stage) -> usize {
    busy(stage, FEW, |number| get(&format!("/url/{number}/{}", "u".repeat(500)), ""))
}

fn ranges(stage: &Stage) -> usize {
    busy(stage, FEW, |number| {
        let from = |part: usize| (number * 7_919 + part * 40_009) % (BIG_BYTES - 2);
        let parts: Vec<String> = (0..200).map(|part| format!("{}-{}", from(part), from(part) + 1)).collect();
        get("/big", &format!("Range: bytes={}\r\n", parts.join(",")))
    })
}

fn many_fields(stage: &Stage) -> usize {
    let mut fields = String::new();
    for field in 0..120 {
        let names: Vec<String> = (0..40).map(|name| format!("x-{}", (field * 7 + name) % 120)).collect();
        let name = ["Connection", "Cache-Control", "Via", "Accept-Encoding", "Cookie", "X-Forwarded-For"][field % 6];
        fields += &format!("{name}: {}\r\n", names.join(", "));
    }
    busy(stage, FEW, move |number| get(&format!("/fields/{number}"), &fields))
}

fn tags(stage: &Stage) -> usize {
    busy(stage, FEW, |number| get(&format!("/tags/{number}"), ""))
}

fn upgrades(stage: &Stage) -> usize {
    held(stage, stage.site, |_| get("/upgrade", "Connection: upgrade\r\nUpgrade: websocket\r\n"), b"x")
}

/// Each tunnel leads to the listener that it was opened at.
fn nested_tunnels(stage: &Stage) -> usize {
    let connect = format!("CONNECT 127.0.0.1:{0} HTTP/1.1\r\nHost: 127.0.0.1:{0}\r\n\r\n", stage.forward);
    let mut horde = Horde::at(stage.forward);
    while stage.goes_on() {
        horde.fill(FEW, |_| Vec::new());
        horde.say(connect.as_bytes());
        horde.hear();
        std::thread::sleep(Duration::from_millis(1));
    }
    FEW
}

fn many_addresses(stage: &Stage) -> usize {
    let mut number = 0_u32;
    while stage.goes_on() {
        number += 1;
        let [_, high, middle, low] = (number % 10_000).to_be_bytes();
        let mut horde = Horde::from(stage.site, Ipv4Addr::new(127, 100 + high, middle, low));
        horde.open(&get(&format!("/hit?{number}"), "Connection: close\r\n"));
        std::thread::sleep(Duration::from_micros(300));
        horde.hear();
    }
    FEW
}

fn admin(stage: &Stage) -> usize {
    let words = |number: usize| match number % 3 {
        0 => Vec::new(),
        1 => format!("GET /requests?host={} HTTP/1.1\r\n", "h".repeat(5_000)).into_bytes(),
        _ => format!("GET /events HTTP/1.1\r\nHost: {ATTACKER}\r\n\r\n").into_bytes(),
    };
    held(stage, stage.admin, words, b"")
}
