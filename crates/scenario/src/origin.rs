//! An origin: listens, takes requests in the order in which they come, and answers as the script says. A request
//! that the script does not expect is a failure, until the play ends.

use crate::check;
use crate::message::Head;
use crate::ranges;
use crate::script::{Action, Expect, Message, Reaction, Reply, Standing, Step};
use crate::text::{Scope, Text, glob};
use crate::traffic::{Incoming, Talk, encode, wrong};
use crate::world::{Halt, State, Verdict, World};
use socket2::{Domain, Socket, Type};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// One origin and all its connections.
#[derive(Debug)]
pub struct Origin {
    party: String,
    world: Arc<World>,
    scope: Scope,
    address: SocketAddr,
    talks: Vec<Talk>,
    current: Option<usize>,
    labels: HashMap<String, usize>,
    standing: Vec<Standing>,
    /// Requests that came while this origin waited at a barrier, for a later `expect`.
    pending: VecDeque<(usize, Head)>,
    silence: Option<Silence>,
}

/// A port that neither accepts nor refuses, as behind a network that drops packets: its queue of new connections is full.
#[derive(Debug)]
struct Silence {
    _listener: Socket,
    _queued: Vec<TcpStream>,
}

/// So long the system is waited for when the queue is filled, and so many fit at most.
const QUEUED_WITHIN: Duration = Duration::from_millis(100);
const QUEUED_MAX: usize = 16;

impl Silence {
    fn at(address: SocketAddr) -> io::Result<Silence> {
        let listener = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        listener.set_reuse_address(true)?;
        listener.bind(&address.into())?;
        listener.listen(0)?;
        let queued = std::iter::from_fn(|| TcpStream::connect_timeout(&address, QUEUED_WITHIN).ok());
        let queued = queued.take(QUEUED_MAX).collect();
        Ok(Silence { _listener: listener, _queued: queued })
    }
}

/// Accepts connections until the origin is down or the play over.
pub fn accept(world: &Arc<World>, listener: TcpListener, party: &str) {
    for stream in listener.incoming() {
        if world.is_down(party) {
            break;
        }
        if let Ok(stream) = stream {
            let _ = world.attach(stream, party);
            world.ring();
        }
    }
    drop(listener);
    world.lock().deaf.push(party.to_string());
    world.ring();
}

/// Wakes an acceptor so that it sees that it is to stop.
pub fn wake(address: SocketAddr) {
    let _ = TcpStream::connect(address);
}

impl Origin {
    pub fn new(party: String, world: Arc<World>, scope: Scope, address: SocketAddr) -> Origin {
        let (talks, labels, standing, pending) = (Vec::new(), HashMap::new(), Vec::new(), VecDeque::new());
        Origin { party, world, scope, address, talks, current: None, labels, standing, pending, silence: None }
    }

    /// Its name in the transcript.
    pub fn name(&self) -> &str {
        &self.party
    }

    /// Plays all steps; false when one failed or the play ended before.
    pub fn play(&mut self, steps: &[Step]) -> bool {
        for step in steps {
            if !self.judge(step.line, &step.text, |origin| origin.step(&step.what)) {
                return false;
            }
        }
        true
    }

    /// After the last step: requests that a `whenever` covers are answered, any other is a failure.
    pub fn watch(&mut self) {
        self.judge(0, "after its last step", |origin| {
            loop {
                let (index, head) = origin.next_head(false)?;
                if !origin.serve_standing(index, &head)? {
                    return wrong(format!("the origin was asked `{}`, which the script does not expect", head.start));
                }
            }
        });
    }

    fn judge(&mut self, line: usize, step: &str, act: impl FnOnce(&mut Origin) -> Result<(), Halt>) -> bool {
        match act(self) {
            Ok(()) => true,
            Err(Halt::Over) => false,
            Err(Halt::Wrong(what)) => {
                let party = self.party.clone();
                self.world.fail(Verdict { party, line, step: step.to_string(), what });
                false
            }
        }
    }

    fn step(&mut self, what: &Action) -> Result<(), Halt> {
        match what {
            Action::Expect(expect) => self.expect(expect),
            Action::Accept => self.accept(),
            Action::Reply(reply) => self.reply(reply),
            Action::Begin(reply) => self.begin(reply),
            Action::Whenever(standing) => {
                self.standing.push(standing.clone());
                Ok(())
            }
            Action::With(label) => {
                let found = self.labels.get(label).copied();
                self.current = Some(found.ok_or(Halt::Wrong(format!("no exchange is called `{label}` so far")))?);
                Ok(())
            }
            Action::Down => self.go_down(),
            Action::Unreachable => {
                self.go_down()?;
                let silence = Silence::at(self.address);
                self.silence = Some(silence.map_err(|error| Halt::Wrong(format!("no silence: {error}")))?);
                Ok(())
            }
            Action::NoRequest(time) => self.no_request(*time),
            Action::Count { requests, least, most } => self.count(*requests, *least, *most),
            Action::Barrier(name) => self.barrier(name),
            Action::Pause(time) => self.world.wait_at_most(*time, |_| None::<()>).map(|_| ()),
            _ => {
                let scope = self.scope.clone();
                self.talk()?.play(what, &scope)
            }
        }
    }

    fn go_down(&self) -> Result<(), Halt> {
        self.world.take_down(&self.party);
        wake(self.address);
        let party = self.party.clone();
        let is_deaf = |state: &mut State| state.deaf.contains(&party).then_some(());
        self.world.wait("the origin could not stop listening", is_deaf)
    }

    fn talk(&mut self) -> Result<&mut Talk, Halt> {
        let current =
            self.current.ok_or(Halt::Wrong("no request was taken yet: `expect` or `accept` comes first".into()))?;
        Ok(&mut self.talks[current])
    }

    /// Takes over connections that were accepted since.
    fn gather(&mut self) {
        let known: Vec<usize> = self.talks.iter().map(|t| t.wire).collect();
        let mine = |state: &State, party: &str| -> Vec<usize> {
            let all = state.wires.iter().enumerate().filter(|(_, w)| w.party == party);
            all.map(|(id, _)| id).filter(|id| !known.contains(id)).collect()
        };
        let new = mine(&self.world.lock(), &self.party);
        self.talks.extend(new.into_iter().map(|id| Talk::new(self.world.clone(), id)));
    }

    /// Takes the next whole head that is on any connection.
    fn next_head(&mut self, is_patient: bool) -> Result<(usize, Head), Halt> {
        loop {
            if let Some(found) = self.pending.pop_front().or_else(|| self.poll_head()) {
                return Ok(found);
            }
            let news = self.news();
            if is_patient {
                self.world.wait("expected a request, none came", |state| news(state).then_some(()))?;
            } else {
                self.world.wait_for_end(|state| news(state).then_some(()))?.ok_or(Halt::Over)?;
            }
        }
    }

    fn poll_head(&mut self) -> Option<(usize, Head)> {
        self.gather();
        for index in 0..self.talks.len() {
            if !self.is_idle(index) {
                continue;
            }
            let talk = &mut self.talks[index];
            talk.take();
            if let Some(mut head) = Head::take(&mut talk.buffer) {
                head.judge_request();
                *self.world.lock().requests.entry(self.party.clone()).or_default() += 1;
                return Some((index, head));
            }
        }
        None
    }

    fn is_idle(&self, index: usize) -> bool {
        let has_pending = self.pending.iter().any(|(i, _)| *i == index);
        !has_pending && self.talks[index].incoming.as_ref().is_none_or(|i| i.body.is_done())
    }

    /// A condition that holds when a connection is new or an idle one has new bytes.
    fn news(&self) -> impl Fn(&State) -> bool + use<> {
        let idle: Vec<usize> = (0..self.talks.len()).filter(|i| self.is_idle(*i)).map(|i| self.talks[i].wire).collect();
        let (count, party) = (self.talks.len(), self.party.clone());
        move |state| {
            let is_fresh = state.wires.iter().filter(|w| w.party == party).count() > count;
            is_fresh || idle.iter().any(|&id| !state.wires[id].input.is_empty())
        }
    }

    /// Waits at a barrier; requests that a `whenever` covers are answered meanwhile.
    fn barrier(&mut self, name: &str) -> Result<(), Halt> {
        if self.standing.is_empty() {
            return self.world.meet(name);
        }
        self.world.arrive(name);
        loop {
            if self.world.lock().is_met(name) {
                return Ok(());
            }
            if let Some((index, head)) = self.poll_head() {
                if !self.serve_standing(index, &head)? {
                    self.pending.push_back((index, head));
                }
                continue;
            }
            let news = self.news();
            self.world.wait(&World::nobody_at(name), |state| (state.is_met(name) || news(state)).then_some(()))?;
        }
    }

    fn expect(&mut self, expect: &Expect) -> Result<(), Halt> {
        loop {
            let (index, head) = self.next_head(true)?;
            if !self.matches(&expect.method, &expect.path, &head) {
                if self.serve_standing(index, &head)? {
                    continue;
                }
                let path = expect.path.render_str(&self.scope);
                return wrong(format!("expected `{} {path}`, got `{}`", expect.method, head.start));
            }
            self.current = Some(index);
            if let Some(label) = &expect.label {
                self.labels.insert(label.clone(), index);
            }
            let framing = head.request_framing();
            self.talks[index].incoming = Some(Incoming::new(head, framing));
            if expect.body_later {
                let Some(incoming) = &self.talks[index].incoming else { return Ok(()) };
                return check::all(&expect.checks, &incoming.head, None, &self.scope).map_err(Halt::Wrong);
            }
            return self.talks[index].judge(&expect.checks, &self.scope);
        }
    }

    fn matches(&self, method: &str, path: &Text, head: &Head) -> bool {
        let words = head.words();
        let target = words.get(1).copied().unwrap_or("");
        let path = path.render_str(&self.scope);
        let plain = target.strip_prefix(self.scope.root.as_str()).unwrap_or(target);
        glob(method, words[0]) && (glob(&path, target) || glob(&path, plain))
    }

    /// Treats a request as a standing rule says; false when there is none for it.
    fn serve_standing(&mut self, index: usize, head: &Head) -> Result<bool, Halt> {
        let mut newest_first = self.standing.iter().rev();
        let Some(rule) = newest_first.find(|rule| self.matches(&rule.method, &rule.path, head)) else {
            return Ok(false);
        };
        let reaction = rule.reaction.clone();
        let before = self.current.replace(index);
        let talk = &mut self.talks[index];
        talk.incoming = Some(Incoming::new(head.clone(), head.request_framing()));
        match reaction {
            Reaction::Cut => talk.play(&Action::Cut, &self.scope)?,
            Reaction::Close => self.world.close(talk.wire),
            Reaction::Reply(reply) => {
                talk.judge(&[], &self.scope)?;
                self.reply(&reply)?;
            }
        }
        self.current = before;
        Ok(true)
    }

    fn accept(&mut self) -> Result<(), Halt> {
        let count = self.talks.len();
        let party = self.party.clone();
        self.world.wait("expected a connection, none came", |state| {
            (state.wires.iter().filter(|w| w.party == party).count() > count).then_some(())
        })?;
        self.gather();
        self.current = Some(count);
        Ok(())
    }

    fn reply(&mut self, reply: &Reply) -> Result<(), Halt> {
        let mut reply = reply.clone();
        let has_body = !matches!(reply.status, 100..=199 | 204 | 304);
        if has_body && reply.message.body.is_none() && reply.message.chunks.is_none() {
            reply.message.body = Some(Vec::new());
        }
        let scope = self.scope.clone();
        let request = self.talk()?.incoming.as_ref().map(|i| i.head.clone()).unwrap_or_default();
        if reply.message.honours_range {
            reply = ranges::honour(reply, &request, &scope);
        }
        let (head, body) = self.encode(&reply, &reply.message);
        let body = if request.words()[0] == "HEAD" { Vec::new() } else { body };
        let talk = self.talk()?;
        talk.write(&[head, body].concat())?;
        if reply.message.until_close {
            talk.world.close(talk.wire);
        }
        Ok(())
    }

    fn begin(&mut self, reply: &Reply) -> Result<(), Halt> {
        let (head, _) = self.encode(reply, &reply.message);
        self.talk()?.write(&head)
    }

    fn encode(&self, reply: &Reply, message: &Message) -> (Vec<u8>, Vec<u8>) {
        let version = message.version.as_deref().unwrap_or("1.1");
        let reason = reply.reason.as_deref().unwrap_or_else(|| reason(reply.status));
        let start = format!("HTTP/{version} {} {reason}", reply.status);
        let date = crate::text::imf_date(self.scope.now);
        let automatic = if reply.status < 200 { vec![] } else { vec![("Date", date)] };
        encode(&start, message, &automatic, &self.scope)
    }

    fn no_request(&mut self, time: std::time::Duration) -> Result<(), Halt> {
        self.gather();
        let party = self.party.clone();
        let asked = |state: &mut State| {
            let mut wires = state.wires.iter().filter(|w| w.party == party);
            wires.find(|w| !w.input.is_empty()).map(|w| w.input.clone())
        };
        let asked = self.world.wait_at_most(time, asked)?;
        let asked = asked.or_else(|| self.talks.iter().map(|t| &t.buffer).find(|b| !b.is_empty()).cloned());
        match asked {
            Some(bytes) => wrong(format!("expected no request, got `{}`", crate::failure::readable(&bytes, 200))),
            None => Ok(()),
        }
    }

    fn count(&self, requests: bool, least: usize, most: usize) -> Result<(), Halt> {
        let state = self.world.lock();
        let (what, count) = match requests {
            true => ("requests", state.requests.get(&self.party).copied().unwrap_or(0)),
            false => ("connections", state.wires.iter().filter(|w| w.party == self.party).count()),
        };
        drop(state);
        if (least..=most).contains(&count) {
            return Ok(());
        }
        wrong(format!("expected {least} to {most} {what} so far, got {count}"))
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        404 => "Not Found",
        410 => "Gone",
        412 => "Precondition Failed",
        416 => "Range Not Satisfiable",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Status",
    }
}
