//! More requests than an origin answers: who is refused, what they are told, and what is seen of it.

use super::stand;
use larder::config::Config;
use larder::server::Server;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// An origin that answers `/slow…` once it may.
struct Origin {
    address: SocketAddr,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
    /// Requests for `/slow…` that came.
    slow: AtomicUsize,
}

impl Gate {
    fn wait(&self) {
        self.slow.fetch_add(1, Ordering::SeqCst);
        let mut is_open = self.is_open.lock().unwrap();
        while !*is_open {
            is_open = self.changed.wait(is_open).unwrap();
        }
    }

    fn opens(&self) {
        *self.is_open.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

impl Origin {
    fn start() -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = Origin { address: listener.local_addr().unwrap(), gate: Arc::default() };
        let gate = Arc::clone(&origin.gate);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let gate = Arc::clone(&gate);
                std::thread::spawn(move || serve(&stream, &gate));
            }
        });
        origin
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

fn serve(stream: &TcpStream, gate: &Gate) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let first = stand::read_request(&mut lines)?;
        let path = first.split(' ').nth(1)?;
        if path.starts_with("/slow") {
            gate.wait();
        }
        let fields = match path {
            "/stale" => "Cache-Control: max-age=60, stale-if-error=1000\r\nAge: 100\r\n",
            _ if path.contains("fresh") => "Cache-Control: max-age=60\r\n",
            _ => "Cache-Control: no-store\r\n",
        };
        let answer = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{path}", path.len());
        (&mut &*stream).write_all(answer.as_bytes()).ok()?;
    }
}

/// A server with one worker and one request under way at an origin.
fn server(folder: &Path, text: &str) -> Server {
    let text = format!("{text}\n[upstream]\nconnections_per_origin_max = 1\n");
    Server::start(Config { workers: 1, ..stand::config(folder, &text) }).unwrap_or_else(|error| panic!("{error}"))
}

/// A figure of the metrics; `None` while there is none.
fn metric(server: &Server, line: &str) -> Option<u64> {
    let told = stand::ask(server.admin().unwrap(), "/metrics");
    told.lines().find_map(|it| it.strip_prefix(line))?.trim().parse().ok()
}

/// Sends a request that is not waited for; its answer comes by the thread.
fn behind(proxy: SocketAddr, url: String) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || stand::get(proxy, &url))
}

fn is_waiting(server: &Server, origin: &Origin, many: u64) {
    let line = format!("larder_upstream_requests_waiting{{origin=\"http://{}\"}}", origin.address);
    stand::wait_for("requests wait", || metric(server, &line) == Some(many));
}

#[test]
fn a_full_queue_refuses_and_says_when_to_come_again() {
    let (folder, origin) = (tempfile::tempdir().unwrap(), Origin::start());
    let server = server(folder.path(), "[limits]\nwaiting_per_origin_max = 0");
    let proxy = server.addresses()[0];
    assert!(stand::get(proxy, &origin.url("/stale")).starts_with("HTTP/1.1 200"));
    let slow = behind(proxy, origin.url("/slow"));
    stand::wait_for("it is under way", || origin.gate.slow.load(Ordering::SeqCst) == 1);
    let times: Vec<u64> = (0..20)
        .map(|number| {
            let refused = stand::get(proxy, &origin.url(&format!("/other/{number}")));
            assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("more requests than can be"), "{refused}");
            let after = refused.lines().find_map(|line| line.strip_prefix("Retry-After: ")).expect("a time");
            after.trim().parse().unwrap()
        })
        .collect();
    assert!(times.iter().all(|after| (1..=8).contains(after)), "{times:?}");
    assert!(times.iter().any(|after| *after != times[0]), "they are not to come back together: {times:?}");
    let stale = stand::get(proxy, &origin.url("/stale"));
    assert!(stale.starts_with("HTTP/1.1 200") && stale.ends_with("/stale"), "{stale}");
    stand::wait_for("the counts", || metric(&server, "larder_overload_refused_total{reason=\"busy\"}") == Some(20));
    let told = stand::ask(server.admin().unwrap(), "/requests?limit=50");
    assert_eq!(told.matches("\"outcome\":\"failed\"").count(), 20, "{told}");
    origin.gate.opens();
    assert!(slow.join().unwrap().ends_with("/slow"));
    assert!(stand::get(proxy, &origin.url("/other")).starts_with("HTTP/1.1 200"));
}

#[test]
fn requests_of_low_priority_are_refused_while_others_wait_for_too_long() {
    let (folder, origin) = (tempfile::tempdir().unwrap(), Origin::start());
    let text =
        "[overload]\norigin_delay = \"100ms\"\n[[rule]]\nwhen = { path = \"/low/**\" }\ndo = { priority = \"low\" }";
    let server = server(folder.path(), text);
    let proxy = server.addresses()[0];
    let low = |number: usize| stand::get(proxy, &origin.url(&format!("/low/{number}")));
    assert!(low(0).starts_with("HTTP/1.1 200"), "all is well");
    assert!(stand::get(proxy, &origin.url("/low/fresh")).starts_with("HTTP/1.1 200"));
    let slow = behind(proxy, origin.url("/slow"));
    stand::wait_for("it is under way", || origin.gate.slow.load(Ordering::SeqCst) == 1);
    // Others come all the time, and wait.
    let is_over = Arc::new(AtomicBool::new(false));
    let others = {
        let (is_over, url) = (Arc::clone(&is_over), origin.url("/normal"));
        // Requests for one object would wait as one.
        std::thread::spawn(move || {
            let mut waiting = Vec::new();
            while !is_over.load(Ordering::SeqCst) {
                waiting.push(behind(proxy, format!("{url}/{}", waiting.len())));
                std::thread::sleep(Duration::from_millis(5));
            }
            waiting.into_iter().map(|each| each.join().unwrap()).collect::<Vec<_>>()
        })
    };
    let shed = || metric(&server, "larder_overload_refused_total{reason=\"shed\"}");
    let mut number = 0;
    stand::wait_for("it is refused", || {
        number += 1;
        let answer = low(number);
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("\r\nRetry-After: "), "{answer}");
        shed() > Some(0)
    });
    stand::wait_for("the page says so", || {
        stand::ask(server.admin().unwrap(), "/now").contains("Requests wait too long for http://127.0.0.1:")
    });
    let hit = stand::get(proxy, &origin.url("/low/fresh"));
    assert!(hit.starts_with("HTTP/1.1 200") && hit.contains("hit"), "{hit}");
    is_over.store(true, Ordering::SeqCst);
    origin.gate.opens();
    assert!(slow.join().unwrap().starts_with("HTTP/1.1 200"));
    for answer in others.join().unwrap() {
        assert!(answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.1 503"), "{answer}");
    }
    assert!(low(1_000_000).starts_with("HTTP/1.1 200"), "all is well again");
    stand::wait_for("the page says nothing", || stand::ask(server.admin().unwrap(), "/now").contains("\"behind\":[]"));
}

/// One client fills the queue. Another one's request takes the place of the youngest, and the other one's that waited for the same object as
/// the refused one is not refused with it.
#[test]
fn a_full_queue_has_room_for_another_client() {
    let (folder, origin) = (tempfile::tempdir().unwrap(), Origin::start());
    let text = "[[listen]]\naddress = \"127.0.0.1:0\"\n[[listen]]\naddress = \"[::1]:0\"\n\
                [limits]\nwaiting_per_origin_max = 4\norigin_share_percent = 100";
    let server = server(folder.path(), text);
    let [many, few] = [server.addresses()[0], server.addresses()[1]];
    let slow = behind(many, origin.url("/slow"));
    stand::wait_for("it is under way", || origin.gate.slow.load(Ordering::SeqCst) == 1);
    let others: Vec<_> = (0..3).map(|number| behind(many, origin.url(&format!("/fresh/{number}")))).collect();
    is_waiting(&server, &origin, 3);
    let refused = behind(many, origin.url("/fresh/shared"));
    is_waiting(&server, &origin, 4);
    let follows = behind(few, origin.url("/fresh/shared"));
    std::thread::sleep(Duration::from_millis(200));
    let few = behind(few, origin.url("/fresh/few"));
    let refused = refused.join().unwrap();
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("\r\nRetry-After: "), "{refused}");
    origin.gate.opens();
    for (answer, path) in [(slow, "/slow"), (follows, "/fresh/shared"), (few, "/fresh/few")] {
        let answer = answer.join().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(path), "{answer}");
    }
    let answered = others.into_iter().map(|each| each.join().unwrap().starts_with("HTTP/1.1 200"));
    assert_eq!(answered.filter(|is_good| *is_good).count(), 2, "the third one made room for the one that followed");
    stand::wait_for("the counts", || {
        metric(&server, "larder_overload_refused_total{reason=\"client-busy\"}") == Some(2)
    });
}
