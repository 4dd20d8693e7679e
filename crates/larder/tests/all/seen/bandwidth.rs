//! Limits of bandwidth: bytes come no sooner than a limit permits, over each way to a client. That they come at all is asked too, and
//! never by when.

use super::stand;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Answers each connection's first bytes with a head and so many bytes, and counts them. To anything but HTTP it sends the bytes alone.
fn origin(length: u64) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, sent) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
    let counter = Arc::clone(&sent);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let counter = Arc::clone(&counter);
            std::thread::spawn(move || {
                let mut first = [0; 4096];
                let read = stream.read(&mut first).unwrap_or(0);
                if first[..read].starts_with(b"GET ") {
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\n\r\n"
                    );
                    let _ = stream.write_all(head.as_bytes());
                }
                let piece = [7; 16 * 1024];
                let mut left = length;
                while left > 0 {
                    let next = left.min(piece.len() as u64);
                    if stream.write_all(&piece[..next as usize]).is_err() {
                        return;
                    }
                    left -= next;
                    counter.fetch_add(next, Ordering::Relaxed);
                }
            });
        }
    });
    (address, sent)
}

/// Sends a request, and gives the stream behind the head of the answer.
fn ask(proxy: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_read_timeout(Some(stand::WITHIN)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    stream
}

/// Reads so many bytes; gives the time that it took, the answer's head included.
fn timed(proxy: SocketAddr, request: &str, bytes: u64) -> Duration {
    let begun = Instant::now();
    let stream = ask(proxy, request);
    let read = std::io::copy(&mut stream.take(bytes), &mut std::io::sink()).unwrap();
    assert_eq!(read, bytes, "{request}");
    begun.elapsed()
}

fn get(origin: SocketAddr, path: &str) -> String {
    format!("GET http://{origin}{path} HTTP/1.1\r\nHost: {origin}\r\n\r\n")
}

#[test]
fn answers_hits_and_tunnels_come_no_sooner_than_the_limit_permits() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let settings = "[[bandwidth]]\nname = \"slow\"\nrate = \"200kB/s\"\nburst = \"100kB\"\nby = \"client\"\n\
                    [[bandwidth]]\nname = \"line\"\nrate = \"200kB/s\"\nburst = \"100kB\"\nhits_are_free = true\n\
                    [[rule]]\nwhen = { path = \"/slow\" }\ndo = { bandwidth = \"slow\" }\n\
                    [[rule]]\nwhen = { path = \"/line\" }\ndo = { bandwidth = [\"line\"] }\n\
                    [[rule]]\nwhen = { method = \"CONNECT\" }\ndo = { bandwidth = \"slow\" }\n";
    let server = stand::server(folder.path(), &format!("[log]\nto = {log:?}\nformat = \"json\"\n{settings}"));
    let (proxy, (origin, _)) = (server.addresses()[0], origin(200_000));
    // The burst is there once; from then on it is the rate alone.
    let half = Duration::from_millis(490);
    assert!(timed(proxy, &get(origin, "/slow"), 200_000) >= half, "a miss");
    assert!(timed(proxy, &get(origin, "/slow"), 200_000) >= half, "a hit");
    let connect = format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n\r\n");
    let begun = Instant::now();
    let mut tunnel = ask(proxy, &connect);
    tunnel.write_all(b"hello\n").unwrap();
    assert_eq!(std::io::copy(&mut tunnel.take(200_000), &mut std::io::sink()).unwrap(), 200_000);
    assert!(begun.elapsed() >= half, "a tunnel");
    for path in ["/free", "/free", "/line", "/line"] {
        timed(proxy, &get(origin, path), 200_000);
    }
    // Without a limit there is no wait, and with one that leaves hits alone only the miss has one.
    let requests = || -> Vec<Value> {
        let told = stand::ask(server.admin().unwrap(), "/requests?limit=20");
        let told: Value = serde_json::from_str(stand::body(&told)).unwrap();
        told["requests"].as_array().cloned().unwrap_or_default()
    };
    stand::wait_for("the records", || requests().len() == 7);
    let waited = |path: &str| -> Vec<bool> {
        let ends = |it: &&Value| it["url"].as_str().is_some_and(|url| url.ends_with(path));
        let all = requests();
        let ids = all.iter().rev().filter(ends).map(|it| it["id"].as_str().unwrap());
        let told = ids.map(|id| stand::ask(server.admin().unwrap(), &format!("/requests/{id}")));
        told.map(|told| told.contains("under limits of bandwidth the answer waited")).collect()
    };
    assert_eq!((waited("/slow"), waited("/free"), waited("/line")), (vec![true; 2], vec![false; 2], vec![true, false]));
    assert_eq!(waited(&format!("{origin}")), [true], "the tunnel");
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    stand::wait_for("the lines of the log", || lines().len() == 7);
    for line in lines() {
        let (url, micros) = (line["url"].as_str().unwrap(), line.get("bandwidth_micros"));
        match url.ends_with("/free") {
            true => assert!(micros.is_none(), "{line}"),
            // Half of the bytes are those of the burst. Time that went by in another way is none of the wait.
            false if url.ends_with("/slow") => {
                assert!(micros.unwrap().as_u64() > Some(0) && line["micros"].as_u64() >= Some(480_000), "{line}");
            }
            false => {}
        }
    }
    // Workers write their lines when they come to it, so their order is no order of requests.
    let mut of_line: Vec<bool> = lines()
        .iter()
        .filter(|line| line["url"].as_str().unwrap().ends_with("/line"))
        .map(|line| line["bandwidth_micros"].as_u64().is_some_and(|micros| micros > 0))
        .collect();
    of_line.sort_unstable();
    assert_eq!(of_line, [false, true], "the miss alone waited");
}

#[test]
fn all_who_share_a_limit_get_it_together() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "[[bandwidth]]\nname = \"all\"\nrate = \"400kB/s\"\nburst = \"1kB\"\n\
                    [[rule]]\ndo = { bandwidth = \"all\" }\n";
    let server = stand::server(folder.path(), settings);
    let (proxy, (origin, _)) = (server.addresses()[0], origin(100_000));
    let begun = Instant::now();
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let request = get(origin, &format!("/{number}"));
            std::thread::spawn(move || timed(proxy, &request, 100_000))
        })
        .collect();
    let times: Vec<Duration> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    assert!(begun.elapsed() >= Duration::from_millis(980));
    // In turn, piece by piece: nobody has all of it before others have any.
    assert!(times.iter().all(|time| *time >= Duration::from_millis(500)), "{times:?}");
}

#[test]
fn who_follows_a_limited_fetch_is_no_hit_that_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "[[bandwidth]]\nname = \"line\"\nrate = \"400kB/s\"\nburst = \"100kB\"\nhits_are_free = true\n\
                    [[rule]]\ndo = { bandwidth = \"line\" }\n";
    let server = stand::server(folder.path(), settings);
    let (proxy, (origin, sent)) = (server.addresses()[0], origin(600_000));
    let begun = Instant::now();
    let mut first = ask(proxy, &get(origin, "/one"));
    // More of it than a fetch that is held back brings ahead of its reader is still to come.
    first.read_exact(&mut [0; 50_000]).unwrap();
    timed(proxy, &get(origin, "/one"), 600_000);
    std::io::copy(&mut first.take(550_000), &mut std::io::sink()).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(2_740), "both");
    assert_eq!(sent.load(Ordering::Relaxed), 600_000, "fetched once");
}

#[test]
fn the_origin_is_read_no_faster_than_the_limited_client_reads() {
    const LENGTH: u64 = 512 << 20;
    let folder = tempfile::tempdir().unwrap();
    let settings = "[[bandwidth]]\nname = \"slow\"\nrate = \"500kB/s\"\nburst = \"64kB\"\n\
                    [[rule]]\nwhen = { path = \"/slow\" }\ndo = { bandwidth = \"slow\" }\n";
    let server = stand::server(folder.path(), settings);
    let (proxy, (origin, sent)) = (server.addresses()[0], origin(LENGTH));
    let stream = ask(proxy, &get(origin, "/slow"));
    let mut stream = stream.take(1_000_000);
    std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    // Buffers of the kernel hold some megabytes of it.
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent < 64 << 20, "{sent}");
}
