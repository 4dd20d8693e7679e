//! A small cache to be judged: a forward proxy with a thread per connection, honest but for its one lie, and ordinary but
//! for its one habit.

use super::http::{Heads, Message, compressed, field_seconds, read_message};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A thing that the cache does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Nothing.
    None,
    /// Every stored answer stays good for ever.
    Stale,
    /// Promises the whole body and sends half of it.
    Truncates,
    /// Does so under a mark that says the origin did it.
    BlamesTheOrigin,
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
    /// Stores what is for one client alone, and gives it to that client again.
    KeepsPrivate,
    /// Gives every client the first Set-Cookie that came.
    ReplaysCookies,
    /// Reloads are answered from the store.
    IgnoresReload,
    /// One variant for all.
    IgnoresVary,
    /// Ranges come from elsewhere in the object.
    ShiftsRanges,
    /// Of several parts that are asked for, others come.
    MovesParts,
    /// Parts are said to be of a longer object.
    InventsTotals,
    /// Hits say that they are as old as the hills.
    InventsAge,
    /// Hits say that they are new.
    DeniesAge,
    /// Hits say no Age.
    DropsAge,
    /// Hits bear the Date of now, and no Age.
    HidesAge,
    /// Hits bear a Date between that of the origin and that of now, and no Age.
    InventsDate,
    /// Hits lack a field.
    Drops(&'static str),
    /// Hits have another value of a field.
    Sets(&'static str, &'static str),
    /// Replies have this line besides.
    Adds(&'static str, &'static str),
    /// Misses carry the echo of an old transaction, as if they were hits.
    InventsHits,
    /// Hits carry an echo that the cache made up.
    ForgesEchoes,
    /// Answers carry the name of another run's transaction.
    OtherRun,
    /// Replies to HEAD have a body.
    BodiesForHead,
    /// Bytes follow each reply.
    Surplus,
    /// A second reply follows each reply.
    SecondReply,
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
    /// Requests go on without a field.
    Strips(&'static str),
    /// Requests go on with the first value of a field that any of them had.
    Mixes(&'static str),
    /// A byte of each POST is changed.
    AltersPosts,
    /// The last byte of each POST is left out.
    ShortensPosts,
    /// Each POST is sent twice.
    RepeatsPosts,
    /// Each object is fetched twice.
    FetchesTwice,
    /// Each hit is validated first.
    ValidatesAlways,
    /// Of several requests on a connection, the second is answered first.
    ReordersReplies,
}

/// A thing that it does, that others do not, and that it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// Nothing.
    None,
    /// Compresses for clients that accept it.
    Compresses,
    /// Dates what it sends, and says how old it is.
    RewritesDate,
    /// Sends the fields in another order.
    ReversesFields,
    /// Sends names of fields in lower case.
    LowerCase,
    /// Speaks HTTP/1.0 to origins.
    OldOrigin,
    /// One fetch for all who ask at the same time.
    Collapses,
    /// Sends bodies in chunks.
    Chunks,
    /// Says much of itself.
    AddsFields,
    /// Stores nothing.
    StoresNothing,
    /// Writes directives and dates in its own words.
    Rephrases,
    /// Fetches the whole where a part is asked for, and cuts the part out of it.
    FetchesWhole,
    /// Answers with the whole where a part is asked for.
    IgnoresRange,
    /// Of several parts that are asked for, gives the first one alone.
    GivesOnePart,
    /// Says that answers are a second older than they are.
    RoundsAgeUp,
    /// Sends an interim answer first.
    SaysContinue,
    /// Answers from the store what it may, and asks the origin at the same time.
    RefreshesBehind,
    /// Keeps connections, and answers all requests that have come on one with one write.
    KeepsConnections,
    /// Keeps connections for two requests, whatever comes behind them.
    ClosesEarly,
}

/// A lie and a habit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// The lie.
    pub lie: Lie,
    /// The habit.
    pub habit: Habit,
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
    answers: HashMap<String, Stored>,
    first_echo: Option<String>,
    /// First values of request fields.
    first: HashMap<&'static str, String>,
    /// URLs whose answers vary by Cookie.
    by_cookie: HashSet<String>,
    /// Fetches under way.
    locks: HashMap<String, Arc<Mutex<()>>>,
}

#[derive(Clone)]
struct Stored {
    message: Message,
    /// When it was stored, in seconds since 1970.
    at: u64,
}

impl Cache {
    /// Listens on a port of the system's choice.
    pub fn start(lie: Lie) -> Self {
        Self::with(Manner { lie, habit: Habit::None })
    }

    /// The same with a habit.
    pub fn with(manner: Manner) -> Self {
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
                std::thread::spawn(move || client.and_then(|client| serve(client, manner, &store, &count)));
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

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn serve(mut client: TcpStream, manner: Manner, store: &Mutex<Store>, asked: &AtomicUsize) -> io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(10)))?;
    client.set_nodelay(true)?;
    if matches!(manner.habit, Habit::KeepsConnections | Habit::ClosesEarly) {
        return serve_kept(client, manner, store, asked);
    }
    let request = read_message(&mut client, false)?;
    asked.fetch_add(1, Relaxed);
    match manner.lie {
        Lie::OwnPage => {
            return client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
        }
        Lie::Refuses => return client.write_all(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
        Lie::Babbles => return client.write_all(b"220 smtp.example.org is ready\r\n\r\n"),
        Lie::HangsUp => return Ok(()),
        _ => {}
    }
    if request.method() == "PURGE" && manner.lie != Lie::PassesPurges {
        return client.write_all(purge(request.url(), manner.lie, &mut store.lock().unwrap()));
    }
    let mut reply = spoil_reply(answer(&request, manner, store)?, manner.lie);
    reply.set("Connection", "close");
    client.write_all(&written(&request, reply, manner))
}

/// Answers requests in a row; those that came together, together.
fn serve_kept(client: TcpStream, manner: Manner, store: &Mutex<Store>, asked: &AtomicUsize) -> io::Result<()> {
    let mut heads = Heads::of(client);
    loop {
        let mut requests = heads.wait()?;
        if requests.is_empty() {
            return Ok(());
        }
        let closes = manner.habit == Habit::ClosesEarly;
        requests.truncate(if closes { 2 } else { requests.len() });
        asked.fetch_add(requests.len(), Relaxed);
        let last = requests.len() - 1;
        let replies = requests.iter().enumerate().map(|(number, request)| {
            let mut reply = spoil_reply(answer(request, manner, store)?, manner.lie);
            reply.set("Connection", if closes && number == last { "close" } else { "keep-alive" });
            Ok(written(request, reply, manner))
        });
        let mut replies = replies.collect::<io::Result<Vec<_>>>()?;
        if manner.lie == Lie::ReordersReplies {
            replies.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
        }
        heads.client.write_all(&replies.concat())?;
        if closes {
            return Ok(());
        }
    }
}

/// Makes every reply wrong, if the lie does.
fn spoil_reply(mut reply: Message, lie: Lie) -> Message {
    match lie {
        Lie::InventsTotals if reply.get("Content-Range").is_some() => {
            let range = reply.get("Content-Range").unwrap_or_default();
            let (part, total) = range.split_once('/').unwrap_or_default();
            let total = total.parse::<u64>().unwrap_or(0) + 1;
            reply.set("Content-Range", &format!("{part}/{total}"));
        }
        Lie::Adds(name, value) => reply.fields.push((name.to_owned(), value.to_owned())),
        Lie::BlamesTheOrigin => reply.set("X-Fault", "truncate"),
        _ => {}
    }
    reply
}

/// The reply as bytes, all of them in one piece.
fn written(request: &Message, mut reply: Message, manner: Manner) -> Vec<u8> {
    let is_head = request.method() == "HEAD";
    let bodiless = is_head || reply.status() == 304;
    let mut body = if bodiless { Vec::new() } else { std::mem::take(&mut reply.body) };
    match manner.habit {
        Habit::ReversesFields => reply.fields.reverse(),
        Habit::LowerCase => reply.fields.iter_mut().for_each(|(name, _)| name.make_ascii_lowercase()),
        Habit::AddsFields => {
            for (name, value) in [("Via", "1.1 odd"), ("X-Cache", "HIT from odd"), ("Cache-Status", "odd; hit")] {
                reply.fields.push((name.to_owned(), value.to_owned()));
            }
        }
        Habit::Chunks if !bodiless => {
            reply.remove("Content-Length");
            reply.set("Transfer-Encoding", "chunked");
            let chunks: Vec<Vec<u8>> = body
                .chunks(777)
                .map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat())
                .collect();
            body = [chunks.concat(), b"0\r\n\r\n".to_vec()].concat();
        }
        _ => {}
    }
    let mut out = Vec::new();
    if manner.habit == Habit::SaysContinue {
        out.extend(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n");
    }
    out.extend(reply.head());
    let cut = matches!(manner.lie, Lie::Truncates | Lie::BlamesTheOrigin);
    out.extend(&body[..if cut { body.len() / 2 } else { body.len() }]);
    match manner.lie {
        Lie::BodiesForHead if is_head => out.extend(b"a body that HEAD does not have"),
        Lie::Surplus => out.extend(b"more"),
        Lie::SecondReply => out.extend(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        _ => {}
    }
    out
}

/// Forgets a URL, or only says so.
fn purge(url: &str, lie: Lie, store: &mut Store) -> &'static [u8] {
    if lie == Lie::RefusesPurges {
        return b"HTTP/1.1 405 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    }
    if lie != Lie::KeepsPurged {
        store.answers.retain(|key, _| !key.starts_with(&format!("{url} ")));
    }
    b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone"
}

fn answer(request: &Message, manner: Manner, store: &Mutex<Store>) -> io::Result<Message> {
    let Manner { lie, habit } = manner;
    let safe = matches!(request.method(), "GET" | "HEAD");
    let conditional = request.get("If-None-Match").is_some() || request.get("If-Modified-Since").is_some();
    if !safe || conditional {
        let reply = fetch(request, manner, store)?;
        return if lie == Lie::RepeatsPosts && !safe { fetch(request, manner, store) } else { Ok(reply) };
    }
    let key = key_of(request, lie, &store.lock().unwrap());
    let lock = store.lock().unwrap().locks.entry(key.clone()).or_default().clone();
    let _alone = (habit == Habit::Collapses).then(|| lock.lock().unwrap());
    let reload = request.get("Cache-Control").is_some() && lie != Lie::IgnoresReload;
    let part = request.get("Range").filter(|_| !matches!(habit, Habit::FetchesWhole | Habit::IgnoresRange));
    if !reload && part.is_none() {
        let store_now = store.lock().unwrap();
        if let Some(found) = store_now.answers.get(&key) {
            let hit = spoil_hit(found.clone(), &key, manner, &store_now);
            drop(store_now);
            if lie == Lie::ValidatesAlways {
                let tag = hit.get("ETag").unwrap_or_default();
                let mut question = request.clone();
                question.fields.push(("If-None-Match".to_owned(), tag));
                let _ = fetch(&question, manner, store)?;
            }
            if habit == Habit::RefreshesBehind {
                let _ = fetch(request, manner, store)?;
            }
            return Ok(cut_part(request, compress(request, hit, habit), habit));
        }
    }
    let mut whole = request.clone();
    if let (Habit::GivesOnePart, Some((first, _))) = (habit, part.as_deref().and_then(|range| range.split_once(','))) {
        whole.set("Range", first);
    }
    if matches!(habit, Habit::FetchesWhole | Habit::IgnoresRange) {
        whole.remove("Range");
    }
    let mut fresh = fetch(&whole, manner, store)?;
    if lie == Lie::FetchesTwice {
        fresh = fetch(&whole, manner, store)?;
    }
    let mut store = store.lock().unwrap();
    if fresh.get("Vary").is_some_and(|vary| vary.contains("Cookie")) {
        store.by_cookie.insert(request.url().to_owned());
    }
    let key = key_of(request, lie, &store);
    if let (Lie::ReplaysCookies, Some(cookie)) = (lie, fresh.get("Set-Cookie")) {
        let first = store.first.entry("Set-Cookie").or_insert(cookie).clone();
        fresh.set("Set-Cookie", &first);
    }
    let old = store.first_echo.get_or_insert_with(|| fresh.get("X-Xact").unwrap_or_default()).clone();
    let public = fresh.get("Cache-Control").is_some_and(|value| value.starts_with("public"));
    match lie {
        Lie::InventsHits => fresh.set("X-Xact", &old),
        Lie::OtherRun => fresh.set("X-Xact", "0-1"),
        _ => {}
    }
    let keeps = (public || matches!(lie, Lie::KeepsUncachable | Lie::KeepsPrivate))
        && habit != Habit::StoresNothing
        && fresh.status() == 200;
    let is_whole = part.is_none() && request.method() == "GET";
    if keeps && is_whole && (!expires_soon(&fresh) || lie == Lie::Stale) {
        store.answers.insert(key, Stored { message: fresh.clone(), at: now() });
    }
    drop(store);
    Ok(cut_part(request, compress(request, fresh, habit), habit))
}

/// The key that a stored answer is found by: the URL and the fields that it varies by.
fn key_of(request: &Message, lie: Lie, store: &Store) -> String {
    let by_cookie = store.by_cookie.contains(request.url()) || lie == Lie::KeepsPrivate;
    let field = |name: &str, counts: bool| request.get(name).filter(|_| counts).unwrap_or_default();
    let varies = lie != Lie::IgnoresVary;
    format!("{} {} {}", request.url(), field("Accept-Encoding", varies), field("Cookie", by_cookie && varies))
}

/// A stored answer as it is given out.
fn spoil_hit(found: Stored, key: &str, manner: Manner, store: &Store) -> Message {
    // An object without another beside it has nothing to be mixed with.
    let other = store.answers.iter().find(|(other, _)| *other != key).map(|(_, answer)| answer.message.clone());
    let (mut hit, age) = (found.message, now() - found.at);
    hit.set("Age", &age.to_string());
    match (manner.lie, other) {
        (Lie::MixesAnswers, Some(other)) => return other,
        (Lie::MixesBodies, Some(other)) => {
            let len = hit.body.len();
            hit.body = other.body.iter().copied().cycle().take(len).collect();
        }
        (Lie::FlipsABit, _) => {
            let middle = hit.body.len() / 2;
            hit.body[middle] ^= 16;
        }
        (Lie::Shortens, _) => {
            hit.body.pop();
            hit.set("Content-Length", &hit.body.len().to_string());
        }
        (Lie::InventsAge, _) => hit.set("Age", "86400"),
        (Lie::DeniesAge, _) => hit.set("Age", "0"),
        (Lie::DropsAge, _) => hit.remove("Age"),
        (Lie::HidesAge, _) => {
            hit.set_date("Date", now());
            hit.remove("Age");
        }
        (Lie::InventsDate, _) => {
            hit.set_date("Date", found.at + age / 2);
            hit.remove("Age");
        }
        (Lie::Drops(name), _) => hit.remove(name),
        (Lie::Sets(name, value), _) => hit.set(name, value),
        (Lie::ForgesEchoes, _) => {
            let echo = hit.get("X-Xact").unwrap_or_default();
            let digit = if echo.ends_with('0') { "1" } else { "0" };
            hit.set("X-Xact", &(echo[..echo.len() - 1].to_owned() + digit));
        }
        _ => {}
    }
    match manner.habit {
        Habit::RewritesDate => hit.set_date("Date", now()),
        Habit::RoundsAgeUp => hit.set("Age", &(age + 1).to_string()),
        Habit::Rephrases => {
            let control = hit.get("Cache-Control").unwrap_or_default();
            hit.set("Cache-Control", &control.replace(", ", " ,").to_uppercase());
            let media = hit.get("Content-Type").unwrap_or_default();
            hit.set("Content-Type", &format!("{}; charset=utf-8", media.to_uppercase()));
        }
        _ => {}
    }
    hit
}

fn compress(request: &Message, mut reply: Message, habit: Habit) -> Message {
    let accepts = request.get("Accept-Encoding").is_some_and(|value| value.contains("gzip"));
    let plain = reply.get("Content-Encoding").is_none() && reply.status() == 200;
    if habit != Habit::Compresses || !accepts || !plain {
        return reply;
    }
    reply.body = compressed(&reply.body);
    reply.set("Content-Length", &reply.body.len().to_string());
    reply.set("Content-Encoding", "gzip");
    reply.set("Vary", "Accept-Encoding");
    // A tag is of one sequence of bytes (RFC 9110 section 8.8.1).
    if let Some(tag) = reply.get("ETag") {
        reply.set("ETag", &format!("W/{tag}"));
    }
    reply
}

/// The part of the whole that is asked for.
fn cut_part(request: &Message, mut whole: Message, habit: Habit) -> Message {
    let range = request.get("Range").filter(|_| habit == Habit::FetchesWhole && whole.status() == 200);
    // Several parts are answered with the whole.
    let range = range.filter(|range| !range.contains(','));
    let Some((first, last)) = range.as_deref().and_then(|range| range.strip_prefix("bytes=")?.split_once('-')) else {
        return whole;
    };
    let size = whole.body.len();
    let (from, to) = match (first.parse::<usize>(), last.parse::<usize>()) {
        (Ok(first), Ok(last)) => (first, (last + 1).min(size)),
        (Ok(first), Err(_)) => (first, size),
        (Err(_), Ok(suffix)) => (size.saturating_sub(suffix), size),
        _ => return whole,
    };
    whole.start = "HTTP/1.1 206 Partial Content".to_owned();
    whole.set("Content-Range", &format!("bytes {from}-{}/{size}", to - 1));
    whole.body = whole.body[from..to].to_vec();
    whole.set("Content-Length", &whole.body.len().to_string());
    whole
}

/// Whether an answer lives for less than a day: it is not worth a place in this store, but where its origin says for how long.
fn expires_soon(reply: &Message) -> bool {
    if reply.get("Cache-Control").is_some_and(|value| value.contains("max-age")) {
        return false;
    }
    let seconds = |name: &str| field_seconds(reply, name);
    seconds("Expires").zip(seconds("Date")).is_some_and(|(expires, date)| expires < date + 86_400)
}

fn fetch(request: &Message, manner: Manner, store: &Mutex<Store>) -> io::Result<Message> {
    let (lie, url) = (manner.lie, request.url());
    let (host, path) = url.trim_start_matches("http://").split_once('/').ok_or(io::ErrorKind::InvalidInput)?;
    let mut asked = request.clone();
    let version = if manner.habit == Habit::OldOrigin { "1.0" } else { "1.1" };
    asked.start = format!("{} /{path} HTTP/{version}", request.method());
    asked.set("Connection", "close");
    match lie {
        Lie::ShiftsRanges => {
            let range = asked.get("Range").unwrap_or_default();
            if let Some((first, last)) = range.strip_prefix("bytes=").and_then(|range| range.split_once('-')) {
                asked.set("Range", &format!("bytes={}-{}", plus_one(first), plus_one(last)));
            }
        }
        Lie::MovesParts => {
            let range = asked.get("Range").unwrap_or_default();
            if let Some((_, rest)) = range.split_once(',') {
                asked.set("Range", &format!("bytes=0-9,{rest}"));
            }
        }
        Lie::Strips(name) => asked.remove(name),
        Lie::Mixes(name) => {
            if let Some(value) = asked.get(name) {
                let first = store.lock().unwrap().first.entry(name).or_insert(value).clone();
                asked.set(name, &first);
            }
        }
        Lie::AltersPosts => asked.body.iter_mut().take(1).for_each(|byte| *byte ^= 1),
        Lie::ShortensPosts if !asked.body.is_empty() => {
            asked.body.pop();
            asked.set("Content-Length", &asked.body.len().to_string());
        }
        _ => {}
    }
    let mut origin = TcpStream::connect(host)?;
    origin.set_read_timeout(Some(Duration::from_secs(10)))?;
    origin.write_all(&[asked.head(), asked.body.clone()].concat())?;
    read_message(&mut origin, true)
}

fn plus_one(number: &str) -> u64 {
    number.trim().parse::<u64>().unwrap_or(0) + 1
}
