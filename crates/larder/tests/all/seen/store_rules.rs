//! Store rules and presets at a `larder run`: signed redirections, offline too, and users who are not to be mixed.

use super::stand;
use larder::run::control::{self, Client};
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

const SIGNATURE: &str = "X-Amz-Algorithm=A&X-Amz-Credential=K&X-Amz-Date=D&X-Amz-Signature=";

static SIGNATURES: AtomicU64 = AtomicU64::new(0);
static OBJECTS: AtomicU64 = AtomicU64::new(0);

/// A hub that redirects to an object with another signature each time.
fn serve_hub(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let first = stand::read_request(&mut lines)?;
        let answer = if first.contains("/resolve/") {
            let number = SIGNATURES.fetch_add(1, Ordering::Relaxed);
            format!("HTTP/1.1 302 Found\r\nLocation: /object?{SIGNATURE}{number}\r\nContent-Length: 0\r\n\r\n")
        } else {
            OBJECTS.fetch_add(1, Ordering::Relaxed);
            "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\n0123456789"
                .to_owned()
        };
        (&*stream).write_all(answer.as_bytes()).ok()?;
    }
}

fn ask(proxy: SocketAddr, origin: SocketAddr, path: &str, field: &str) -> String {
    let fields = if field.is_empty() { String::new() } else { format!("{field}\r\n") };
    let request = format!("GET http://{origin}{path} HTTP/1.1\r\nHost: {origin}\r\n{fields}Connection: close\r\n\r\n");
    stand::exchange(proxy, &request)
}

fn location(answer: &str) -> &str {
    let (_, rest) = answer.split_once("ocation: ").unwrap_or_else(|| panic!("{answer}"));
    rest.lines().next().unwrap()
}

#[test]
fn an_object_behind_signed_redirections_is_fetched_once_and_found_offline() {
    let folder = tempfile::tempdir().unwrap();
    let _server = stand::server(folder.path(), "");
    let client = Client::new(control::socket(folder.path()));
    let origin = stand::origin_that(serve_hub);
    let download = |proxy: SocketAddr| {
        let redirection = ask(proxy, origin, "/o/m/resolve/main/x.bin", "");
        assert!(redirection.starts_with("HTTP/1.1 302"), "{redirection}");
        let answer = ask(proxy, origin, location(&redirection), "");
        assert!(answer.ends_with("0123456789"), "{answer}");
        answer
    };
    let online = client.start().unwrap();
    assert!(!download(online.proxy).contains("larder; hit"));
    assert!(download(online.proxy).contains("larder; hit"));
    assert_eq!((SIGNATURES.load(Ordering::Relaxed), OBJECTS.load(Ordering::Relaxed)), (2, 1));
    // A signature that the hub did not give is the storage's to judge.
    let forged = ask(online.proxy, origin, &format!("/object?{SIGNATURE}forged"), "");
    assert!(!forged.contains("larder; hit"), "{forged}");
    assert_eq!(OBJECTS.load(Ordering::Relaxed), 2);
    client.finish(&online.id).unwrap();

    let offline = client.start_with(control::Network::Untouched, control::Way::Proxy).unwrap();
    assert!(download(offline.proxy).contains("larder; hit"));
    assert_eq!((SIGNATURES.load(Ordering::Relaxed), OBJECTS.load(Ordering::Relaxed)), (2, 2));
    client.finish(&offline.id).unwrap();
}
