//! Playing a conversation: its requests one after the other, each answer as the client saw it.

use super::head::Fields;
use super::origin::{Stage, Stages, now};
use super::script::{Ask, Case, Value, Way};
use crate::http::{Answer, Connection};
use crate::shell::Trouble;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// An answer as a client got it.
#[derive(Clone, Debug)]
pub enum Got {
    /// A whole answer.
    Whole(Answer),
    /// The connection ended before it was whole.
    Broken(String),
}

/// A request and what came of it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The step.
    pub step: usize,
    /// The method.
    pub method: &'static str,
    /// The fields that were sent, besides `Host`.
    pub ask: Fields,
    /// When it was sent, in seconds since 1970.
    pub began: f64,
    /// When its answer was whole.
    pub ended: f64,
    /// The answer.
    pub got: Got,
}

/// Where everything is.
pub struct Ground {
    /// The port of each way in.
    pub entries: BTreeMap<Way, u16>,
    /// The port of the origin.
    pub origin: u16,
    /// Conversations under way.
    pub stages: Arc<Stages>,
    nonces: AtomicU64,
}

impl Ground {
    /// A ground with nothing under way; URLs begin at a number that no other run has.
    pub fn new(entries: BTreeMap<Way, u16>, origin: u16, stages: Arc<Stages>) -> Ground {
        Ground { entries, origin, stages, nonces: AtomicU64::new(1) }
    }

    /// Sets up a conversation under a URL of its own.
    pub fn stage(&self, case: &Case) -> Arc<Stage> {
        let stage = Arc::new(Stage::new(case.clone(), self.nonces.fetch_add(1, Ordering::Relaxed)));
        self.stages.add(&stage);
        stage
    }

    /// Plays a conversation with so many clients at once: each takes the next step as soon as it has its answer.
    pub fn play_together(&self, case: &Case, clients: u64) -> Result<(Arc<Stage>, Vec<Seen>), Trouble> {
        let (stage, next) = (self.stage(case), AtomicU64::new(0));
        let one = || -> Result<Vec<Seen>, Trouble> {
            let (mut client, mut seen) = (Client::new(self, case.way), Vec::new());
            loop {
                let at = next.fetch_add(1, Ordering::SeqCst) as usize;
                let Some(step) = case.steps.get(at) else { return Ok(seen) };
                stage.step.fetch_max(at, Ordering::SeqCst);
                seen.push(client.ask(&stage, at, &step.ask, true)?);
            }
        };
        let mut seen = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..clients).map(|_| scope.spawn(one)).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Vec<Seen>, Trouble>>| {
                thread.join().map_err(|_| "a client panicked".to_owned())?
            };
            threads.into_iter().map(join).collect::<Result<Vec<_>, Trouble>>()
        })?;
        let mut seen: Vec<Seen> = seen.drain(..).flatten().collect();
        seen.sort_by_key(|one| one.step);
        self.stages.remove(stage.nonce);
        Ok((stage, seen))
    }

    /// Plays a conversation from its first step to its last.
    pub fn play(&self, case: &Case) -> Result<(Arc<Stage>, Vec<Seen>), Trouble> {
        let stage = self.stage(case);
        let mut client = Client::new(self, case.way);
        let mut seen = Vec::with_capacity(case.steps.len());
        for (at, step) in case.steps.iter().enumerate() {
            if step.pause_seconds > 0 {
                std::thread::sleep(Duration::from_millis(step.pause_seconds * 1_000 + 100));
            }
            stage.step.store(at, Ordering::SeqCst);
            let one = client.ask(&stage, at, &step.ask, case.numbers_steps)?;
            let is_settled = is_settled(&one);
            seen.push(one);
            if !is_settled {
                settle(&stage);
            }
        }
        self.stages.remove(stage.nonce);
        Ok((stage, seen))
    }
}

/// Whether nothing happens behind the answer: no validation, no fetch of the rest.
fn is_settled(seen: &Seen) -> bool {
    let Got::Whole(answer) = &seen.got else { return false };
    let status = answer.field("cache-status").unwrap_or_default();
    answer.status == 200 && seen.ask.get("range").is_none() && !status.contains("stale") && !status.contains("revalid")
}

/// Waits until the origin has not been asked for a few milliseconds.
fn settle(stage: &Stage) {
    let mut before = stage.exchanges().len();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(4));
        let after = stage.exchanges().len();
        if after == before {
            return;
        }
        before = after;
    }
}

/// A client with a connection of its own.
pub struct Client<'a> {
    ground: &'a Ground,
    way: Way,
    connection: Option<Connection>,
}

impl<'a> Client<'a> {
    /// A client before its first request.
    pub fn new(ground: &'a Ground, way: Way) -> Client<'a> {
        Client { ground, way, connection: None }
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, stage: &Stage, number: usize, ask: &Ask, tells_number: bool) -> Result<Seen, Trouble> {
        let value = |value: &Value| match value {
            Value::Text(text) => text.clone(),
            Value::Date(moment) => moment.spelling.write(stage.start + moment.offset),
        };
        let mut fields = Fields::default();
        ask.fields.iter().for_each(|(name, text)| fields.push(name, value(text)));
        if tells_number {
            fields.push("X-Step", number.to_string());
        }
        let request = self.written(stage.nonce, ask.method, &fields);
        let began = now();
        let got = self.exchange(&request, ask.method == "HEAD")?;
        Ok(Seen { step: number, method: ask.method, ask: fields, began, ended: now(), got })
    }

    fn written(&self, nonce: u64, method: &str, fields: &Fields) -> Vec<u8> {
        let origin = self.ground.origin;
        let mut head = match self.way {
            Way::Forward => {
                format!("{method} http://127.0.0.1:{origin}/m/{nonce} HTTP/1.1\r\nHost: 127.0.0.1:{origin}\r\n")
            }
            Way::Site | Way::SiteOnDisk => format!("{method} /m/{nonce} HTTP/1.1\r\nHost: model.test\r\n"),
        };
        fields.0.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        if matches!(method, "POST" | "PUT") {
            head.push_str("Content-Length: 4\r\n\r\nbody");
        } else {
            head.push_str("\r\n");
        }
        head.into_bytes()
    }

    fn exchange(&mut self, request: &[u8], is_head: bool) -> Result<Got, Trouble> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(self.ground.entries[&self.way])?,
        };
        match connection.ask(request, is_head) {
            Ok(answer) => {
                self.connection = answer.keeps.then_some(connection);
                Ok(Got::Whole(answer))
            }
            Err(trouble) => Ok(Got::Broken(trouble)),
        }
    }
}
