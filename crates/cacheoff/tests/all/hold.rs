//! A held entry says where it is, answers, and goes with the end of the input or with a signal.
//!
//! An entry that is not installed is passed over, as in `entries.rs`.

use super::official::free_port;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

fn hold(entry: &str, port: u16) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cacheoff"));
    command.args(["hold", entry, "--port", &port.to_string(), "--origin-port", &free_port().to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The first entry that is installed, held, and the process of its cache.
fn held(port: u16) -> Option<(Child, i32)> {
    for entry in ["nginx", "haproxy", "varnish"] {
        let mut child = hold(entry, port);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let words: Vec<&str> = line.trim().split('\t').collect();
        if let [pid, address, product] = words[..] {
            assert_eq!(address, format!("127.0.0.1:{port}"));
            assert!(product.contains(char::is_numeric), "{product} has a version");
            return Some((child, pid.parse().unwrap()));
        }
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(!child.wait().unwrap().success() && said.contains("is not installed"), "{said}");
    }
    None
}

fn ends_with_its_cache(mut child: Child, cache: i32, port: u16) {
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => assert!(begun.elapsed() < PATIENCE, "it goes on"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "{status}");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "nobody listens any more");
    assert!(!std::path::Path::new(&format!("/proc/{cache}")).exists(), "the cache is gone");
}

#[test]
fn it_goes_with_the_end_of_its_input() {
    let port = free_port();
    let Some((mut child, cache)) = held(port) else { return };
    TcpStream::connect(("127.0.0.1", port)).unwrap();
    drop(child.stdin.take());
    ends_with_its_cache(child, cache, port);
}

#[test]
fn it_goes_with_a_signal() {
    let port = free_port();
    let Some((child, cache)) = held(port) else { return };
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
    ends_with_its_cache(child, cache, port);
}

#[test]
fn an_unknown_entry_is_refused_with_the_known_ones() {
    let output = hold("polipo", free_port()).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("unknown entry \"polipo\"; there are larder"), "{said}");
}
