//! Origins that are told of the client by the PROXY protocol: whose connection is whose, and what comes before what.

use super::play::*;
use crate::upstream::{Call, CallEvent, Origin, Upstreams};
use larder_wire::Fields;
use larder_wire::proxy_protocol::{Addresses, ProxyVersion, parse};
use std::cell::Cell;
use tokio::io::AsyncReadExt;

/// An origin that answers with the header that its connection began with, and the number of the connection.
async fn telling() -> Origin {
    at(origin(|mut peer| async move {
        let mut header = Vec::new();
        let said = loop {
            let Ok(byte) = peer.stream.read_u8().await else { return };
            header.push(byte);
            match parse(&header) {
                Ok(Some((header, _))) => {
                    break header
                        .addresses
                        .map_or("local".to_owned(), |it| format!("{} to {}", it.source, it.destination));
                }
                Ok(None) => {}
                Err(fault) => break fault.to_string(),
            }
        };
        let body = format!("{said}, connection {}", peer.number);
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        peer.answer_all(&answer).await;
    })
    .await)
}

fn client(source: &str) -> Option<Addresses> {
    Some(Addresses { source: source.parse().unwrap(), destination: "198.51.100.1:443".parse().unwrap() })
}

/// The answer, and whether the connection's header was told of.
async fn ask(
    upstreams: &Upstreams,
    origin: &Origin,
    (proxy_protocol, proxied): (Option<ProxyVersion>, Option<Addresses>),
) -> (String, bool) {
    let (to, mut fields, told) = (url(origin), Fields::new(), Cell::new(false));
    fields.push("Host", "a.example");
    let on = |event| {
        if let CallEvent::Connected { header, .. } = event {
            told.set(header.is_some());
        }
    };
    let mut call = Call { proxy_protocol, proxied, on: &on, ..call(&to, &fields) };
    let mut response = patiently(upstreams.call(&mut call)).await.unwrap();
    let mut body = Vec::new();
    while let Some(piece) = patiently(response.body.next()).await.unwrap() {
        body.extend_from_slice(&piece);
    }
    (String::from_utf8(body).unwrap(), told.get())
}

#[tokio::test]
async fn a_connection_stays_with_the_client_that_its_header_names() {
    for version in [ProxyVersion::One, ProxyVersion::Two] {
        let (upstreams, origin) = (upstreams(|_| ()), telling().await);
        let (first, second) = (client("192.0.2.7:1000"), client("192.0.2.8:1000"));
        // Another connection of the same client has another port, and the header of the first one would lie about it.
        let again = client("192.0.2.7:1001");
        for (proxied, wanted) in [
            (first, "192.0.2.7:1000 to 198.51.100.1:443, connection 0"),
            (first, "192.0.2.7:1000 to 198.51.100.1:443, connection 0"),
            (second, "192.0.2.8:1000 to 198.51.100.1:443, connection 1"),
            (again, "192.0.2.7:1001 to 198.51.100.1:443, connection 2"),
            (None, "local, connection 3"),
            (None, "local, connection 3"),
            (second, "192.0.2.8:1000 to 198.51.100.1:443, connection 1"),
            (first, "192.0.2.7:1000 to 198.51.100.1:443, connection 0"),
        ] {
            let (body, told) = ask(&upstreams, &origin, (Some(version), proxied)).await;
            assert_eq!((&*body, told), (wanted, true), "{version:?}");
        }
        assert_eq!(upstreams.stats().total().proxy_headers, 4);
    }
}

#[tokio::test]
async fn a_connection_with_a_header_serves_no_request_without_one_and_the_other_way_round() {
    let (upstreams, origin) = (upstreams(|_| ()), telling().await);
    let one = Some(ProxyVersion::One);
    assert!(ask(&upstreams, &origin, (one, client("192.0.2.7:1000"))).await.1);
    // The origin takes a request for no header, and says so on a connection of its own.
    let (body, told) = ask(&upstreams, &origin, (None, client("192.0.2.7:1000"))).await;
    assert!(body.ends_with("connection 1") && !told, "{body}");
    let (body, _) = ask(&upstreams, &origin, (Some(ProxyVersion::Two), client("192.0.2.7:1000"))).await;
    assert!(body.ends_with("connection 2"), "{body}");
}

/// With one permit, each request waits for the one before it and is handed its connection.
#[tokio::test]
async fn a_connection_that_is_handed_on_goes_to_its_own_client_alone() {
    let upstreams = upstreams(|settings| settings.connections_per_origin_max = 1);
    let origin = telling().await;
    let of = |last: u8| (Some(ProxyVersion::Two), client(&format!("192.0.2.{last}:1000")));
    let (first, second, third) = tokio::join!(
        ask(&upstreams, &origin, of(1)),
        ask(&upstreams, &origin, of(2)),
        ask(&upstreams, &origin, of(3)),
    );
    for (number, (body, _)) in [(1, first), (2, second), (3, third)] {
        assert!(body.starts_with(&format!("192.0.2.{number}:1000 ")), "{number} got {body}");
    }
}
