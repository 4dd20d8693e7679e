//! Clients that make work for nothing.

use super::Site;
use super::client::{Client, WITHIN, code, data, get, headers, tls};
use crate::seen::stand;
use larder_wire::h3::ErrorCode;
use larder_wire::h3::frame::write_head;
use quinn::Endpoint;
use std::net::{Ipv4Addr, UdpSocket};

/// Does something of no use, on and on, until the connection has ended.
type Flood = fn(&mut Client);

/// The word of the limit, and what makes it count.
const FLOODS: [(&str, Flood); 6] = [
    ("http3-rapid-reset", |client| {
        let Some((mut send, mut receive)) = client.try_begin(&headers(&get("/slow")), true) else { return };
        let _ = send.reset(code(ErrorCode::RequestCancelled));
        let _ = receive.stop(code(ErrorCode::RequestCancelled));
    }),
    ("http3-rapid-reset", |client| {
        let Some((mut send, _receive)) = client.try_begin(&headers(&get("/slow"))[..5], false) else { return };
        let _ = send.reset(code(ErrorCode::RequestCancelled));
    }),
    ("http3-made-reset", |client| {
        if let Some((_send, mut receive)) = client.try_begin(&headers(&[(":method", "GET")]), true) {
            client.answer(&mut receive);
        }
    }),
    ("http3-control-frames", |client| {
        let mut frames = Vec::new();
        (0..100).for_each(|_| write_head(&mut frames, 0x21, 0));
        if let Some(control) = client.unis.first_mut() {
            let _ = client.runtime.block_on(control.write_all(&frames));
        }
    }),
    ("http3-control-frames", |client| {
        if let Ok(Ok(mut stream)) = client
            .runtime
            .block_on(async { tokio::time::timeout(std::time::Duration::from_secs(5), client.quic.open_uni()).await })
        {
            let _ = client.runtime.block_on(stream.write_all(&[0x21]));
            let _ = stream.finish();
        }
    }),
    ("http3-small-data", |client| {
        let mut fields = get("/sum");
        fields[0].1 = "POST";
        let (mut send, _receive) = client.begin(&headers(&fields), false);
        let small = data(b"a").repeat(25_000);
        let _ = client.runtime.block_on(send.write_all(&small));
        client.runtime.block_on(async {
            let _ = tokio::time::timeout(std::time::Duration::from_secs(5), client.quic.closed()).await;
        });
    }),
];

/// More than any limit permits.
const WAVES: usize = 2_000;

#[test]
fn floods_end_their_connection() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    for (word, flood) in FLOODS {
        let mut client = Client::to(&site);
        for _ in 0..WAVES {
            if client.quic.close_reason().is_some() {
                break;
            }
            flood(&mut client);
        }
        assert_eq!(client.closed(), (ErrorCode::ExcessiveLoad.number(), word.to_owned()));
        // Other connections are served.
        assert_eq!(Client::to(&site).get("/fresh").text(), "bytes");
    }
    assert_eq!(site.count("http3_rapid_resets"), 2);
    assert_eq!(site.count("http3_made_resets"), 1);
    assert_eq!(site.count("http3_control_floods"), 2);
    assert_eq!(site.count("http3_small_data_floods"), 1);
    let log = site.log(folder.path());
    for (word, _) in FLOODS {
        let wanted = FLOODS.iter().filter(|(other, _)| *other == word).count();
        assert_eq!(log.matches(&format!(" {word} ")).count(), wanted, "{word}: {log}");
    }
}

/// First packets of clients that may not be where they say make no others wait: beyond some, clients prove their addresses.
#[test]
fn many_handshakes_make_clients_prove_their_addresses() {
    const CLIENTS: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    // What these clients send goes here, and from here to the server, whose replies nobody hears.
    let catcher = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    catcher.set_read_timeout(Some(WITHIN)).unwrap();
    let catcher_address = catcher.local_addr().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = tls(&site.certificate, None);
    let packets = runtime.block_on(async {
        let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let catcher = tokio::net::UdpSocket::from_std({
            catcher.set_nonblocking(true).unwrap();
            catcher
        })
        .unwrap();
        let (mut packets, mut clients) = (Vec::new(), Vec::new());
        for _ in 0..CLIENTS {
            let connecting = endpoint.connect_with(config.clone(), catcher_address, "site.test").unwrap();
            let mut packet = vec![0; 2_000];
            let length = tokio::time::timeout(WITHIN, catcher.recv(&mut packet)).await.unwrap().unwrap();
            packet.truncate(length);
            packets.push(packet);
            clients.push(connecting);
        }
        packets
    });
    let forger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for packet in &packets {
        forger.send_to(packet, site.address).unwrap();
    }
    stand::wait_for("clients that are told to prove their addresses", || site.count("http3_retries") > 0);
    let client = Client::to(&site);
    assert_eq!(client.get("/fresh").status(), "200");
    assert_eq!(site.count("http3_connections"), 1);
}
