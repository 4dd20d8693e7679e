//! The clients of a run: each connection sends its requests and judges what comes back.

use super::judge::{self, Asked, Got};
use super::message::{BodyEnd, Inbox, Message};
use super::origin::name_of;
use super::plan::{Action, ConnectionPlan, LeaveAfter, LeaveHow, Step, UploadFraming};
use super::world::{Waits, World};
use crate::in_memory::MemoryStream;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

/// No byte of an answer takes longer: each time limit of the settings is a few seconds, and a request meets few of them. But a body
/// that passes through memory goes at the pace of its slowest reader (decision 005).
const BYTE_WITHIN: Duration = Duration::from_secs(600);

/// One connection of a client.
pub struct Client {
    world: Rc<World>,
    plan: ConnectionPlan,
    number: usize,
    stream: Rc<MemoryStream>,
    /// Requests of which a part was sent, and of which all was.
    begun: Cell<usize>,
    /// When each request was sent to its end.
    whole: RefCell<Vec<Instant>>,
    /// Answers that came.
    answered: Cell<usize>,
    progress: Notify,
    waits: RefCell<VecDeque<Waits>>,
    asked: RefCell<Vec<Asked>>,
    sent_bytes: Cell<usize>,
    is_over: Cell<bool>,
}

/// The client has left.
struct Left;

impl Client {
    /// The client's end of an open connection.
    pub fn new(world: &Rc<World>, number: usize, stream: MemoryStream) -> Client {
        Client {
            world: Rc::clone(world),
            plan: world.plan.connections[number].clone(),
            number,
            stream: Rc::new(stream),
            begun: Cell::new(0),
            whole: RefCell::default(),
            answered: Cell::new(0),
            progress: Notify::new(),
            waits: RefCell::default(),
            asked: RefCell::default(),
            sent_bytes: Cell::new(0),
            is_over: Cell::new(false),
        }
    }

    /// Plays the connection to its end.
    pub async fn play(self) {
        let ended = tokio::select! {
            biased;
            read = self.read() => read,
            Left = self.write_and_stay() => Err(Left),
        };
        let how = self.plan.leaves.map(|leaves| leaves.how);
        if ended.is_err() && how == Some(LeaveHow::Resets) {
            self.stream.end_by_reset();
        }
        self.world.trace(|| format!("client {}: {}", self.number, if ended.is_err() { "leaves" } else { "is done" }));
    }

    async fn write_and_stay(&self) -> Left {
        match self.write().await {
            Err(left) => left,
            Ok(()) => std::future::pending().await,
        }
    }

    async fn write(&self) -> Result<(), Left> {
        for (at, step) in self.plan.steps.iter().enumerate() {
            while !step.is_pipelined && self.answered.get() < at && !self.is_over.get() {
                self.progress.notified().await;
            }
            if self.is_over.get() {
                return Ok(());
            }
            sleep(Duration::from_millis(step.pause_millis)).await;
            let asked = Asked::of(&self.world, step);
            self.world.trace(|| format!("client {}: {} {:?}", self.number, asked.line(), asked.fields));
            self.asked.borrow_mut().push(asked.clone());
            self.begun.set(at + 1);
            self.world.begun.set(self.world.begun.get() + 1);
            self.put(&asked.head(), step).await?;
            self.waits.borrow_mut().push_back(self.world.waits(step.object));
            if let Action::Post(length, framing) = step.action {
                self.upload(length, framing, at, step).await?;
            }
            self.whole.borrow_mut().push(Instant::now());
        }
        Ok(())
    }

    async fn upload(&self, length: u64, framing: UploadFraming, at: usize, step: &Step) -> Result<(), Left> {
        if framing == UploadFraming::Expects {
            // It need not wait for ever (RFC 9110 section 10.1.1).
            let _ = timeout(Duration::from_millis(300), async {
                while self.answered.get() <= at {
                    self.progress.notified().await;
                }
            })
            .await;
        }
        let body = judge::upload_of(step, length);
        let slow = Step { piece_bytes: step.piece_bytes.max(20_000), ..step.clone() };
        if framing != UploadFraming::Chunked {
            return self.put(&body, &slow).await;
        }
        for piece in body.chunks(30_000) {
            let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
            chunk.extend_from_slice(piece);
            chunk.extend_from_slice(b"\r\n");
            self.put(&chunk, &slow).await?;
        }
        self.put(b"0\r\n\r\n", &slow).await
    }

    /// Sends bytes in the pieces of a step, and leaves where the plan says so.
    async fn put(&self, bytes: &[u8], step: &Step) -> Result<(), Left> {
        for piece in bytes.chunks(step.piece_bytes.max(1)) {
            let (sent, mut piece) = (self.sent_bytes.get(), piece);
            let leaves = self.plan.leaves.filter(|leaves| matches!(leaves.after, LeaveAfter::Sent(_)));
            if let Some(leaves) = leaves
                && let LeaveAfter::Sent(after) = leaves.after
                && sent + piece.len() >= after
            {
                piece = &piece[..after.saturating_sub(sent)];
                let _ = self.stream.put(piece).await;
                if leaves.how != LeaveHow::HalfCloses {
                    return Err(Left);
                }
                self.world.trace(|| format!("client {}: sends no more", self.number));
                self.stream.end();
                return std::future::pending().await;
            }
            // A server that has closed may still have answered.
            if self.stream.put(piece).await.is_err() {
                return std::future::pending().await;
            }
            self.sent_bytes.set(sent + piece.len());
            if piece.len() < bytes.len() && step.piece_millis > 0 {
                sleep(Duration::from_millis(step.piece_millis)).await;
            }
        }
        Ok(())
    }

    async fn read(&self) -> Result<(), Left> {
        let got_bytes = match self.plan.leaves.map(|leaves| leaves.after) {
            Some(LeaveAfter::Got(bytes)) => Some(bytes),
            _ => None,
        };
        let pause = Duration::from_millis(self.plan.read_pause_millis);
        let inbox = Inbox::new(Rc::clone(&self.stream)).slow(pause).until(got_bytes).within(BYTE_WITHIN);
        let mut before = Instant::now();
        for (at, step) in self.plan.steps.iter().enumerate() {
            let answer = self.answer(&inbox, step).await;
            if inbox.is_stuck() {
                self.world.broken("everything ends", format!("client {} waits for ever for answer {at}", self.number));
                return Ok(());
            }
            match answer {
                Answer::Left => return Err(Left),
                Answer::None => {
                    self.is_over.set(true);
                    self.progress.notify_one();
                    // A slow reader may be cut off within a head.
                    if inbox.take().is_empty() {
                        self.was_unanswered(at);
                    }
                    return Ok(());
                }
                Answer::Got(head, body, end) => {
                    self.waits.borrow_mut().pop_front();
                    let closes = self.judge(at, &head, &body, end, before);
                    before = Instant::now();
                    self.answered.set(at + 1);
                    self.is_over.set(closes);
                    self.progress.notify_one();
                    if closes {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    async fn answer(&self, inbox: &Inbox, step: &Step) -> Answer {
        let leaves_by_reading = matches!(self.plan.leaves.map(|leaves| leaves.after), Some(LeaveAfter::Got(_)));
        let of_error = |error: &std::io::Error| match error.kind() {
            std::io::ErrorKind::Interrupted if leaves_by_reading => Answer::Left,
            _ => Answer::None,
        };
        loop {
            let head = match inbox.head().await {
                Ok(Some(head)) => head,
                Ok(None) => return Answer::None,
                Err(error) => return of_error(&error),
            };
            let mut body = Vec::new();
            match (head.status(), step.action) {
                (101, _) => {
                    let end = self.through_upgrade(inbox, &mut body).await;
                    return Answer::Got(head, body, end);
                }
                (100..200, _) => self.progress.notify_one(),
                (200, Action::Connect) => {
                    let end = self.through_tunnel(inbox, step, &mut body).await;
                    return Answer::Got(head, body, end);
                }
                _ => {
                    let method = judge::method_of(step);
                    let end = inbox.body_of_response(&head, method, &mut body).await;
                    return Answer::Got(head, body, end);
                }
            }
        }
    }

    /// Sends bytes through an upgraded connection and takes them back.
    async fn through_upgrade(&self, inbox: &Inbox, body: &mut Vec<u8>) -> BodyEnd {
        let _ = self.stream.put(b"there and back").await;
        self.stream.end();
        inbox.body_of_response(&Message::default(), "GET", body).await
    }

    /// Asks the origin through a tunnel.
    async fn through_tunnel(&self, inbox: &Inbox, step: &Step, body: &mut Vec<u8>) -> BodyEnd {
        let (host, path) = (name_of(self.world.plan.objects[step.object].host), judge::path_of(step.object));
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nX-Want: {}\r\n\r\n", step.variant);
        let _ = self.stream.put(request.as_bytes()).await;
        let head = loop {
            match inbox.head().await {
                Ok(Some(head)) if head.status() >= 200 => break head,
                Ok(Some(_)) => {}
                _ => return BodyEnd::Broken,
            }
        };
        if head.status() / 100 != 2 {
            return BodyEnd::Broken;
        }
        inbox.body_of_response(&head, "GET", body).await
    }

    /// Judges an answer; says whether it is the last one on its connection.
    fn judge(&self, at: usize, head: &Message, body: &[u8], end: BodyEnd, before: Instant) -> bool {
        let world = &self.world;
        world.answers.set(world.answers.get() + 1);
        let status = head.field("Cache-Status").unwrap_or("-");
        world.trace(|| format!("client {}: got {} ({} bytes, {end:?}) {status}", self.number, head.first, body.len()));
        let whole = self.whole.borrow().get(at).copied();
        let asked = self.asked.borrow().get(at).cloned();
        let Some(asked) = asked else {
            // A connection too many is refused, and a client that is silent for too long is told so.
            if matches!(head.status(), 408 | 503) {
                return true;
            }
            world.broken("an answer belongs to a request", head.first.clone());
            return true;
        };
        let got = Got { head, body, end, sent: whole.map(|whole| whole.max(before)) };
        judge::judge(world, &self.plan, &self.plan.steps[at], &asked, &got);
        let closes = head.field("Connection").is_some_and(|value| value.to_ascii_lowercase().contains("close"));
        let leaves_http =
            matches!(self.plan.steps[at].action, Action::Connect | Action::Upgrade) && head.status() < 300;
        closes || leaves_http || end != BodyEnd::Whole || self.plan.steps[at].is_http_1_0
    }

    /// A connection ended without an answer to this request.
    fn was_unanswered(&self, at: usize) {
        let Some(whole) = self.whole.borrow().get(at).copied() else { return };
        let waited = whole.elapsed();
        let may_be = self.world.is_draining.get() || self.plan.leaves.is_some();
        if waited > Duration::from_millis(100) && !may_be && self.plan.steps[at].action != Action::Garbage {
            let seen =
                format!("client {}: request {at} was sent, and after {waited:?} the connection ended", self.number);
            self.world.broken("a request gets an answer", seen);
        }
    }
}

/// The end of a wait for an answer.
enum Answer {
    Got(Message, Vec<u8>, BodyEnd),
    /// The connection ended.
    None,
    /// The client has got as much as it wanted.
    Left,
}
