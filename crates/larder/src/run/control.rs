//! The control socket: the messages between a run and the server, and the run's side of them.
//!
//! The server listens on `larder.sock` in its store folder and speaks HTTP/1.1 there: `POST /runs` (`/runs/offline` for a run that
//! does not use the network) opens an intercepting listener and answers 201 with [`RunStarted`], `DELETE /runs/ID` closes it and answers 200 with [`RunStats`].
//! `POST /runs/mirror` and `/runs/mirror/offline` open one that is a mirror and intercepts nothing.

pub use crate::record::{LaterRequest, Network, RunExchange, RunHost, RunMiss, RunStats, Way};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the server may take for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A reload waits so long for applications to be imported, and then says that they are being imported still.
pub const RELOAD_WAIT: Duration = Duration::from_secs(60);

/// How long a client waits for the answer to a reload: longer than the server takes for it on a busy machine.
const RELOAD_WITHIN: Duration = Duration::from_secs(RELOAD_WAIT.as_secs() + 30);

/// The longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// The socket's place in a store folder.
pub fn socket(store: &Path) -> PathBuf {
    store.join("larder.sock")
}

/// A run has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStarted {
    /// Names the run; letters, digits and hyphens.
    pub id: String,
    /// The listener that is for this run alone.
    pub proxy: SocketAddr,
    /// A PEM file with the roots of the system and the local CA's certificate, where TLS is opened.
    pub ca_bundle: Option<PathBuf>,
}

/// The settings that a reload changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Settings that have another value now; `listen` and `site` as wholes.
    pub changed: Vec<String>,
    /// Settings whose new value waits for a restart.
    pub needs_restart: Vec<String>,
    /// Files that were read again, by what they are for.
    #[serde(default)]
    pub read_again: Vec<String>,
    /// The outcome for each application and each list of hooks.
    #[serde(default)]
    pub scripts: Vec<ReloadedScript>,
}

/// The outcome of a reload for an application or a list of hooks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadedScript {
    /// Its name.
    pub name: String,
    /// The outcome.
    pub outcome: LoadOutcome,
    /// Why it can't be loaded, in a line.
    pub trouble: Option<String>,
    /// While it is being loaded still: the fate of requests, in words.
    #[serde(default)]
    pub meanwhile: Option<String>,
}

/// The outcome of a reload for one application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadOutcome {
    /// None of its files has changed.
    Unchanged,
    /// Its newest version serves.
    Loaded,
    /// Its newest version can't be loaded, and the one before goes on.
    OldGoesOn,
    /// It can't be loaded, and requests fail.
    Failed,
    /// It is being loaded still.
    Loading,
}

impl LoadOutcome {
    /// Whether the files as they are do not serve.
    pub fn is_trouble(self) -> bool {
        matches!(self, LoadOutcome::OldGoesOn | LoadOutcome::Failed | LoadOutcome::Loading)
    }
}

/// Talks to the server behind a socket, one connection a request.
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// Nothing is connected yet.
    pub fn new(socket: PathBuf) -> Client {
        Client { socket }
    }

    /// Begins a run.
    pub fn start(&self) -> io::Result<RunStarted> {
        self.start_with(Network::Used, Way::Proxy)
    }

    /// Begins a run that uses the network, or does not.
    pub fn start_with(&self, network: Network, way: Way) -> io::Result<RunStarted> {
        let path = match (way, network) {
            (Way::Proxy, Network::Used) => "/runs",
            (Way::Proxy, Network::Untouched) => "/runs/offline",
            (Way::Mirror, Network::Used) => "/runs/mirror",
            (Way::Mirror, Network::Untouched) => "/runs/mirror/offline",
        };
        self.call("POST", path)
    }

    /// Ends a run.
    pub fn finish(&self, id: &str) -> io::Result<RunStats> {
        self.call("DELETE", &format!("/runs/{id}"))
    }

    /// The server's answer at a path, as a value.
    pub fn read<A: DeserializeOwned>(&self, path: &str) -> io::Result<A> {
        self.call("GET", path)
    }

    /// The server's answer at a path, as text.
    pub fn text(&self, path: &str) -> io::Result<String> {
        let answer = self.ask("GET", path)?;
        Ok(String::from_utf8_lossy(body(&answer)?).into_owned())
    }

    /// The lines of a stream of events, from behind its head on. A stream without an event for ten seconds is broken.
    pub fn events(&self, path: &str) -> io::Result<impl BufRead> {
        let mut lines = BufReader::new(self.send("GET", path)?);
        let mut line = String::new();
        lines.read_line(&mut line)?;
        if !line.starts_with("HTTP/1.1 200") {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the control socket answered {}", line.trim()),
            ));
        }
        while line.trim_end() != "" {
            line.clear();
            if lines.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(lines)
    }

    /// The server's answer to a question. The inner `Err` is its reason for giving none.
    pub fn ask_for<A: DeserializeOwned>(&self, path: &str) -> io::Result<Result<A, String>> {
        let answer = self.ask("GET", path)?;
        if let Some(trouble) = refused(&answer)? {
            return Ok(Err(trouble));
        }
        serde_json::from_slice(body(&answer)?).map(Ok).map_err(io::Error::from)
    }

    fn call<A: DeserializeOwned>(&self, method: &str, path: &str) -> io::Result<A> {
        serde_json::from_slice(body(&self.ask(method, path)?)?).map_err(io::Error::from)
    }

    /// Has the server read its configuration again. The inner `Err` is the server's reason for refusing.
    pub fn reload(&self) -> io::Result<Result<Reloaded, String>> {
        changed(&self.ask_within(RELOAD_WITHIN, "POST", "/reload")?)
    }

    /// Whether the server serves requests (`/readyz`). The inner `Err` is its reason for not doing so.
    pub fn readiness(&self) -> io::Result<Result<(), String>> {
        let answer = self.ask("GET", "/readyz")?;
        if answer.starts_with(b"HTTP/1.1 503") {
            let text = String::from_utf8_lossy(&answer);
            return Ok(Err(text.split_once("\r\n\r\n").unwrap_or_default().1.trim().to_owned()));
        }
        body(&answer).map(|_| Ok(()))
    }

    /// Has the server change something. The inner `Err` is the server's reason for refusing.
    pub fn change<A: DeserializeOwned>(&self, path: &str) -> io::Result<Result<A, String>> {
        changed(&self.ask("POST", path)?)
    }

    fn ask(&self, method: &str, path: &str) -> io::Result<Vec<u8>> {
        self.ask_within(ANSWER_WITHIN, method, path)
    }

    fn ask_within(&self, within: Duration, method: &str, path: &str) -> io::Result<Vec<u8>> {
        let stream = self.send(method, path)?;
        stream.set_read_timeout(Some(within))?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        Ok(answer)
    }

    fn send(&self, method: &str, path: &str) -> io::Result<UnixStream> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: larder\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        Ok(stream)
    }
}

/// The answer to a change, or the reason for refusing it.
fn changed<A: DeserializeOwned>(answer: &[u8]) -> io::Result<Result<A, String>> {
    if let Some(trouble) = refused(answer)? {
        return Ok(Err(trouble));
    }
    serde_json::from_slice(body(answer)?).map(Ok).map_err(io::Error::from)
}

/// The reason of a refusal in an answer, if it is one.
fn refused(answer: &[u8]) -> io::Result<Option<String>> {
    if !answer.starts_with(b"HTTP/1.1 422") && !answer.starts_with(b"HTTP/1.1 404") {
        return Ok(None);
    }
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").map_or(answer.len(), |end| end + 4);
    let refused: serde_json::Value = serde_json::from_slice(&answer[end..])?;
    Ok(Some(refused["error"].as_str().unwrap_or_default().to_owned()))
}

/// The body of a whole answer, which ends with its connection.
fn body(answer: &[u8]) -> io::Result<&[u8]> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("the control socket answered {what}"));
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(|| wrong("half a head"))?;
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| wrong("a head that is no text"))?;
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 2") {
        return Err(wrong(status));
    }
    let body = &answer[end + 4..];
    let mut fields = lines.filter_map(|line| line.split_once(':'));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length")).map(|(_, value)| value.trim());
    match length.and_then(|length| length.parse::<usize>().ok()) {
        Some(length) if body.len() == length => Ok(body),
        Some(_) => Err(wrong("half a body")),
        None => Err(wrong("without a length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whole_or_not_at_all() {
        assert_eq!(body(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap(), b"{}");
        for (answer, trouble) in [
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}"[..], "half a body"),
            (b"HTTP/1.1 200 OK\r\nContent-Le", "half a head"),
            (b"HTTP/1.1 200 OK\r\n\r\n{}", "without a length"),
            (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "503 Busy"),
            (b"", "half a head"),
        ] {
            let error = body(answer).unwrap_err().to_string();
            assert!(error.contains(trouble), "{error}");
        }
    }
}
