//! Reading over HTTP, from a command, from the end of a log.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Figures longer than this are something else.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Of a log, this much of its end is read.
const TAIL_BYTES_MAX: u64 = 64 << 20;
const TIMEOUT: Duration = Duration::from_secs(5);

/// The body of an answer. HTTP/1.0 is spoken, so that it is not chunked.
pub(super) fn http(address: SocketAddr, path: &str) -> Result<String, String> {
    let fail = |reason: String| format!("http://{address}{path} cannot be read: {reason}");
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(|error| fail(error.to_string()))?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: */*\r\n\r\n");
    let mut answer = Vec::new();
    stream
        .set_read_timeout(Some(TIMEOUT))
        .and_then(|()| stream.write_all(request.as_bytes()))
        .and_then(|()| stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer))
        .map_err(|error| fail(error.to_string()))?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| fail("the answer is not HTTP".to_owned()))?;
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        status => Err(fail(format!("status {}", status.unwrap_or("?")))),
    }
}

/// The output of a command.
pub(super) fn command(words: &[&str]) -> Result<String, String> {
    let [program, arguments @ ..] = words else { return Err("no command".to_owned()) };
    let fail = |reason: String| format!("{:?} failed: {reason}", words.join(" "));
    let said = Command::new(program).args(arguments).stdin(Stdio::null()).output().map_err(|e| fail(e.to_string()))?;
    match said.status.success() {
        true => Ok(String::from_utf8_lossy(&said.stdout).into_owned()),
        false => Err(fail(String::from_utf8_lossy(&said.stderr).trim().to_owned())),
    }
}

/// The end of a file, from the beginning of a line.
pub(super) fn tail(path: &Path) -> Result<String, String> {
    let fail = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    let mut file = File::open(path).map_err(fail)?;
    let length = file.metadata().map_err(fail)?.len();
    let from = length.saturating_sub(TAIL_BYTES_MAX);
    file.seek(SeekFrom::Start(from)).map_err(fail)?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes).map_err(fail)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(if from == 0 { text } else { text.split_once('\n').map_or(String::new(), |(_, rest)| rest.to_owned()) })
}
