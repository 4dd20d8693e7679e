//! Clients whose address changes, or seems to.

use super::Site;
use super::client::{Answer, Client, control, get, headers, tls};
use super::relay::Relay;
use crate::seen::stand;
use larder_wire::h3::ErrorCode;
use std::net::{SocketAddr, UdpSocket};

const DENIED: &str = "[[rule]]\nwhen = { client = \"127.0.0.9\" }\ndo = { deny = true }\n";

fn rebind(client: &Client, last: u8) {
    let socket = UdpSocket::bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
    let entered = client.runtime.enter();
    client.endpoint.rebind(socket).unwrap();
    drop(entered);
}

/// A request that was not begun: its client may send it again.
fn is_rejected(answer: &Answer) -> bool {
    answer.reset == Some(ErrorCode::RequestRejected.number()) || answer.is_lost
}

/// A NAT that forgets gives a client another port.
#[test]
fn a_client_whose_port_changes_keeps_its_connection() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    let client = Client::to(&site);
    assert_eq!(client.get("/fresh").status(), "200");
    for _ in 0..3 {
        rebind(&client, 1);
        assert_eq!(client.get("/fresh").status(), "200");
        assert_eq!(client.get("/echo").status(), "200");
    }
    assert_eq!(client.quic.close_reason(), None);
}

#[test]
fn a_client_that_moves_comes_by_a_connection_that_proves_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::with(folder.path(), "", DENIED);
    let client = Client::to(&site);
    assert_eq!(client.get("/fresh").status(), "200");
    let (_send, mut under_way) = client.begin(&headers(&get("/slow")), true);
    client.wait(under_way.read_chunk(1, true)).unwrap().unwrap();
    rebind(&client, 9);
    let late = client.get("/fresh");
    assert!(is_rejected(&late), "{late:?}");
    // The request of before comes to its end.
    assert!(client.wait(under_way.read_to_end(1_000)).unwrap().ends_with(b"slow"));
    assert_eq!(client.closed().0, ErrorCode::NoError.number());
    let mut client = Client::with_from(9, site.address, tls(&site.certificate, None)).unwrap();
    client.uni(&control());
    assert_eq!(client.get("/fresh").status(), "403");
    drop(client);
    stand::wait_for("the count", || site.count("http3_moves") == 1);
    let log = site.log(folder.path());
    assert_eq!(log.lines().filter(|line| line.starts_with("127.0.0.9 ")).count(), 1, "{log}");
}

/// A packet with a forged source makes no request one of that address.
#[test]
fn nobody_is_judged_by_an_address_that_was_not_proved() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::with(folder.path(), "", DENIED);
    let relay = Relay::to(site.address, None);
    let mut client = Client::with(relay.address, tls(&site.certificate, None)).unwrap();
    client.uni(&control());
    assert_eq!(client.get("/fresh").status(), "200");
    relay.forge(true);
    let (_send, mut receive) = client.begin(&headers(&get("/fresh")), true);
    client.pause(300);
    relay.forge(false);
    let answer = client.answer(&mut receive);
    assert!(is_rejected(&answer), "{answer:?}");
    drop(client);
    let log = site.log(folder.path());
    assert!(!log.contains("127.0.0.9 ") && !log.contains("\" 403 "), "{log}");
}
