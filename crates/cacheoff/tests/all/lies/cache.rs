//! A small cache that lies on purpose: a forward proxy with a thread per connection, correct but for its one lie.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the cache does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Nothing.
    None,
    /// Whatever it has stored stays good for ever.
    Stale,
    /// Promises the whole body and sends half of it.
    Truncates,
    /// Gives hits the body of another object, under the right head.
    MixesBodies,
    /// Gives hits the answer of another object, head and all.
    MixesAnswers,
    /// One bit of each hit is wrong.
    FlipsABit,
    /// The body is right but for its last byte, and so is the length that it declares.
    Shortens,
    /// Stores what must not be stored.
    KeepsUncachable,
    /// Reloads are answered from the store.
    IgnoresReload,
    /// One variant for all.
    IgnoresVary,
    /// Ranges come from elsewhere in the object.
    ShiftsRanges,
    /// Hits say that they are as old as the hills.
    InventsAge,
    /// Misses carry the name of an old transaction, as if they were hits.
    InventsHits,
    /// Answers carry the name of another run's transaction.
    OtherRun,
    /// A page of its own with status 200.
    OwnPage,
    /// A page of its own with status 502.
    Refuses,
    /// Not HTTP.
    Babbles,
    /// Acknowledges purges and keeps what was purged.
    KeepsPurged,
    /// Takes PURGE for a method of the origin.
    PassesPurges,
    /// Answers purges with 405.
    RefusesPurges,
    /// Closes without an answer.
    HangsUp,
}

/// The cache at work; it ends with this value.
pub struct Cache {
    /// Where it listens.
    pub address: SocketAddr,
    /// Requests that it read.
    pub asked: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

#[derive(Default)]
struct Store {
    answers: HashMap<String, Answer>,
    first_echo: Option<String>,
}

#[derive(Clone)]
struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Cache {
    /// Listens on a port of the system's choice.
    pub fn start(lie: Lie) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, store) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Store::default())));
        let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (ended, count) = (stop.clone(), asked.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if ended.load(Relaxed) {
                    return;
                }
                let (store, count) = (store.clone(), count.clone());
                // A robot that went away is no trouble of the cache's.
                std::thread::spawn(move || client.and_then(|client| serve(client, lie, &store, &count)));
            }
        });
        Self { address, asked, stop }
    }

    /// Listens no more.
    pub fn die(&self) {
        self.stop.store(true, Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.die();
    }
}

fn serve(mut client: TcpStream, lie: Lie, store: &Mutex<Store>, asked: &AtomicUsize) -> io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(10)))?;
    let request = read_head(&mut client)?;
    asked.fetch_add(1, Relaxed);
    match lie {
        Lie::OwnPage => {
            return client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
        }
        Lie::Refuses => return client.write_all(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
        Lie::Babbles => return client.write_all(b"220 smtp.example.org is ready\r\n\r\n"),
        Lie::HangsUp => return Ok(()),
        _ => {}
    }
    if let Some(rest) = request.strip_prefix("PURGE ").filter(|_| lie != Lie::PassesPurges) {
        return client.write_all(purge(rest, lie, &mut store.lock().unwrap()));
    }
    let answer = answer(&request, lie, store)?;
    let cut = if lie == Lie::Truncates { answer.body.len() / 2 } else { answer.body.len() };
    client.write_all(answer.head.as_bytes())?;
    client.write_all(&answer.body[..cut])
}

/// Forgets a URL, or only says so.
fn purge(rest: &str, lie: Lie, store: &mut Store) -> &'static [u8] {
    let url = rest.split(' ').next().unwrap_or_default();
    if lie == Lie::RefusesPurges {
        return b"HTTP/1.1 405 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    }
    if lie != Lie::KeepsPurged {
        store.answers.retain(|key, _| !key.starts_with(&format!("{url} ")));
    }
    b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone"
}

fn answer(request: &str, lie: Lie, store: &Mutex<Store>) -> io::Result<Answer> {
    let url = request.split(' ').nth(1).unwrap_or_default();
    let variant = field(request, "Accept-Encoding").filter(|_| lie != Lie::IgnoresVary).unwrap_or_default();
    let key = format!("{url} {variant}");
    let reload = field(request, "Cache-Control").is_some() && lie != Lie::IgnoresReload;
    let part = field(request, "Range").is_some();
    if !reload && !part {
        let store = store.lock().unwrap();
        if let Some(found) = store.answers.get(&key) {
            return Ok(spoil_hit(found.clone(), &key, lie, &store));
        }
    }
    let mut fresh = fetch(request, url, lie)?;
    let public = field(&fresh.head, "Cache-Control").is_some_and(|value| value.starts_with("public"));
    let mut store = store.lock().unwrap();
    let old = store.first_echo.get_or_insert_with(|| field(&fresh.head, "X-Xact").unwrap_or_default()).clone();
    match lie {
        Lie::InventsHits => fresh.head = with(&fresh.head, "X-Xact", &old),
        Lie::OtherRun => fresh.head = with(&fresh.head, "X-Xact", "0-1"),
        _ => {}
    }
    if !part && (public || lie == Lie::KeepsUncachable) && (!expires_soon(&fresh.head) || lie == Lie::Stale) {
        store.answers.insert(key, fresh.clone());
    }
    Ok(fresh)
}

fn spoil_hit(mut found: Answer, key: &str, lie: Lie, store: &Store) -> Answer {
    // An object without another beside it has nothing to be mixed with.
    let other = store.answers.iter().find(|(other, _)| *other != key).map(|(_, answer)| answer);
    match (lie, other) {
        (Lie::MixesAnswers, Some(other)) => return other.clone(),
        (Lie::MixesBodies, Some(other)) => {
            let len = found.body.len();
            found.body = other.body.iter().copied().cycle().take(len).collect();
        }
        (Lie::FlipsABit, _) => {
            let middle = found.body.len() / 2;
            found.body[middle] ^= 16;
        }
        (Lie::Shortens, _) => {
            found.body.pop();
            found.head = with(&found.head, "Content-Length", &found.body.len().to_string());
        }
        (Lie::InventsAge, _) => found.head = with(&found.head, "Age", "86400"),
        _ => {}
    }
    found
}

/// What lives for less than a day is not worth a place in this store.
fn expires_soon(head: &str) -> bool {
    let seconds = |name: &str| larder_wire::date::parse_date(field(head, name)?.as_bytes()).map(|date| date.0);
    seconds("Expires").zip(seconds("Date")).is_some_and(|(expires, date)| expires < date + 86_400)
}

fn fetch(request: &str, url: &str, lie: Lie) -> io::Result<Answer> {
    let (host, path) = url.trim_start_matches("http://").split_once('/').ok_or(io::ErrorKind::InvalidInput)?;
    let mut origin = TcpStream::connect(host)?;
    origin.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut asked = format!("GET /{path} HTTP/1.1\r\nConnection: close\r\n");
    for line in request.lines().skip(1).take_while(|line| !line.is_empty()) {
        let line = match line.strip_prefix("Range: bytes=").and_then(|range| range.split_once('-')) {
            Some((first, last)) if lie == Lie::ShiftsRanges => {
                format!("Range: bytes={}-{}", plus_one(first), plus_one(last))
            }
            _ => line.to_owned(),
        };
        if !line.starts_with("Connection:") {
            asked.push_str(&line);
            asked.push_str("\r\n");
        }
    }
    asked.push_str("\r\n");
    origin.write_all(asked.as_bytes())?;
    let head = read_head(&mut origin)?;
    let mut body = Vec::new();
    origin.read_to_end(&mut body)?;
    Ok(Answer { head, body })
}

fn plus_one(number: &str) -> u64 {
    number.trim().parse::<u64>().unwrap_or(0) + 1
}

/// Byte by byte: slow, and nothing of the body is read too early.
fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    String::from_utf8(head).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn field(head: &str, name: &str) -> Option<String> {
    let of_name = head.lines().filter_map(|line| line.split_once(": ")).find(|(found, _)| *found == name);
    of_name.map(|(_, value)| value.to_owned())
}

/// The head with this field set.
fn with(head: &str, name: &str, value: &str) -> String {
    let line = format!("{name}: ");
    let others = head.lines().filter(|each| !each.is_empty() && !each.starts_with(&line));
    others.map(|each| format!("{each}\r\n")).collect::<String>() + &format!("{name}: {value}\r\n\r\n")
}
