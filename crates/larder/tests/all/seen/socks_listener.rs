//! A listener whose clients speak SOCKS: what they reach, who may, and what is read of their tunnels.

use super::hooks_forward::tls_origin;
use super::parents::nowhere;
use super::stand;
use super::ways::echo;
use larder::config::Loaded;
use larder::server::Server;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;

/// `ada:secret`, by `openssl passwd -apr1`.
const USERS: &str = "ada:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n";

fn server(folder: &Path, listen: &str, more: &str) -> Server {
    let log = folder.join("log");
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\nsocks = true\n{listen}\n{more}\n\
         [timeouts]\nhead = \"1s\"\n[log]\nto = {log:?}\nformat = \"{{user}} {{method}} {{url}} {{status}} {{outcome}}\"\n"
    );
    stand::server(&folder.join("store"), &text)
}

/// Sends these messages, each behind the answer to the one before, of which so many bytes are read; gives all answers and the rest.
fn talk(to: SocketAddr, messages: &[(&[u8], usize)]) -> Vec<u8> {
    let mut stream = stand::connect_from([127, 0, 0, 1], to);
    let mut all = Vec::new();
    for (message, answer) in messages {
        let _ = stream.write_all(message);
        let mut bytes = vec![0; *answer];
        if stream.read_exact(&mut bytes).is_err() {
            return all;
        }
        all.extend(bytes);
    }
    let _ = stream.read_to_end(&mut all);
    all
}

/// A request for this address, with a byte for the echo behind it.
fn request(to: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(to) = to else { panic!("{to}") };
    [&[5, 1, 0, 1][..], &to.ip().octets(), &to.port().to_be_bytes()].concat()
}

const OPEN: (&[u8], usize) = (&[5, 1, 0], 2);
const CONNECTED: [u8; 10] = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];

#[test]
fn a_tunnel_is_opened_by_address_and_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), "", "");
    let (to, echo) = (server.addresses()[0], stand::origin_that(echo));
    let by_address = [&request(echo)[..], b"a"].concat();
    let name = b"localhost";
    let port = echo.port().to_be_bytes();
    let by_name = [&[5, 1, 0, 3, name.len() as u8][..], name, &port, b"a"].concat();
    for asked in [by_address, by_name] {
        let answer = talk(to, &[OPEN, (&asked, 10)]);
        assert_eq!(answer, [&[5, 0][..], &CONNECTED, b"b"].concat());
    }
    // Its own listener, a port where nobody listens, and another command.
    for (asked, code) in [(request(to), 2), (request(nowhere()), 4), (vec![5, 2, 0, 1], 7)] {
        let answer = talk(to, &[OPEN, (&asked, 10)]);
        assert_eq!(answer, [5, 0, 5, code, 0, 1, 0, 0, 0, 0, 0, 0], "{asked:?}");
    }
    // HTTP, silence, and half a message.
    assert_eq!(talk(to, &[(b"GET / HTTP/1.1\r\n\r\n", 0)]), b"");
    assert_eq!(talk(to, &[(b"", 0)]), b"");
    assert_eq!(talk(to, &[OPEN, (&[5, 1], 0)]), [5, 0]);
    let counters = &server.shared().common.counters;
    stand::wait_for("all are counted", || counters.socks_refused.load(Ordering::Relaxed) == 4);
}

#[test]
fn a_user_has_the_password_of_basic() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    std::fs::write(&users, USERS).unwrap();
    let people = format!(
        "[[login]]\nname = \"office\"\nscheme = \"basic\"\nrealm = \"the office\"\nfile = {users:?}\n[access]\nlogin = \"office\"\n"
    );
    let server = server(folder.path(), "", &people);
    let (to, asked) = (server.addresses()[0], [&request(stand::origin_that(echo))[..], b"a"].concat());
    let with = |login: &[u8]| talk(to, &[(&[5, 2, 0, 2], 2), (login, 2), (&asked, 10)]);
    assert_eq!(with(b"\x01\x03ada\x06secret"), [&[5, 2, 1, 0][..], &CONNECTED, b"b"].concat());
    assert_eq!(with(b"\x01\x03ada\x05wrong"), [5, 2, 1, 0, 5, 2, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(talk(to, &[OPEN, (&asked, 10)]), [5, 0, 5, 2, 0, 1, 0, 0, 0, 0, 0, 0]);
    server.stop();
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("ada CONNECT 127.0.0.1:") && log.contains(" 200 tunnel"), "{log}");
    assert!(log.contains(" 407 "), "{log}");
}

#[test]
fn tls_of_curl_is_opened_where_the_listener_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut curl) = stand::program("curl") else { return };
    let (origin, _) = tls_origin(folder.path(), "localhost");
    let root = folder.path().join("chain.pem");
    let server = server(folder.path(), "intercept = true", &format!("[upstream]\nextra_roots = [{root:?}]\n"));
    let proxy = format!("socks5h://{}", server.addresses()[0]);
    let url = format!("https://localhost:{}/fresh", origin.port());
    let output = curl.args(["-s", "-k", "-i", "--max-time", "10", "-x", &proxy, &url]).output().unwrap();
    // Inside the tunnel curl speaks HTTP/2, whose names are in lower case.
    let answer = String::from_utf8_lossy(&output.stdout).to_lowercase();
    assert!(answer.contains("cache-status: larder") && answer.ends_with("localhost /fresh"), "{answer}");
}

#[test]
fn a_listener_of_socks_is_nothing_else() {
    for (bad, named) in [
        ("forward = false", "`forward`"),
        ("origin = \"http://127.0.0.1:9000\"", "`origin`"),
        ("transparent = \"redirect\"", "`transparent`"),
        ("mirror = \"all\"", "`mirror`"),
    ] {
        let text = format!("[[listen]]\naddress = \"[::]:1080\"\nsocks = true\n{bad}");
        let report =
            Loaded::parse("larder.toml", &text, &[]).err().map(|report| report.to_string()).unwrap_or_default();
        assert!(report.contains("`socks`") && report.contains(named), "{bad}: {report}");
    }
}
