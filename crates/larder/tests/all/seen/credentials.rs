//! Answers of a private registry that an operator's rule has stored by credential: for all who present the same one, and for nobody else.

use super::stand;
use larder::run::control::{self, Client, Network, Way};
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

static ANSWERS: AtomicU64 = AtomicU64::new(0);

/// A registry: 401 without a credential; with one, the body says whose answer it is, and the how many-th.
fn serve(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let head = stand::read_head(&mut lines)?;
        let number = ANSWERS.fetch_add(1, Ordering::SeqCst);
        let lower = head.to_lowercase();
        let who = lower.lines().find_map(|line| line.strip_prefix("authorization: bearer "));
        let control = match head.split(' ').nth(1)? {
            "/private" => "Cache-Control: private, max-age=60\r\n",
            "/no-store" => "Cache-Control: no-store\r\n",
            "/validated" => "Cache-Control: max-age=0\r\nETag: \"x\"\r\n",
            "/vary" => "Cache-Control: max-age=60\r\nVary: Authorization\r\n",
            "/cookie" => "Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n",
            _ => "Cache-Control: max-age=60\r\n",
        };
        let answer = match who {
            None => "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n".to_owned(),
            Some(_) if lower.contains("if-none-match: \"x\"") => format!("HTTP/1.1 304 Not Modified\r\n{control}\r\n"),
            Some(who) => {
                let body = format!("{number} for {}", who.len());
                format!("HTTP/1.1 200 OK\r\n{control}Content-Length: {}\r\n\r\n{body}", body.len())
            }
        };
        (&*stream).write_all(answer.as_bytes()).ok()?;
    }
}

/// Credentials of different lengths, which the registry names them by.
const ANNA: &str = "Authorization: Bearer anna-is-secret\r\n";
const BEN: &str = "Authorization: Bearer ben-is-very-secret\r\n";

fn get(proxy: SocketAddr, url: &str, host: SocketAddr, fields: &str) -> String {
    stand::exchange(proxy, &format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{fields}Connection: close\r\n\r\n"))
}

fn has_text(folder: &Path, text: &[u8]) -> bool {
    std::fs::read_dir(folder).unwrap().flatten().any(|entry| match entry.file_type().unwrap() {
        kind if kind.is_dir() => has_text(&entry.path(), text),
        kind if kind.is_file() => {
            let bytes = std::fs::read(entry.path()).unwrap();
            bytes.windows(text.len()).any(|window| window == text)
        }
        _ => false,
    })
}

#[test]
fn an_answer_is_for_all_with_the_same_credential_and_for_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let rule = "disk = \"64MB\"\n[[store_rule]]\nhosts = [\"127.0.0.1\"]\nby_credential = true\n";
    let server = stand::server(folder.path(), rule);
    let client = Client::new(control::socket(folder.path()));
    let origin = stand::origin_that(serve);
    let run = client.start().unwrap();
    let whole = |path: &str, fields: &str| get(run.proxy, &format!("http://{origin}{path}"), origin, fields);
    let body = |path: &str, fields: &str| stand::body(&whole(path, fields)).to_owned();
    for path in ["/a", "/a?b=1", "/vary", "/validated"] {
        let [anna, ben] = [ANNA, BEN].map(|who| body(path, who));
        assert!(anna.ends_with(" for 14") && ben.ends_with(" for 18"), "{path}: {anna} {ben}");
        assert_eq!([body(path, ANNA), body(path, BEN)], [anna.clone(), ben], "{path}");
        assert!(whole(path, "").starts_with("HTTP/1.1 401"), "{path}");
        // Another field that may say who asks, or a second credential, has nothing to do with what is stored.
        for more in ["Cookie: id=1\r\n", "X-Api-Key: k\r\n", BEN] {
            assert_ne!(body(path, &format!("{ANNA}{more}")), anna, "{path} {more}");
        }
        assert_eq!(body(path, ANNA), anna, "{path}");
    }
    for path in ["/private", "/no-store", "/cookie"] {
        assert_ne!(body(path, ANNA), body(path, ANNA), "{path}: its origin says that it is not kept");
    }
    // A purge of the URL is one for all credentials.
    let [anna, ben] = [ANNA, BEN].map(|who| body("/purged", who));
    let admin = server.admin().unwrap();
    let purge = format!(
        "POST /purge?url=http://{origin}/purged HTTP/1.1\r\nHost: {admin}\r\nX-Larder: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    assert!(stand::exchange(admin, &purge).starts_with("HTTP/1.1 200"));
    assert!(body("/purged", ANNA) != anna && body("/purged", BEN) != ben);
    client.finish(&run.id).unwrap();
    // Offline too, and nothing that is missing is noted with a credential.
    let offline = client.start_with(Network::Untouched, Way::Proxy).unwrap();
    let url = |path: &str| format!("http://{origin}{path}");
    assert!(get(offline.proxy, &url("/a"), origin, ANNA).contains(" for 14"));
    for fields in ["", "Authorization: Bearer else\r\n"] {
        assert!(get(offline.proxy, &url("/a"), origin, fields).starts_with("HTTP/1.1 504"), "{fields}");
    }
    assert!(get(offline.proxy, &url("/never"), origin, ANNA).starts_with("HTTP/1.1 504"));
    let missing = client.finish(&offline.id).unwrap().missing;
    assert_eq!(missing.iter().map(|one| one.url.clone()).collect::<Vec<_>>(), [url("/a")], "without credentials");
    server.stop();
    for secret in ["anna-is-secret", "ben-is-very-secret"] {
        assert!(!has_text(folder.path(), secret.as_bytes()), "{secret} lies in the store");
    }
}

/// A mirror keeps a tool's credentials for itself, unless the upstream is asked by its name.
#[test]
fn a_credential_for_a_mirror_goes_to_no_origin() {
    let folder = tempfile::tempdir().unwrap();
    let rule = "[[store_rule]]\nhosts = [\"127.0.0.1\"]\nby_credential = true\n";
    let server = stand::server(folder.path(), rule);
    let origin = stand::origin_that(serve);
    let proxy = server.addresses()[0];
    let answer = get(proxy, &format!("/http://{origin}/mirrored"), proxy, ANNA);
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
}
