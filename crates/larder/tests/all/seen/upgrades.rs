//! Connections to origins that left HTTP.

use super::reload::base;
use super::stand;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// An origin's part: it switches to what is offered and echoes, or answers.
fn echoes(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let (mut line, mut upgrades) = (String::new(), false);
        while line != "\r\n" {
            line.clear();
            lines.read_line(&mut line).ok().filter(|&read| read > 0)?;
            upgrades |= line.starts_with("Upgrade:");
        }
        if !upgrades {
            (&*stream).write_all(b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 2\r\n\r\nok").ok()?;
            continue;
        }
        (&*stream).write_all(b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n").ok()?;
        let mut bytes = [0; 64];
        loop {
            let read = lines.read(&mut bytes).ok().filter(|&read| read > 0)?;
            (&*stream).write_all(&bytes[..read]).ok()?;
        }
    }
}

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: s.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";

fn switched(to: std::net::SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(stand::WITHIN)).unwrap();
    stream.write_all(UPGRADE.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream
}

#[test]
fn what_left_http_is_one_of_the_origins_connections_until_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let origin = stand::origin_that(echoes);
    let text = format!(
        "{}[limits]\nwaiting_per_origin_max = 0\norigin_share_percent = 100\n[upstream]\nconnections_per_origin_max = 2\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\n[[site]]\nhosts = [\"s.example\"]\norigin = \"http://{origin}\"\n",
        base(folder.path())
    );
    let config = larder::config::Config { workers: 1, ..stand::config(folder.path(), &text) };
    let server = larder::server::Server::start(config).unwrap();
    let here = server.addresses()[0];
    let plain = || {
        stand::exchange(here, "GET /a HTTP/1.1\r\nHost: s.example\r\nConnection: close\r\n\r\n")["HTTP/1.1 ".len()..]
            [..3]
            .to_owned()
    };
    let (mut first, second) = (switched(here), switched(here));
    assert_eq!(plain(), "503", "both connections are taken");
    let third = stand::exchange(here, UPGRADE);
    assert!(third.starts_with("HTTP/1.1 503"), "{third}");
    first.write_all(b"hello").unwrap();
    let mut said = [0; 5];
    first.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"hello");
    drop(second);
    stand::wait_for("a tunnel that ended makes room", || plain() == "200");
}
