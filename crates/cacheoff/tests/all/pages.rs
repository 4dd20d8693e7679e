//! The servers that are installed on this machine really serve the board: each page to the byte, each post once, each user
//! apart; and they end without a rest. `CACHEOFF_PYTHON` names a virtual environment for those in Python.
//!
//! An entry that is not installed is passed over: that its absence is reported is tested with the contest.

use super::official::free_port;
use cacheoff::contest::{EntrySpec, Post, Prepared, Running, Servers};
use cacheoff::ledger::{Class, Interval, Outcome, Run};
use cacheoff::pages::{Order, PageWorkload, play};
use cacheoff::proc::{Watched, tree};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// The entry, started; `None` if it is not installed here.
fn started(name: &str) -> Option<(Prepared, Running)> {
    let post = Post {
        mode: Post::PAGES.to_owned(),
        store: "memory".to_owned(),
        port: free_port(),
        origin: SocketAddr::from(([127, 0, 0, 1], free_port())),
        memory_mb: 64,
        disk_mb: 0,
        cores: vec![0],
        servers: Servers { python: std::env::var_os("CACHEOFF_PYTHON").map(Into::into), ..Servers::default() },
        listener: cacheoff::ledger::Listener::Http,
    };
    let prepared = match Prepared::new(EntrySpec::builtin(name).unwrap(), post) {
        Ok(prepared) => prepared,
        Err(reason) if reason.contains("is not installed") => {
            eprintln!("passed over: {reason}");
            return None;
        }
        Err(reason) => panic!("{reason}"),
    };
    prepared.prepare().unwrap();
    let running = prepared.start().unwrap();
    Some((prepared, running))
}

fn played(running: &Running, workload: &str, variant: Option<&str>) -> Interval {
    let times = [("phase.warm.length", "300ms"), ("phase.measure.length", "700ms")];
    let changes = times.map(|(knob, value)| (knob.to_owned(), value.to_owned()));
    let plan = PageWorkload::named(workload).unwrap().plan(variant, &changes).unwrap();
    let (head, stop) = (Run::default(), Arc::default());
    let watched = Watched::Tree(running.pid().unwrap());
    let ledger = play(Order { plan, address: running.address, seed: 11, head, watched, stop }).unwrap();
    assert_eq!(ledger.end.outcome, Outcome::Complete);
    let mut whole = Interval::default();
    ledger.intervals.iter().for_each(|interval| whole.extend(interval));
    whole
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8_lossy(&reply).into_owned()
}

/// Requests that no page answers, and one that shows nobody's name.
fn strange_requests(name: &str, address: SocketAddr) {
    let with = |line: &str, fields: &str, body: &str| {
        let length = body.len();
        format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}Content-Length: {length}\r\n\r\n{body}")
    };
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    for (request, status) in [
        (with("GET /thread/0", "", ""), "404"),
        (with("GET /thread/1001", "", ""), "404"),
        (with("GET /thread/999999999", "", ""), "404"),
        (with("GET /thread/12345678901234567890", "", ""), "404"),
        (with("GET /thread/-1", "", ""), "404"),
        (with("GET /list/34", "", ""), "404"),
        (with("GET /nothing", "", ""), "404"),
        (with("POST /thread/7", form, "text=nobody"), "403"),
        (with("POST /thread/7", &format!("{form}Cookie: session=1' OR '1'='1\r\n"), "text=nobody"), "403"),
        (with("PUT /thread/7", form, "text=nobody"), "405"),
        (with("GET /thread/7?a=b", "Cookie: session=unknown; other=1\r\n", ""), "200"),
    ] {
        let reply = ask(address, &request);
        assert_eq!(reply.get(9..12), Some(status), "{name}: {request}\n{reply}");
        if status == "200" {
            assert!(reply.contains("<p>Not signed in</p>"), "{name}: {reply}");
        }
    }
}

fn each(name: &str) {
    let Some((prepared, running)) = started(name) else { return };
    let family = tree(running.pid().unwrap());
    assert!(!prepared.product().is_empty());
    strange_requests(name, running.address);
    let hello = played(&running, "page", Some("15-close"));
    assert!(hello.errors.is_empty() && hello.replies() > 20, "{name}: {:?}", hello.errors);
    let board = played(&running, "board", None);
    assert!(board.errors.is_empty(), "{name}: {:?}", board.errors);
    for content in 1..6 {
        assert!(board.class(Class::Content(content)).replies > 0, "{name}: no page of kind {content}");
    }
    let load = board.load.unwrap();
    assert!(load.cache_processes >= 2 && load.cache_threads >= load.cache_processes, "{name}: {load:?}");
    running.stop();
    let runs = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
    assert!(!family.iter().any(runs), "{name}: {family:?} is left behind");
}

macro_rules! servers {
    ($($test:ident $name:literal;)+) => {
        $(
            #[test]
            fn $test() {
                each($name);
            }
        )+

        /// Every entry has its test.
        #[test]
        fn all_servers_are_tried() {
            let tried = [$($name),+];
            assert!(EntrySpec::server_names().all(|name| tried.contains(&name)));
        }
    };
}

servers! {
    larder_wsgi "larder-wsgi";
    larder_asgi "larder-asgi";
    larder_hook "larder-hook";
    granian "granian";
    uvicorn "uvicorn";
    uwsgi "uwsgi";
    apache_wsgi "apache-wsgi";
    nginx_perl "nginx-perl";
    nginx_php "nginx-php";
    lighttpd_php "lighttpd-php";
    puma "puma";
}
