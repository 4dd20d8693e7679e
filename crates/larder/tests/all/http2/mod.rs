//! HTTP/2 with clients, frame by frame.

mod bodies;
pub mod browser;
pub mod client;
mod floods;
pub mod messages;
mod origins;
mod programs;
pub mod tunnels;

use crate::seen::stand;
use larder::server::Server;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// The targets below `/whole` whose requests have come to an origin with all of their bodies.
static WHOLE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Whether an origin has had all of a request for this target, which no other test has.
pub fn came_whole(target: &str) -> bool {
    WHOLE.lock().unwrap().iter().any(|whole| whole == target)
}

/// An origin that answers by the first word of the path. Each answer but those with bytes of their own repeats the request.
pub fn serve(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let head = stand::read_head(&mut lines)?;
        let path = head.split(' ').nth(1)?.to_owned();
        let mut words = path.trim_start_matches('/').split(['/', '?']);
        let word = words.next()?;
        if word == "stuck" {
            // Neither the body is read nor an answer sent.
            std::thread::sleep(Duration::from_secs(60));
            return None;
        }
        let body = read_body(&head, &mut lines)?;
        if word == "whole" {
            WHOLE.lock().unwrap().push(path.clone());
        }
        let mut out = stream;
        let echo = format!("{head}{}", String::from_utf8_lossy(&body));
        match word {
            "fresh" => {
                write!(out, "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 5\r\n\r\nbytes").ok()?
            }
            "big" => {
                let bytes: usize = words.next()?.parse().ok()?;
                write!(out, "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: {bytes}\r\n\r\n").ok()?;
                let block = vec![b'b'; 64 * 1024];
                let mut left = bytes;
                while left > 0 {
                    let many = left.min(block.len());
                    out.write_all(&block[..many]).ok()?;
                    left -= many;
                }
            }
            "sum" => {
                let sum = body.iter().fold((0_u64, 0_u64), |(count, sum), byte| {
                    (count + 1, sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
                });
                let text = format!("{} {}", sum.0, sum.1);
                write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()).ok()?;
            }
            "early" => {
                let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n";
                write!(out, "{early}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").ok()?;
            }
            "trailers" => {
                write!(out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n")
                    .ok()?;
                // A body that is whole at once gets a length, and no trailers.
                std::thread::sleep(Duration::from_millis(300));
                write!(out, "0\r\nX-Sum: 7\r\n\r\n").ok()?;
            }
            "slow" => {
                write!(out, "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 4\r\n\r\nsl").ok()?;
                let millis = words.next().and_then(|millis| millis.parse().ok()).unwrap_or(600);
                std::thread::sleep(Duration::from_millis(millis));
                write!(out, "ow").ok()?;
            }
            "elsewhere" => {
                write!(out, "HTTP/1.1 200 OK\r\nAlt-Svc: h3=\":9\"\r\nContent-Length: 2\r\n\r\nok").ok()?;
            }
            "half" => {
                write!(out, "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 4\r\n\r\nha").ok()?;
                // A body that is known to be broken before its head went out would be a page.
                std::thread::sleep(Duration::from_millis(300));
                return None;
            }
            _ => write!(
                out,
                "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: {}\r\n\r\n{}",
                echo.len(),
                if head.starts_with("HEAD") { "" } else { &echo }
            )
            .ok()?,
        }
    }
}

fn read_body(head: &str, lines: &mut impl std::io::BufRead) -> Option<Vec<u8>> {
    let lower = head.to_lowercase();
    let mut body = Vec::new();
    if lower.contains("transfer-encoding: chunked") {
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).ok()?;
            let bytes = u64::from_str_radix(line.trim(), 16).ok()?;
            if bytes == 0 {
                while line != "\r\n" {
                    line.clear();
                    lines.read_line(&mut line).ok()?;
                    body.extend_from_slice(line.trim_end().as_bytes());
                }
                return Some(body);
            }
            lines.take(bytes).read_to_end(&mut body).ok()?;
            lines.read_line(&mut line).ok()?;
        }
    }
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    lines.take(length).read_to_end(&mut body).ok()?;
    (body.len() as u64 == length).then_some(body)
}

/// A server of the site `site.test`, with these settings beside.
pub fn site(folder: &Path, more: &str) -> (Server, SocketAddr) {
    let origin = stand::origin_that(serve);
    let text = format!(
        "{more}\n[log]\nto = \"{}\"\n[[site]]\nhosts = [\"site.test\", \"other.test\"]\norigin = \"http://{origin}\"\n",
        folder.join("access.log").display()
    );
    let server = stand::server(folder, &text);
    let address = server.addresses()[0];
    (server, address)
}

/// The access log, once the server has stopped.
pub fn log(server: Server, folder: &Path) -> String {
    server.stop();
    std::fs::read_to_string(folder.join("access.log")).unwrap()
}
