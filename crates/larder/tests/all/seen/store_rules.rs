//! Store rules and presets at a `larder run`: signed redirections, offline too, and users who are not to be mixed.

use super::stand;
use larder::run::control::{self, Client};
use std::io::{BufRead, BufReader, Write};
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

const IDENTITIES: [&str; 10] = [
    "Accept: */*",
    "Authorization: Bearer one",
    "Authorization: Bearer two",
    "Authorization: Basic dGhyZWU6cGFzcw==",
    "Cookie: session=four",
    "Cookie: session=five",
    "X-Api-Key: six",
    "PRIVATE-TOKEN: seven",
    "X-Auth-Token: eight",
    "X-Vault-Token: nine",
];

/// Answers everybody with his own identity, under URLs that presets know, and redirects to a URL that carries it as a signature.
fn serve_identities(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let (mut first, mut identity) = (String::new(), 0);
        lines.read_line(&mut first).ok().filter(|&read| read > 0)?;
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).ok().filter(|&read| read > 0)?;
            if line == "\r\n" {
                break;
            }
            let is_it = |known: &&str| known.eq_ignore_ascii_case(line.trim_end());
            identity = IDENTITIES.iter().position(is_it).filter(|&at| at > 0).unwrap_or(identity);
        }
        let (answer, body) = match first.split_once("X-Amz-Signature=") {
            Some((_, signature)) => ("200 OK\r\nETag: \"x\"".to_owned(), format!("[{}]", signature.split(' ').next()?)),
            None if first.contains("/resolve/main/") => {
                (format!("302 Found\r\nLocation: /object?{SIGNATURE}{identity}"), String::new())
            }
            None => ("200 OK\r\nContent-Type: application/octet-stream".to_owned(), format!("[{identity}]")),
        };
        let length = body.len();
        (&*stream).write_all(format!("HTTP/1.1 {answer}\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes()).ok()?;
    }
}

/// Each of ten users gets his own answers under URLs that the presets know, and never one of another's.
#[test]
fn ten_identities_are_never_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let _server = stand::server(folder.path(), "");
    let client = Client::new(control::socket(folder.path()));
    let run = client.start().unwrap();
    let origin = stand::origin_that(serve_identities);
    // Shorter than a SHA-256: bodies that differ by user have no digest in common, and would be refused (decision 042).
    let digest = "ab".repeat(30);
    let paths = [
        format!("/debian/by-hash/SHA256/{digest}"),
        format!("/v2/private/blobs/sha256:{digest}"),
        "/example.test/mod/@v/v1.2.3.zip".to_owned(),
        "/example.test/mod/@v/list".to_owned(),
        "/files/six-1.16.0-py3-none-any.whl".to_owned(),
        "/private/-/private-1.0.0.tgz".to_owned(),
        format!("/o/m/resolve/{}/x.bin", "ab".repeat(20)),
        "/gems/rack-3.0.0.gem".to_owned(),
    ];
    std::thread::scope(|scope| {
        for (number, identity) in IDENTITIES.iter().enumerate() {
            let (paths, proxy) = (&paths, run.proxy);
            scope.spawn(move || {
                for round in 0..25 {
                    for path in paths {
                        let body = ask(proxy, origin, path, identity);
                        assert!(body.ends_with(&format!("\r\n\r\n[{number}]")), "{identity} {path} {round}: {body}");
                    }
                    let redirection = ask(proxy, origin, "/o/m/resolve/main/x.bin", identity);
                    let body = ask(proxy, origin, location(&redirection), "");
                    assert!(body.ends_with(&format!("\r\n\r\n[{number}]")), "{identity} {round}: {body}");
                }
            });
        }
    });
    client.finish(&run.id).unwrap();
}
