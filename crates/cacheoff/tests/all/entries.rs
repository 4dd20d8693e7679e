//! The entries that are installed on this machine really start, cache, keep the origin's bytes, and end without a rest.
//!
//! An entry that is not installed is passed over: that its absence is reported is tested with the contest.

use super::official::free_port;
use cacheoff::contest::{Advantage, EntrySpec, Post, Prepared, Servers, Setting};
use cacheoff::kill::origin::Origin;
use cacheoff::kill::probe::{Found, Probe};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// Whether the second request for an object is a hit: where the entry has a cache.
fn second_is_a_hit(name: &str, store: &str) -> bool {
    !name.starts_with("h2o") && store != "pass"
}

fn play(name: &str, mode: &str, store: &str) -> Result<(), String> {
    let origin = Origin::start("127.0.0.1:0".parse().unwrap()).unwrap();
    let post = Post {
        mode: mode.to_owned(),
        store: store.to_owned(),
        port: free_port(),
        origin: origin.address(),
        memory_mb: 64,
        disk_mb: 256,
        cores: vec![0],
        servers: Servers::default(),
        listener: cacheoff::ledger::Listener::Http,
    };
    let prepared = Prepared::new(EntrySpec::builtin(name)?, post)?;
    prepared.prepare()?;
    let running = prepared.start()?;
    let pid = running.pid().unwrap();
    let probe =
        Probe { cache: running.address, forward: mode == "forward", origin: &origin, timeout: Duration::from_secs(5) };
    let expect = |found: Found, wanted: &Found, what: &str| match found == *wanted {
        true => Ok(()),
        false => Err(format!("{name} {mode} {store}, {what}: {found:?} instead of {wanted:?}")),
    };
    // Traffic Server opens its disk store a moment after it answers.
    let second = if second_is_a_hit(name, store) { Found::Hit } else { Found::Miss };
    for turn in 0..20 {
        let found = probe.ask(&format!("/warm/{}", turn / 4));
        match found == second {
            true => break,
            false if turn == 19 => return Err(format!("{name} {mode} {store} stored nothing: {found:?}")),
            false => std::thread::sleep(Duration::from_millis(100)),
        }
    }
    // A store may leave an object out when the machine is busy, not one after the other.
    let seconds = (0..10).map(|turn| {
        let object = format!("/a/{turn}");
        expect(probe.ask(&object), &Found::Miss, "the first request")?;
        std::thread::sleep(Duration::from_millis(50));
        expect(probe.ask(&object), &second, "the second request")
    });
    first_good(seconds)?;
    expect(probe.ask("/b"), &Found::Miss, "another object")?;
    let family = cacheoff::proc::tree(pid);
    running.stop();
    let runs = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
    match family.iter().any(runs) {
        true => Err(format!("{name}: {family:?} is left behind")),
        false => Ok(()),
    }
}

/// Good when one of them is; else what the last one says.
fn first_good(mut tries: impl Iterator<Item = Result<(), String>>) -> Result<(), String> {
    let mut said = Ok(());
    tries.any(|tried| {
        said = tried;
        said.is_ok()
    });
    said
}

fn each(name: &str) {
    let spec = EntrySpec::builtin(name).unwrap();
    let mut failures = Vec::new();
    for tuning in spec.tunings() {
        let name = spec.tuned(&tuning).unwrap().name;
        for (mode, store) in spec.mode.keys().flat_map(|mode| spec.store.keys().map(move |store| (mode, store))) {
            match play(&name, mode, store) {
                Ok(()) => {}
                Err(reason) if reason.contains("is not installed") => return,
                Err(reason) => failures.push(reason),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// An origin that takes its time and counts what it is asked.
fn slow_origin() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let count = count.clone();
            std::thread::spawn(move || answer_slowly(stream, &count));
        }
    });
    (address, asked)
}

/// One answer a connection: `/slow` is counted.
fn answer_slowly(mut stream: TcpStream, count: &AtomicUsize) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut piece = [0; 4096];
        match stream.read(&mut piece) {
            Ok(length) if length > 0 => head.extend_from_slice(&piece[..length]),
            _ => return,
        }
    }
    if String::from_utf8_lossy(&head).split(' ').nth(1).is_some_and(|target| target.ends_with("/slow")) {
        count.fetch_add(1, Relaxed);
        std::thread::sleep(Duration::from_millis(400));
    }
    let date = httpdate();
    let reply = format!(
        "HTTP/1.1 200 OK\r\nDate: {date}\r\nCache-Control: max-age=600\r\nETag: \"a\"\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
    );
    let _ = stream.write_all(reply.as_bytes());
}

fn httpdate() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    String::from_utf8(larder_wire::date::format_date(larder_wire::date::Stamp(since.as_secs())).to_vec()).unwrap()
}

fn ask(cache: SocketAddr, target: &str, host: SocketAddr, field: &str) -> String {
    let mut stream = TcpStream::connect(cache).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{field}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    let _ = stream.read_to_string(&mut reply);
    reply
}

/// An entry collapses and reloads if it says that it does, and only then.
#[test]
fn what_entries_say_of_collapsing_and_reloads_is_true() {
    for name in EntrySpec::builtin_names() {
        let spec = EntrySpec::builtin(name).unwrap();
        let has = |advantage| {
            let of = |setting: &&Setting| setting.gives.contains(&advantage) || setting.built_in.contains(&advantage);
            spec.settings.iter().any(|setting| of(&setting))
        };
        let (collapses, reloads) = (has(Advantage::Collapsing), has(Advantage::Reload));
        let mode = if spec.mode.contains_key("reverse") { "reverse" } else { "forward" };
        let (origin, asked) = slow_origin();
        let post = Post {
            mode: mode.to_owned(),
            store: "memory".to_owned(),
            port: free_port(),
            origin,
            memory_mb: 64,
            disk_mb: 256,
            cores: vec![0],
            servers: Servers::default(),
            listener: cacheoff::ledger::Listener::Http,
        };
        let prepared = match Prepared::new(spec, post) {
            Ok(prepared) => prepared,
            Err(reason) if reason.contains("is not installed") => continue,
            Err(reason) => panic!("{reason}"),
        };
        prepared.prepare().unwrap();
        let running = prepared.start().unwrap();
        // Traffic Server opens its store a moment after it answers.
        std::thread::sleep(Duration::from_secs(if name == "trafficserver" { 3 } else { 0 }));
        let cache = running.address;
        let together: Vec<_> = (0..6).map(|_| std::thread::spawn(move || ask(cache, "/slow", origin, ""))).collect();
        for reply in together {
            assert!(reply.join().unwrap().ends_with("hello"), "{name}");
        }
        let fetched = asked.load(Relaxed);
        assert_eq!(fetched == 1, collapses, "{name}: six requests at once reached the origin {fetched} times");
        ask(cache, "/slow", origin, "Cache-Control: no-cache\r\nPragma: no-cache\r\n");
        let again = asked.load(Relaxed) - fetched;
        assert_eq!(again == 1, reloads || name == "h2o", "{name}: a reload reached the origin {again} times");
        running.stop();
    }
}

#[test]
fn squid() {
    each("squid");
}

#[test]
fn nginx() {
    each("nginx");
}

#[test]
fn varnish() {
    each("varnish");
}

#[test]
fn trafficserver() {
    each("trafficserver");
}

#[test]
fn haproxy() {
    each("haproxy");
}

#[test]
fn apache() {
    each("apache");
}

#[test]
fn h2o() {
    each("h2o");
}

#[test]
fn larder() {
    each("larder");
}
