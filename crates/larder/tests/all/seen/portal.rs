//! Runs in a network that answers each plain request with a page of its own, until somebody has logged in (decision 049).

use super::stand;
use larder::run::control::{self, Client, Network, RunStarted, Way};
use larder::server::Server;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use tempfile::TempDir;

/// Somebody who answers at the address of the origin.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum There {
    Origin,
    /// A portal with a page for all paths.
    Page,
    /// A portal that redirects to another host.
    Redirect,
    /// A portal that says so (RFC 6585 section 6).
    Status,
    /// The origin, with another content.
    Changed,
    /// The origin, which has put a page in the place of its file.
    PageAtOrigin,
    /// The origin, with another content, and a page for people on all paths that it does not have.
    ChangedWithPages,
}

const PORTALS: [There; 3] = [There::Page, There::Redirect, There::Status];
const PAGE: &str = "<html>log in</html>";

fn html(status: &str, more: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nCache-Control: max-age=600\r\n{more}Content-Length: {}\r\n\r\n{PAGE}",
        PAGE.len()
    )
}

fn file(body: &str, age: u64) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nCache-Control: max-age=0\r\nAge: {age}\r\nETag: \"{body}\"\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn serve(stream: &TcpStream, there: &AtomicU8) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let first = stand::read_request(&mut lines)?;
        let path = first.split(' ').nth(1)?;
        let is_index = path.contains("/simple/");
        let has = path.contains(".deb") || path.ends_with("/InRelease") || is_index;
        let is = |one: There| there.load(Ordering::SeqCst) == one as u8;
        let answer = if is(There::Page) || is(There::PageAtOrigin) && has {
            html("200 OK", "")
        } else if is(There::Redirect) {
            html("302 Found", &format!("Location: http://login.example/?to={path}\r\n"))
        } else if is(There::Status) {
            html("511 Network Authentication Required", "")
        } else if has {
            let age = if path.contains("aged") { 31 * 86_400 } else { 0 };
            let body = if is(There::Changed) || is(There::ChangedWithPages) { "new" } else { "old" };
            let kind = if is_index { "text/html" } else { "application/octet-stream" };
            file(body, age).replace("application/octet-stream", kind)
        } else if is(There::ChangedWithPages) {
            html("200 OK", "")
        } else {
            html("404 Not Found", "")
        };
        (&*stream).write_all(answer.as_bytes()).ok()?;
    }
}

fn get(proxy: SocketAddr, origin: SocketAddr, path: &str) -> String {
    let accept = if path.contains("/simple/") { "application/vnd.pypi.simple.v1+html" } else { "*/*" };
    let fields = format!("User-Agent: test\r\nAccept: {accept}\r\nCache-Control: max-age=0\r\nConnection: close\r\n");
    stand::exchange(proxy, &format!("GET http://{origin}{path} HTTP/1.1\r\nHost: {origin}\r\n{fields}\r\n"))
}

/// A server, its control socket and a run; the server ends when the first of them is dropped.
fn stand_with_run() -> ((Server, TempDir), Client, RunStarted) {
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), "");
    let client = Client::new(control::socket(folder.path()));
    let run = client.start().unwrap();
    ((server, folder), client, run)
}

#[test]
fn behind_a_portal_a_run_gets_what_is_stored() {
    static THERE: AtomicU8 = AtomicU8::new(There::Origin as u8);
    let is_now = |there: There| THERE.store(there as u8, Ordering::SeqCst);
    let (_stand, client, run) = stand_with_run();
    let origin = stand::origin_that(|stream| serve(stream, &THERE));
    for (number, portal) in PORTALS.into_iter().enumerate() {
        let package = format!("/debian/pool/main/x/x_{number}.0_amd64.deb");
        let index = format!("/debian/dists/{number}/InRelease");
        let body = |path: &str| stand::body(&get(run.proxy, origin, path)).to_owned();
        for path in [&package, &index] {
            is_now(There::Origin);
            stand::wait_for("the origin to be heard again", || body(path) == "old");
            is_now(portal);
            for _ in 0..3 {
                assert_eq!(body(path), "old", "{path}");
            }
            // A change arrives when the network is back.
            is_now(There::Changed);
            stand::wait_for("what is new", || body(path) == "new");
        }
    }
    let stats = client.finish(&run.id).unwrap();
    assert!(stats.portal >= 18 && stats.portal == stats.network_away, "{stats:?}");
}

/// A simple index of Python is HTML itself: a portal's page is the same on a path that no site has.
#[test]
fn an_index_in_html_is_told_from_a_page_that_all_paths_have() {
    static THERE: AtomicU8 = AtomicU8::new(There::Origin as u8);
    let is_now = |there: There| THERE.store(there as u8, Ordering::SeqCst);
    let (_stand, client, run) = stand_with_run();
    let origin = stand::origin_that(|stream| serve(stream, &THERE));
    for (number, portal) in PORTALS.into_iter().enumerate() {
        let path = format!("/simple/package-{number}/");
        let body = || stand::body(&get(run.proxy, origin, &path)).to_owned();
        is_now(There::Origin);
        stand::wait_for("the origin to be heard again", || body() == "old");
        is_now(portal);
        for _ in 0..3 {
            assert_eq!(body(), "old", "{path}");
        }
        is_now(There::Changed);
        stand::wait_for("what is new", || body() == "new");
    }
    // Where nothing says that the network is away, a change arrives with the first request, whatever other paths have.
    stand::wait_for("an end of what is known of the network", || {
        is_now(There::Origin);
        let old = stand::body(&get(run.proxy, origin, "/simple/pages/")).to_owned();
        is_now(There::ChangedWithPages);
        old == "old"
    });
    assert_eq!(stand::body(&get(run.proxy, origin, "/simple/pages/")), "new");
    assert_eq!(stand::body(&get(run.proxy, origin, "/simple/first/")), "new");
    let stats = client.finish(&run.id).unwrap();
    assert!(stats.portal >= 9 && stats.portal == stats.network_away, "{stats:?}");
}

#[test]
fn a_page_that_an_origin_puts_in_the_place_of_a_file_arrives_at_once() {
    static THERE: AtomicU8 = AtomicU8::new(There::Origin as u8);
    let (_stand, client, run) = stand_with_run();
    let origin = stand::origin_that(|stream| serve(stream, &THERE));
    let body = || stand::body(&get(run.proxy, origin, "/pool/x_1.0_all.deb")).to_owned();
    assert_eq!(body(), "old");
    THERE.store(There::PageAtOrigin as u8, Ordering::SeqCst);
    assert_eq!([body(), body()], [PAGE, PAGE]);
    THERE.store(There::Changed as u8, Ordering::SeqCst);
    assert_eq!(body(), "new");
    assert_eq!(client.finish(&run.id).unwrap().network_away, 0);
}

/// A site that has one page for all paths can't be told from a portal: its word counts after a month.
#[test]
fn a_file_that_is_stale_for_long_is_not_used_for_ever() {
    static THERE: AtomicU8 = AtomicU8::new(There::Origin as u8);
    let (_stand, _client, run) = stand_with_run();
    let origin = stand::origin_that(|stream| serve(stream, &THERE));
    let ask = || get(run.proxy, origin, "/pool/aged_1.0_all.deb");
    assert!(ask().ends_with("old"));
    THERE.store(There::Page as u8, Ordering::SeqCst);
    assert!(ask().ends_with(PAGE) && ask().ends_with(PAGE));
}

#[test]
fn nothing_of_a_portal_is_stored() {
    static THERE: AtomicU8 = AtomicU8::new(There::Origin as u8);
    let (_stand, client, run) = stand_with_run();
    let origin = stand::origin_that(|stream| serve(stream, &THERE));
    // The rule of the second one has redirections stored.
    for path in ["/pool/new_1.0_all.deb", "/crates/x/1.0/download"] {
        for portal in PORTALS {
            THERE.store(portal as u8, Ordering::SeqCst);
            assert!(get(run.proxy, origin, path).ends_with(PAGE), "{path}: there is nothing else to have");
        }
        let offline = client.start_with(Network::Untouched, Way::Proxy).unwrap();
        let answer = get(offline.proxy, origin, path);
        assert!(answer.starts_with("HTTP/1.1 504"), "{path}: {answer}");
        client.finish(&offline.id).unwrap();
    }
    THERE.store(There::Origin as u8, Ordering::SeqCst);
    assert!(get(run.proxy, origin, "/pool/new_1.0_all.deb").ends_with("old"));
}
