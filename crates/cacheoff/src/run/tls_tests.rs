//! Runs over TLS, bounded and on loopback: to a reverse cache, through tunnels, to the origins; and what must never
//! happen, an answer to a robot that could not verify whom it speaks to.

use super::tests::{Lie, order, whole};
use super::*;
use crate::ledger::{Connections, Side, Trouble};
use crate::tls::{Authority, Tls, Trust};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Mutex;

fn tls(roots: &[&Authority], origins: Option<Authority>) -> Tls {
    Tls::new(Trust::Roots(roots.iter().map(|root| root.certificate().clone()).collect()), origins).unwrap()
}

fn played(address: Option<SocketAddr>, mode: ledger::Mode, tls: Tls, change: impl FnOnce(&mut Settings)) -> Interval {
    let mut order = order(address, Lie::None);
    (order.settings.route.mode, order.settings.route.tls) = (mode, true);
    order.settings.tls = Some(tls);
    change(&mut order.settings);
    whole(&run(order).unwrap())
}

fn robots(seen: &Interval) -> Connections {
    seen.connections.get(&Side::Client).copied().unwrap_or_default()
}

/// Serves each connection in a thread.
fn listens(serve: impl Fn(TcpStream) -> Option<()> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

fn head(stream: &mut impl Read) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0; 1]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

/// A reverse proxy that passes one request of each connection on, in the clear.
fn terminator(config: Arc<ServerConfig>) -> SocketAddr {
    listens(move |stream| {
        let mut client = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
        let request = head(&mut client)?;
        let host = request.split("Host: ").nth(1)?.split("\r\n").next()?;
        let mut origin = TcpStream::connect(host).ok()?;
        origin.write_all(request.replace("Connection: keep-alive\r\n", "").as_bytes()).ok()?;
        let mut reply = Vec::new();
        origin.read_to_end(&mut reply).ok()?;
        client.write_all(&reply).ok()?;
        client.conn.send_close_notify();
        client.flush().ok()
    })
}

/// A proxy that makes tunnels.
fn tunneller() -> SocketAddr {
    listens(|mut client| {
        let request = head(&mut client)?;
        let mut origin = TcpStream::connect(request.strip_prefix("CONNECT ")?.split(' ').next()?).ok()?;
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()?;
        let (mut from, mut to) = (client.try_clone().ok()?, origin.try_clone().ok()?);
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
        std::io::copy(&mut origin, &mut client).ok()?;
        client.shutdown(std::net::Shutdown::Write).ok()
    })
}

fn loopback(authority: &Authority) -> Arc<ServerConfig> {
    authority.server(Ipv4Addr::LOCALHOST.into(), "localhost").unwrap()
}

#[test]
fn robots_speak_tls_to_a_reverse_cache_and_resume_their_sessions() {
    for versions in [&[&rustls::version::TLS13][..], &[&rustls::version::TLS12][..]] {
        let authority = Authority::new().unwrap();
        let config = authority.sign(Ipv4Addr::LOCALHOST.into(), "localhost", versions).unwrap();
        let address = terminator(Arc::new(config));
        let seen = played(Some(address), ledger::Mode::Reverse, tls(&[&authority], None), |_| {});
        assert_eq!(seen.errors.total(), 0, "{:?}", seen.errors);
        let robots = robots(&seen);
        assert!(seen.replies() > 200 && robots.handshakes >= seen.replies(), "{robots:?}");
        assert!(robots.resumed * 2 > robots.handshakes, "{robots:?}");
        assert_eq!(robots.opened, robots.handshakes);
        assert!(seen.handshake.mean().unwrap() < seen.service.all.mean().unwrap());
    }
}

#[test]
fn robots_and_origins_speak_tls_without_a_cache_and_through_tunnels() {
    for (address, mode) in [(None, ledger::Mode::NoProxy), (Some(tunneller()), ledger::Mode::Forward)] {
        let seen = played(address, mode, tls(&[], Some(Authority::new().unwrap())), |settings| {
            settings.robots.version = larder_wire::Version::Http11;
        });
        assert_eq!(seen.errors.total(), 0, "{mode:?}: {:?}", seen.errors);
        let (robots, origins) = (robots(&seen), seen.connections[&Side::Server]);
        assert!(seen.replies() > 200 && robots.reused > 50, "{mode:?}: {robots:?}");
        assert_eq!((robots.handshakes, robots.resumed), (origins.handshakes, origins.resumed), "{mode:?}");
        assert!(robots.handshakes >= robots.opened - 20, "{mode:?}: {robots:?}");
        assert_eq!(seen.origin.requests, seen.replies());
    }
}

/// Requests that come while the connection of their host is being made wait for the cache; the referee is not late with them.
#[test]
fn requests_that_wait_for_a_handshake_are_not_late() {
    let authority = Authority::new().unwrap();
    let config = Arc::new({
        let mut config = ServerConfig::clone(&loopback(&authority));
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    });
    let address = listens(move |stream| {
        // Longer than robots ask, shorter than they wait.
        std::thread::sleep(Duration::from_millis(2_500));
        let mut client = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
        std::io::copy(&mut client, &mut std::io::sink()).map(drop).ok()
    });
    let seen = played(Some(address), ledger::Mode::Reverse, tls(&[&authority], None), |settings| {
        settings.route.host = address.to_string();
        settings.robots.streams = Some(crate::robot::StreamSettings::default());
        settings.robots.count = 2;
    });
    let robots = robots(&seen);
    assert!(robots.handshakes == 2 && robots.opened == 2 && robots.reused > 10, "{robots:?}");
    assert_eq!(seen.lateness.count(), 2, "those that opened the connections went out at once");
}

#[test]
fn the_link_delays_a_handshake_by_its_round_trips() {
    let mut own = Some(Authority::new().unwrap());
    let seen = played(None, ledger::Mode::NoProxy, tls(&[], own.take()), |settings| {
        settings.origins.link = crate::link::Link { delay: Duration::from_millis(20), ..Default::default() };
        settings.robots.link = settings.origins.link;
    });
    assert_eq!(seen.errors.total(), 0, "{:?}", seen.errors);
    assert!(seen.handshake.min().unwrap() >= 40_000, "{:?}", seen.handshake.min());
    // TCP, TLS and the request on each of the two links, one after the other on the client's.
    assert!(seen.service.all.max().unwrap() >= 80_000);
}

#[test]
fn who_cannot_be_verified_gets_no_request() {
    let authority = Authority::new().unwrap();
    let address = terminator(loopback(&authority));
    let stranger = Authority::new().unwrap();
    let seen = played(Some(address), ledger::Mode::Reverse, tls(&[&stranger], None), |_| {});
    assert!(seen.errors.of(Trouble::Tls) > 100, "{:?}", seen.errors);
    assert_eq!((seen.errors.total(), seen.replies()), (seen.errors.of(Trouble::Tls), 0), "{:?}", seen.errors);
    assert_eq!((robots(&seen).handshakes, seen.origin.requests), (0, 0));
    let believes = Tls::new(Trust::Anybody, None).unwrap();
    let seen = played(Some(address), ledger::Mode::Reverse, believes, |_| {});
    assert!(seen.errors.is_empty() && seen.replies() > 200, "{:?}", seen.errors);
}

#[test]
fn clear_text_is_never_tried_where_tls_was_asked_for() {
    let begins = Arc::new(Mutex::new(Vec::new()));
    let heard = begins.clone();
    let address = listens(move |mut stream| {
        let mut piece = [0; 4096];
        let len = stream.read(&mut piece).ok()?;
        heard.lock().unwrap().push(piece[..len][0]);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").ok()
    });
    let authority = Authority::new().unwrap();
    let seen = played(Some(address), ledger::Mode::Reverse, tls(&[&authority], None), |_| {});
    assert!(seen.errors.of(Trouble::Tls) > 100 && seen.replies() == 0, "{:?}", seen.errors);
    // A record of the handshake (RFC 8446 section 5.1).
    assert!(begins.lock().unwrap().iter().all(|first| *first == 0x16));
}

#[test]
fn a_tunnel_that_is_denied_is_a_refusal() {
    let address = listens(|mut stream| {
        head(&mut stream)?;
        stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").ok()
    });
    let own = Authority::new().unwrap();
    let seen = played(Some(address), ledger::Mode::Forward, tls(&[], Some(own)), |_| {});
    assert_eq!(seen.errors.total(), seen.errors.of(Trouble::Refused), "{:?}", seen.errors);
    assert!(seen.errors.total() > 100 && seen.errors.exhibits[0].detail.contains("403"));
}
