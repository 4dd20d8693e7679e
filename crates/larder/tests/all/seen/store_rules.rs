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

/// Its answers say which origin they are from, and stay fresh.
fn serve_name(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        stand::read_request(&mut lines)?;
        let body = format!("from {}", stream.local_addr().ok()?.port());
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n", body.len());
        (&*stream).write_all((head + &body).as_bytes()).ok()?;
    }
}

#[test]
fn origins_that_an_operator_calls_one_tree_share_and_no_other_does() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, other] = [(); 3].map(|()| stand::origin_that(serve_name));
    let rule = format!("[[store_rule]]\nsame_tree = [\"http://{a}\", \"http://{b}\"]\n");
    let server = stand::server(folder.path(), &rule);
    let client = Client::new(control::socket(folder.path()));
    let run = client.start().unwrap();
    let body =
        |origin: SocketAddr, path: &str, field: &str| stand::body(&ask(run.proxy, origin, path, field)).to_owned();
    let from = |origin: SocketAddr| format!("from {}", origin.port());
    // Of both, the one that is asked first answers for the other; queries are kept apart.
    for (path, first, second) in [("/x", b, a), ("/y", a, b), ("/x?1", a, b)] {
        assert_eq!(body(first, path, ""), from(first), "{path}");
        assert_eq!(body(second, path, ""), from(first), "{path}");
        assert_eq!(body(other, path, ""), from(other), "{path}: it is not named");
    }
    // A field of the client's makes no host one of the tree, and takes none out of it.
    for (number, field) in [format!("X-Forwarded-Host: {a}"), format!("Forwarded: host={a}")].iter().enumerate() {
        let path = format!("/field-{number}");
        assert_eq!(body(a, &path, ""), from(a));
        assert_eq!(body(other, &path, field), from(other), "{field}");
        assert_eq!(body(b, &path, field), from(a), "{field}");
    }
    let lying = format!("GET http://{other}/lie HTTP/1.1\r\nHost: {a}\r\nConnection: close\r\n\r\n");
    assert_eq!(body(a, "/lie", ""), from(a));
    assert_ne!(stand::body(&stand::exchange(run.proxy, &lying)), from(a));
    // A URL is purged by each of its names.
    let admin = server.admin().unwrap();
    let purge = format!(
        "POST /purge?url=http://{b}/y HTTP/1.1\r\nHost: {admin}\r\nX-Larder: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    assert!(stand::exchange(admin, &purge).starts_with("HTTP/1.1 200"));
    assert_eq!(body(b, "/y", ""), from(b));
    client.finish(&run.id).unwrap();
}
