//! TLS that goes to a site's origin unopened: nginx as its origins, clients that speak TLS piecemeal, late or not at all.

use super::{free, nginx};
use crate::seen::reload::{Steered, base};
use crate::seen::{stand, write_pair};
use larder::config::Loaded;
use larder::server::Server;
use larder::tls::{Roots, client_config, server_name};
use larder_wire::Host;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConnection, Stream};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tempfile::TempDir;

/// Two origins with certificates of their own, one of which wants a header of the PROXY protocol, and a Larder that has neither certificate.
struct Stage {
    folder: TempDir,
    server: Server,
    _nginx: super::Program,
    roots: Vec<CertificateDer<'static>>,
    origins: [SocketAddr; 2],
}

const NAMES: [&str; 3] = ["one.test", "two.test", "own.test"];

fn sites(origins: &[SocketAddr; 2]) -> String {
    format!(
        "[[site]]\nhosts = [\"one.test\"]\norigin = \"https://{}\"\npass_through = true\n\
         [[site]]\nhosts = [\"two.test\", \"*.two.test\"]\norigin = \"https://{}\"\npass_through = true\nproxy_protocol = \"v2\"\n",
        origins[0], origins[1]
    )
}

impl Stage {
    /// `listen` and `more` are settings of the listener and of the rest.
    fn with(listen: &str, more: &str) -> Option<Stage> {
        let folder = tempfile::tempdir().unwrap();
        let roots = NAMES.map(|name| {
            fs::create_dir(folder.path().join(name)).unwrap();
            write_pair(&folder.path().join(name), name)
        });
        let origins = [free(), free()];
        let at = folder.path().display();
        let server = |address: SocketAddr, name: &str, header: &str, says: &str| {
            format!(
                "server {{ listen {address} ssl{header}; ssl_certificate {at}/{name}/chain.pem; ssl_certificate_key {at}/{name}/key.pem; \
                 location / {{ return 200 \"{name} {says} $ssl_server_name\"; }} }}\n"
            )
        };
        let servers = server(origins[0], "one.test", "", "$remote_addr")
            + &server(origins[1], "two.test", " proxy_protocol", "$proxy_protocol_addr:$proxy_protocol_port");
        let nginx = nginx(&folder.path().join("nginx"), origins[0], &servers)?;
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\npass_through = true\n{}\n{}\
             [log]\nto = \"{at}/log\"\nformat = \"{{client}} {{url}} {{outcome}}\"\n{more}",
            listen.replace("AT", &at.to_string()),
            sites(&origins)
        );
        let server = stand::server(&folder.path().join("store"), &text);
        Some(Stage { folder, server, _nginx: nginx, roots: roots.to_vec(), origins })
    }

    fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    fn hello(&self, name: &str) -> ClientConnection {
        let roots = Roots { certificates: self.roots.clone(), troubles: Vec::new() };
        ClientConnection::new(client_config(&roots.into()).unwrap(), server_name(&Host::parse(name).unwrap()).unwrap())
            .unwrap()
    }

    /// The body of an answer by TLS of this name; an error where there is no TLS.
    fn ask(&self, name: &str) -> io::Result<String> {
        self.ask_on(name, stand::connect_from([127, 0, 0, 3], self.address()))
    }

    fn ask_on(&self, name: &str, mut stream: impl Read + Write) -> io::Result<String> {
        let mut tls = self.hello(name);
        let mut secure = Stream::new(&mut tls, &mut stream);
        secure.write_all(format!("GET /fresh HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n").as_bytes())?;
        let mut answer = Vec::new();
        match secure.read_to_end(&mut answer) {
            Err(error) if answer.is_empty() => return Err(error),
            _ => {}
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        Ok(stand::body(&answer).to_owned())
    }

    fn log(self) -> Vec<String> {
        self.server.stop();
        fs::read_to_string(self.folder.path().join("log")).unwrap().lines().map(str::to_owned).collect()
    }
}

/// Writes a few bytes at a time, each in a packet of its own.
struct Piecemeal(TcpStream);

impl Read for Piecemeal {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.0.read(room)
    }
}

impl Write for Piecemeal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        std::thread::sleep(Duration::from_millis(2));
        self.0.write(&bytes[..bytes.len().min(7)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_name_in_a_client_hello_leads_to_its_origin() {
    let Some(stage) = Stage::with("", "") else { return };
    assert_eq!(stage.ask("one.test").unwrap(), "one.test 127.0.0.1 one.test");
    let stream = stand::connect_from([127, 0, 0, 3], stage.address());
    let client = stream.local_addr().unwrap();
    assert_eq!(stage.ask_on("two.test", stream).unwrap(), format!("two.test {client} two.test"));
    // The certificate is the origin's, and so is the refusal of a wrong name.
    let wrong = stage.ask("x.two.test").unwrap_err().to_string();
    assert!(wrong.contains("certificate"), "{wrong}");
    // Packet by packet.
    let stream = TcpStream::connect(stage.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    assert_eq!(stage.ask_on("one.test", Piecemeal(stream)).unwrap(), "one.test 127.0.0.1 one.test");
    let mut log = stage.log();
    log.sort();
    let port = |line: &str| line.split(' ').nth(1).unwrap().rsplit_once(':').unwrap().0.to_owned();
    let named: Vec<String> = log.iter().map(|line| port(line)).collect();
    assert_eq!(named, ["one.test", "one.test", "two.test", "x.two.test"], "{log:?}");
    assert!(log.iter().all(|line| line.contains(" tunnel")), "{log:?}");
}

#[test]
fn names_without_a_site_are_refused_and_clear_text_is_served() {
    let origin = stand::origin();
    let more = format!("[[site]]\nhosts = [\"one.test\", \"own.test\"]\norigin = \"http://{origin}\"\n");
    let Some(stage) = Stage::with("", &more) else { return };
    for name in ["own.test", "three.test", "127.0.0.1"] {
        assert!(stage.ask(name).is_err(), "{name}");
    }
    // A record of TLS that is no ClientHello.
    let mut stream = TcpStream::connect(stage.address()).unwrap();
    stream.write_all(b"\x16\x03\x01\x00\x04\x02\x00\x00\x00").unwrap();
    assert!(stream.read(&mut [0]).is_ok_and(|read| read == 0) || stream.read(&mut [0]).is_err());
    let get = |host: &str| {
        stand::exchange(stage.address(), &format!("GET /fresh HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    };
    assert!(get("one.test").ends_with("/fresh"), "the site in clear text is another one");
    assert!(get("two.test").starts_with("HTTP/1.1 404 "), "no request is one of a site that is passed through");
    // A client can't say itself what the ClientHello says.
    let connect = "CONNECT one.test:443 HTTP/1.1\r\nHost: one.test:443\r\n\r\n";
    assert!(stand::exchange(stage.address(), connect).starts_with("HTTP/1.1 403 "));
    stand::wait_for("refused connections are counted", || {
        stage.server.shared().common.counters.pass_through_refused.load(Ordering::Relaxed) == 4
    });
    let log = stage.log();
    assert_eq!(log.iter().filter(|line| line.ends_with(" pass-through")).count(), 4, "{log:?}");
}

#[test]
fn beside_certificates_all_other_names_are_the_listener_s() {
    let origin = stand::origin();
    let more = format!("[[site]]\nhosts = [\"own.test\"]\norigin = \"http://{origin}\"\n");
    let tls = "[[listen.tls]]\nchain = \"AT/own.test/chain.pem\"\nkey = \"AT/own.test/key.pem\"\n";
    let Some(stage) = Stage::with(tls, &more) else { return };
    assert_eq!(stage.ask("own.test").unwrap(), "/fresh");
    assert_eq!(stage.ask("one.test").unwrap(), "one.test 127.0.0.1 one.test");
    let stream = TcpStream::connect(stage.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    assert_eq!(stage.ask_on("own.test", Piecemeal(stream)).unwrap(), "/fresh");
    // Another name gets the first certificate, as ever.
    assert!(stage.ask("three.test").unwrap_err().to_string().contains("certificate"));
}

/// Half-open clients, and ClientHellos without an end, hold a connection for `timeouts.head` and no longer.
#[test]
fn a_client_hello_that_does_not_come_or_does_not_end_is_closed() {
    let Some(stage) = Stage::with("", "[timeouts]\nhead = \"1s\"\n") else { return };
    let mut begun = TcpStream::connect(stage.address()).unwrap();
    begun.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc").unwrap();
    let mut endless = TcpStream::connect(stage.address()).unwrap();
    let sent = (|| {
        // A handshake message of 65,520 bytes in records of 16,000, one after the other.
        endless.write_all(&[22, 3, 1, 0x3e, 0x80, 1, 0, 0xff, 0xf0])?;
        for _ in 0..40 {
            endless.write_all(&[0; 4_000])?;
            std::thread::sleep(Duration::from_millis(5));
        }
        io::Result::Ok(())
    })();
    // It is closed while it writes, or after that.
    let is_over = |stream: &mut TcpStream| !matches!(stream.read(&mut [0]), Ok(1..));
    assert!(sent.is_err() || is_over(&mut endless));
    assert!(is_over(&mut begun));
    assert_eq!(stage.ask("one.test").unwrap(), "one.test 127.0.0.1 one.test", "others go on");
}

/// Rules see name and port as those of a CONNECT.
#[test]
fn rules_decide_about_names() {
    let rules =
        "[[rule]]\nname = \"no two\"\nwhen = { host = \"two.test\", method = \"CONNECT\" }\ndo = { deny = true }\n";
    let Some(stage) = Stage::with("", rules) else { return };
    assert!(stage.ask("two.test").is_err());
    assert_eq!(stage.ask("one.test").unwrap(), "one.test 127.0.0.1 one.test");
    let explained = |url: &str| stand::ask(stage.server.admin().unwrap(), &format!("/explain?url={url}&method=GET"));
    let passed = explained("https://one.test/");
    assert!(passed.contains(&format!("a tunnel to {}", stage.origins[0])), "{passed}");
    assert!(explained("https://two.test/").contains("no two"));
    let log = stage.log();
    assert!(log.iter().any(|line| line.contains("two.test") && line.contains("rule")), "{log:?}");
}

#[test]
fn an_origin_that_is_this_larder_is_no_loop() {
    let folder = tempfile::tempdir().unwrap();
    let address = free();
    let text = format!(
        "[[listen]]\naddress = \"{address}\"\npass_through = true\n\
         [[site]]\nhosts = [\"*\"]\norigin = \"https://{address}\"\npass_through = true\n"
    );
    let server = stand::server(folder.path(), &text);
    let hello = ClientConnection::new(
        client_config(&Roots::none().into()).unwrap(),
        server_name(&Host::parse("loop.test").unwrap()).unwrap(),
    );
    let mut bytes = Vec::new();
    hello.unwrap().write_tls(&mut bytes).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&bytes).unwrap();
    assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
    stand::wait_for("it is over", || server.shared().connections.count() == 0);
    server.stop();
}

fn troubles(text: &str) -> String {
    Loaded::parse("test", text, &[]).err().map(|report| report.to_string()).unwrap_or_default()
}

#[test]
fn settings_that_need_requests_are_refused_and_a_reload_passes_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\npass_through = true\n";
    let site = "[[site]]\nhosts = [\"a.test\"]\npass_through = true\n";
    for (text, wanted) in [
        (format!("{listen}{site}origin = \"http://10.0.0.1\"\n"), "a host and a port that speak TLS"),
        (format!("{listen}{site}origin = \"https://10.0.0.1/base\"\n"), "a host and a port that speak TLS"),
        (format!("{listen}{site}origin = \"https://10.0.0.1\"\nprefix = \"/a\"\n"), "`prefix` is about requests"),
        (format!("{listen}{site}origin = \"https://10.0.0.1\"\nhttp2 = \"auto\"\n"), "`http2` is about requests"),
        (format!("{site}origin = \"https://10.0.0.1\"\n"), "no listener has `pass_through = true`"),
        (format!("{listen}socks = true\n"), "it has no `socks`"),
        (format!("{listen}{site}origin = \"https://10.0.0.1\"\n"), ""),
    ] {
        let said = troubles(&text);
        assert!(said.contains(wanted) && said.is_empty() == wanted.is_empty(), "{text}\n{said}");
    }
    let origins = [free(), free()];
    let plain = format!("{}[[listen]]\naddress = \"127.0.0.1:0\"\n", base(folder.path()));
    let steered = Steered::start(folder.path(), &plain);
    let passing = format!("{plain}pass_through = true\n{}", sites(&origins));
    let (changed, needs_restart) = steered.reload(&passing).unwrap();
    assert!(needs_restart.is_empty() && changed.iter().any(|name| name == "site"), "{changed:?} {needs_restart:?}");
    steered.server.stop();
}
