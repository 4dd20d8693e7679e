//! Downloads through the proxy of the environment, for machines without curl: URLs into files, redirections followed.

use larder_wire::parse::{self, HeadLimits, Parsed};
use larder_wire::target::resolve;
use larder_wire::{ResponseHead, Url};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

const REDIRECTIONS_MAX: usize = 8;
const SILENCE_MAX: Duration = Duration::from_secs(20);
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Downloads pairs of a URL and a file.
pub fn download(pairs: &[String]) -> Result<(), super::AnyError> {
    let proxy = std::env::var("http_proxy").map_err(|_| "http_proxy is not set: `larder run` sets it")?;
    let proxy: SocketAddr = proxy.trim_start_matches("http://").trim_end_matches('/').parse()?;
    for pair in pairs.chunks(2) {
        let [url, file] = pair else { return Err("each URL needs a file".into()) };
        let body = fetch(proxy, url).map_err(|error| format!("{url}: {error}"))?;
        if let Some(folder) = Path::new(file).parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(file, body)?;
    }
    Ok(())
}

fn fetch(proxy: SocketAddr, url: &str) -> io::Result<Vec<u8>> {
    let mut url = Url::parse(url).ok_or_else(|| io::Error::other("it is no URL"))?;
    for _ in 0..REDIRECTIONS_MAX {
        let (head, body) = fetch_one(proxy, &url)?;
        let target = head.fields.text("Location").filter(|_| matches!(head.status, 301 | 302 | 303 | 307 | 308));
        match target.and_then(|target| resolve(&url, target)) {
            Some(next) => url = next,
            None if head.status == 200 => return Ok(body),
            None => return Err(io::Error::other(format!("status {}", head.status))),
        }
    }
    Err(io::Error::other("it is redirected too often"))
}

/// With HTTP/1.0, an answer ends with its connection and has no chunks.
fn fetch_one(proxy: SocketAddr, url: &Url) -> io::Result<(ResponseHead, Vec<u8>)> {
    let mut stream = TcpStream::connect(proxy)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    write!(stream, "GET {url} HTTP/1.0\r\nHost: {}\r\n\r\n", url.authority())?;
    let mut bytes = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes)?;
    match parse::response(&bytes, &HeadLimits::default()) {
        Ok(Parsed::Complete { head, len }) => {
            let body = bytes.split_off(len);
            let declared = head.fields.text("Content-Length").and_then(|length| length.parse().ok());
            match declared.is_none_or(|length: usize| length == body.len()) {
                true => Ok((head, body)),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        Ok(Parsed::Partial) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(fault) => Err(io::Error::other(fault.detail)),
    }
}
