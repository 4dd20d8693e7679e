//! The origins of a run and their name server: they answer by the plan, and know no more than it and the versions of their objects.

use super::law::{self, Body};
use super::message::{Inbox, Message};
use super::plan::{BodyFraming, Connect, Name, Object, PLAIN, Trouble, Turn};
use super::world::{OpenFetch, World};
use crate::in_memory::network::{NameAnswer, Network, Soon};
use crate::in_memory::{MemoryStream, StreamSettings};
use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;

/// The network of a run.
pub struct Origins {
    world: Rc<World>,
    connected: RefCell<Vec<usize>>,
    asked: RefCell<Vec<usize>>,
}

impl Origins {
    /// The origins of a run.
    pub fn new(world: &Rc<World>) -> Rc<Origins> {
        let hosts = world.plan.hosts.len();
        Rc::new(Origins {
            world: Rc::clone(world),
            connected: RefCell::new(vec![0; hosts]),
            asked: RefCell::new(vec![0; hosts]),
        })
    }
}

/// The name of a host.
pub fn name_of(host: usize) -> String {
    format!("o{host}.test")
}

fn address_of(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, host as u8 + 1).into()
}

/// Takes the next of a list of turns, and `otherwise` behind its end.
fn next<T: Copy>(turns: &[T], taken: &mut usize, otherwise: T) -> T {
    *taken += 1;
    turns.get(*taken - 1).copied().unwrap_or(otherwise)
}

impl Network for Origins {
    fn connect(&self, to: SocketAddr) -> Soon<io::Result<MemoryStream>> {
        let world = Rc::clone(&self.world);
        let Some(host) = (0..world.plan.hosts.len()).find(|host| address_of(*host) == to.ip() && to.port() == 80)
        else {
            return Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) });
        };
        let plan = &world.plan.hosts[host];
        let turn = next(&plan.connects, &mut self.connected.borrow_mut()[host], Connect::Accept(1));
        let settings = plan.stream;
        world.trace(|| format!("origin {host}: a connection: {turn:?}"));
        Box::pin(async move {
            match turn {
                Connect::Refuse => return Err(io::ErrorKind::ConnectionRefused.into()),
                Connect::Hang => return std::future::pending().await,
                Connect::Accept(millis) => sleep(Duration::from_millis(millis)).await,
            }
            let roomy = StreamSettings { room_bytes: 1 << 20, ..settings };
            let (near, far) = MemoryStream::pair(roomy, settings);
            tokio::task::spawn_local(async move {
                let _ = Serving { world, host, inbox: Inbox::new(Rc::new(far)) }.serve().await;
            });
            Ok(near)
        })
    }

    fn resolve(&self, name: &str, is_v6: bool) -> Soon<NameAnswer> {
        let Some(host) = (0..self.world.plan.hosts.len()).find(|host| name_of(*host) == name.trim_end_matches('.'))
        else {
            return Box::pin(async { NameAnswer::NotFound });
        };
        if is_v6 {
            return Box::pin(async { NameAnswer::NotFound });
        }
        let turn = next(&self.world.plan.hosts[host].names, &mut self.asked.borrow_mut()[host], Name::Address(0));
        self.world.trace(|| format!("names: {name}: {turn:?}"));
        Box::pin(async move {
            match turn {
                Name::Hang => std::future::pending().await,
                Name::NotFound => NameAnswer::NotFound,
                Name::Fail => NameAnswer::Failed,
                Name::Address(millis) => {
                    sleep(Duration::from_millis(millis)).await;
                    NameAnswer::Addresses(vec![address_of(host)])
                }
            }
        })
    }
}

/// A connection that an origin serves.
struct Serving {
    world: Rc<World>,
    host: usize,
    inbox: Inbox,
}

/// Why an origin closes a connection.
struct Closes;

impl From<io::Error> for Closes {
    fn from(_: io::Error) -> Closes {
        Closes
    }
}

impl Serving {
    async fn serve(self) -> Result<(), Closes> {
        loop {
            let Some(request) = self.inbox.head().await? else { return Ok(()) };
            let path = request.first.split(' ').nth(1).unwrap_or_default();
            let object = path.rsplit('/').next().and_then(|number| number.parse::<usize>().ok());
            let Some(object) = object.filter(|number| *number < self.world.plan.objects.len()) else {
                self.world.broken("an origin gets what clients asked for", request.first.clone());
                return Err(Closes);
            };
            let plan = self.world.plan.clone();
            if plan.objects[object].host != self.host {
                self.world.broken("a request goes to its own origin", request.first.clone());
            }
            let turn = next(&plan.objects[object].turns, &mut self.world.turns.borrow_mut()[object], PLAIN);
            self.world.trace(|| {
                let range = request.field("Range").unwrap_or("whole");
                format!("origin {}: {} ({range}) {turn:?}", self.host, request.first)
            });
            let number = self.world.fetch_begins(OpenFetch {
                object,
                since: tokio::time::Instant::now(),
                has_head: false,
                may_be_stored: plan.objects[object].may_be_stored() && request.field("Authorization").is_none(),
            });
            let guard = FetchGuard { world: Rc::clone(&self.world), number };
            let answered = tokio::select! {
                biased;
                answered = self.answer(&request, object, turn, number) => answered,
                () = gone(self.inbox.stream()) => Err(Closes),
            };
            self.world.acts(object);
            drop(guard);
            answered?;
            if let Some(millis) = turn.closes_after {
                let gone = gone(self.inbox.stream());
                let _ = tokio::time::timeout(Duration::from_millis(millis), gone).await;
                return Ok(());
            }
        }
    }

    async fn answer(&self, request: &Message, object: usize, turn: Turn, number: u64) -> Result<(), Closes> {
        let world = &self.world;
        let method = request.first.split(' ').next().unwrap_or_default().to_owned();
        if request.field("Expect").is_some() {
            self.put(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let upload = self.inbox.body_of_request(request).await?;
        sleep(Duration::from_millis(turn.think_millis)).await;
        world.acts(object);
        if turn.changes {
            world.change(object);
        }
        match turn.trouble {
            Trouble::ResetBeforeHead => {
                self.inbox.stream().end_by_reset();
                return Err(Closes);
            }
            Trouble::SilentBeforeHead => std::future::pending().await,
            Trouble::Garbage => {
                self.put(b"\x16\x03\x01 no HTTP at all\r\n\r\n").await?;
                return Err(Closes);
            }
            Trouble::LongHead => {
                self.put(format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\n\r\n", "x".repeat(70_000)).as_bytes()).await?;
                return Err(Closes);
            }
            _ => {}
        }
        if turn.interim {
            self.put(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").await?;
        }
        if request.field("Upgrade").is_some() {
            return self.echo().await;
        }
        let answer = Answer::of(world, request, &method, object, turn, &upload);
        if let Some(fetch) = world.fetches.borrow_mut().get_mut(&number) {
            fetch.has_head = true;
            // A part is stored where its origin names the version.
            let may_be_kept = answer.status == 200 || answer.status == 206 && world.plan.objects[object].has_tag;
            fetch.may_be_stored &= may_be_kept && method == "GET";
        }
        self.send(&method, object, turn, answer).await
    }

    async fn put(&self, bytes: &[u8]) -> io::Result<()> {
        self.inbox.stream().put(bytes).await
    }

    async fn send(&self, method: &str, object: usize, turn: Turn, answer: Answer) -> Result<(), Closes> {
        let world = &self.world;
        self.put(answer.head.as_bytes()).await?;
        world.acts(object);
        let (piece_bytes, piece_millis) =
            world.plan.objects[object].thin.unwrap_or((turn.piece_bytes, turn.piece_millis));
        let mut at = 0;
        let stops_at = match turn.trouble {
            Trouble::Reset(at) | Trouble::Silent(at) | Trouble::Truncates(at) => Some(at),
            _ => None,
        };
        let body = if method == "HEAD" || answer.status == 304 { &[][..] } else { &answer.body[..] };
        while at < body.len() {
            let piece = piece_bytes.min(body.len() - at);
            let ends = stops_at.map_or(usize::MAX, |stop| stop as usize);
            let piece = piece.min(ends.saturating_sub(at));
            if piece > 0 {
                self.piece(&answer, &body[at..at + piece]).await?;
                world.acts(object);
            }
            at += piece;
            // Silence behind an answer that has come to its end is that of an idle connection.
            let has_ended = at >= body.len() && answer.framing == BodyFraming::Length;
            if at >= ends && !(has_ended && matches!(turn.trouble, Trouble::Silent(_))) {
                return self.stop(turn.trouble, &answer).await;
            }
            if at < body.len() && piece_millis > 0 {
                sleep(Duration::from_millis(piece_millis)).await;
            }
        }
        if answer.framing == BodyFraming::Chunked && method != "HEAD" && answer.status != 304 {
            self.put(b"0\r\n\r\n").await?;
        }
        // Where the end of the connection ends the body there is nothing behind it.
        if turn.trouble == Trouble::Surplus && answer.framing != BodyFraming::UntilClose {
            self.put(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsplit!").await?;
        }
        world.acts(object);
        if answer.framing == BodyFraming::UntilClose { Err(Closes) } else { Ok(()) }
    }

    async fn piece(&self, answer: &Answer, bytes: &[u8]) -> io::Result<()> {
        if answer.framing != BodyFraming::Chunked {
            return self.put(bytes).await;
        }
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.put(&chunk).await
    }

    async fn stop(&self, trouble: Trouble, answer: &Answer) -> Result<(), Closes> {
        match trouble {
            Trouble::Silent(_) => std::future::pending().await,
            // An end that nobody can tell from the end of the body would be no truncation.
            Trouble::Truncates(_) if answer.framing != BodyFraming::UntilClose => Err(Closes),
            _ => {
                self.inbox.stream().end_by_reset();
                Err(Closes)
            }
        }
    }

    /// Sends back what comes, until it ends.
    async fn echo(&self) -> Result<(), Closes> {
        self.put(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n").await?;
        let rest = self.inbox.take();
        self.put(&rest).await?;
        let mut room = [0; 1000];
        loop {
            match self.inbox.stream().get(&mut room).await? {
                0 => return Err(Closes),
                count => self.put(&room[..count]).await?,
            }
        }
    }
}

/// Waits until the server has closed its end.
async fn gone(stream: &MemoryStream) {
    while !matches!(stream.other_side(), (true, _) | (_, true)) {
        sleep(Duration::from_millis(50)).await;
    }
}

/// A request is under way at an origin for as long as this lives.
struct FetchGuard {
    world: Rc<World>,
    number: u64,
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        self.world.fetches.borrow_mut().remove(&self.number);
    }
}

/// An answer of an origin.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
    framing: BodyFraming,
}

impl Answer {
    fn of(world: &World, request: &Message, method: &str, number: usize, turn: Turn, upload: &[u8]) -> Answer {
        let object = &world.plan.objects[number];
        let wanted = request.field("X-Want").and_then(|value| value.chars().next()).unwrap_or('a');
        let body = Body {
            object: number,
            version: world.versions.borrow()[number],
            variant: if object.varies { wanted } else { '-' },
        };
        let serial = world.sends(body);
        let mut fields = format!("X-Serial: {serial}\r\nDate: {}\r\n", date());
        if method == "POST" {
            let text = format!("{} {}", upload.len(), law::sum(upload));
            let head = format!(
                "HTTP/1.1 200 OK\r\n{fields}X-Posted: yes\r\nCache-Control: no-store\r\nContent-Length: {}\r\n\r\n",
                text.len()
            );
            return Answer { status: 200, head, body: text.into_bytes(), framing: BodyFraming::Length };
        }
        if let Trouble::Status(status) = turn.trouble {
            let head =
                format!("HTTP/1.1 {status} Trouble\r\n{fields}Cache-Control: no-store\r\nContent-Length: 4\r\n\r\n");
            return Answer { status, head, body: b"oops".to_vec(), framing: BodyFraming::Length };
        }
        fields += &Answer::fields(object, body);
        let length = body.length(object);
        let tag = body.tag();
        if object.has_tag && request.field("If-None-Match").is_some_and(|tags| tags.contains(&tag)) {
            let head = format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n");
            return Answer { status: 304, head, body: Vec::new(), framing: BodyFraming::Length };
        }
        let is_current = request.field("If-Range").is_none_or(|value| object.has_tag && value == tag);
        let range = request.field("Range").filter(|_| object.knows_ranges && is_current && method == "GET");
        match range.and_then(|range| one_range(range, length)) {
            Some((first, last)) => {
                let head = format!(
                    "HTTP/1.1 206 Partial Content\r\n{fields}Content-Range: bytes {first}-{last}/{length}\r\nContent-Length: {}\r\n\r\n",
                    last + 1 - first
                );
                Answer { status: 206, head, body: body.bytes(first, last + 1), framing: BodyFraming::Length }
            }
            None => {
                let framed = match object.framing {
                    BodyFraming::Length => format!("Content-Length: {length}\r\n"),
                    BodyFraming::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
                    BodyFraming::UntilClose => "Connection: close\r\n".to_owned(),
                };
                let head = format!("HTTP/1.1 200 OK\r\n{fields}{framed}\r\n");
                Answer { status: 200, head, body: body.bytes(0, length), framing: object.framing }
            }
        }
    }

    fn fields(object: &Object, body: Body) -> String {
        let mut fields = format!(
            "X-Object: {}\r\nX-Version: {}\r\nX-Variant: {}\r\nCache-Control: {}\r\n",
            body.object, body.version, body.variant, object.life
        );
        if object.varies {
            fields += "Vary: X-Want\r\n";
        }
        if object.says_ranges {
            fields += "Accept-Ranges: bytes\r\n";
        }
        if object.has_tag {
            fields += &format!("ETag: {}\r\n", body.tag());
        }
        fields
    }
}

fn date() -> String {
    String::from_utf8_lossy(&larder_wire::date::format_date(crate::clock::now())).into_owned()
}

/// The first of the ranges, where there is one in a body of this length.
fn one_range(text: &str, length: u64) -> Option<(u64, u64)> {
    let (first, last) = text.strip_prefix("bytes=")?.split(',').next()?.split_once('-')?;
    let first: u64 = first.parse().ok()?;
    let last = last.parse().unwrap_or(u64::MAX).min(length.checked_sub(1)?);
    (first <= last && first < length && !text.contains(',')).then_some((first, last))
}
