//! A client: asks through the proxy and judges the answers.

use crate::check;
use crate::failure::readable;
use crate::message::Head;
use crate::script::{Action, Ask, Check, Message, Statuses, Step};
use crate::target::{Target, Way};
use crate::text::Scope;
use crate::traffic::{Incoming, Talk, encode, wrong};
use crate::world::{Halt, Verdict, World};
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

/// One client with, at any moment, one connection.
#[derive(Debug)]
pub struct Client {
    party: String,
    world: Arc<World>,
    scope: Scope,
    target: Target,
    talk: Option<Talk>,
    /// Method and version of each request that has no answer yet.
    outstanding: VecDeque<(String, String)>,
    /// The last answer said that the connection ends with it.
    is_ending: bool,
    /// The origin at the other end of a tunnel.
    tunnel: Option<String>,
}

impl Client {
    pub fn new(party: String, world: Arc<World>, scope: Scope, target: Target) -> Client {
        let (outstanding, is_ending) = (VecDeque::new(), false);
        Client { party, world, scope, target, talk: None, outstanding, is_ending, tunnel: None }
    }

    /// Plays all steps; false when one failed or the play ended before.
    pub fn play(&mut self, steps: &[Step]) -> bool {
        for step in steps {
            match self.step(&step.what) {
                Ok(()) => {}
                Err(Halt::Over) => return false,
                Err(Halt::Wrong(what)) => {
                    let party = self.party.clone();
                    self.world.fail(Verdict { party, line: step.line, step: step.text.clone(), what });
                    return false;
                }
            }
        }
        self.leaves_nothing_over()
    }

    /// Bytes that follow the last answer belong to nothing: a response-splitting proxy sends them.
    fn leaves_nothing_over(&mut self) -> bool {
        let is_raw = self.tunnel.is_some() || !self.outstanding.is_empty();
        let Some(talk) = self.talk.as_mut().filter(|_| !is_raw) else { return true };
        let ends_here = |i: &Incoming| i.body.is_done() && i.head.status() != 101;
        if !talk.incoming.as_ref().is_some_and(ends_here) {
            return true;
        }
        talk.take();
        if talk.buffer.is_empty() {
            return true;
        }
        let what = format!("expected nothing after the last answer, got `{}`", readable(&talk.buffer, 400));
        self.world.fail(Verdict { party: self.party.clone(), line: 0, step: "after its last step".into(), what });
        false
    }

    fn step(&mut self, what: &Action) -> Result<(), Halt> {
        match what {
            Action::Ask(ask) => self.ask(ask),
            Action::Got(statuses, checks) => self.got(statuses, checks),
            Action::GotHead(statuses, checks) => self.got_head(statuses, checks),
            Action::Refused { statuses, or_closed } => self.refused(statuses, *or_closed),
            Action::Failed(statuses) => self.failed(statuses),
            Action::FailedAloud(statuses) => self.failed_aloud(statuses),
            Action::Reconnect => {
                self.leave();
                self.talk().map(|_| ())
            }
            Action::Barrier(name) => self.world.meet(name),
            Action::Pause(time) => self.world.wait_at_most(*time, |_| None::<()>).map(|_| ()),
            Action::Send(_) | Action::Dribble(..) => {
                let scope = self.scope.clone();
                self.note_method(what);
                self.talk()?.play(what, &scope)
            }
            Action::Close | Action::Reset => {
                let scope = self.scope.clone();
                self.talk()?.play(what, &scope)?;
                self.is_ending = true;
                Ok(())
            }
            _ => {
                let scope = self.scope.clone();
                self.talk()?.play(what, &scope)
            }
        }
    }

    fn leave(&mut self) {
        if let Some(talk) = self.talk.take() {
            self.world.close(talk.wire);
        }
        self.outstanding.clear();
        self.is_ending = false;
        self.tunnel = None;
    }

    fn talk(&mut self) -> Result<&mut Talk, Halt> {
        if self.talk.is_none() {
            let address = self.address();
            let attached = TcpStream::connect(address).and_then(|stream| self.world.attach(stream, &self.party));
            let wire = attached.map_err(|e| Halt::Wrong(format!("can't connect to {address}: {e}")))?;
            self.talk = Some(Talk::new(self.world.clone(), wire));
        }
        self.talk.as_mut().ok_or(Halt::Over)
    }

    fn address(&self) -> SocketAddr {
        match self.target.way {
            Way::Direct => self.scope.origins[0].1,
            Way::Forward | Way::Reverse => self.target.proxy,
        }
    }

    fn ask(&mut self, ask: &Ask) -> Result<(), Halt> {
        if self.is_ending && self.outstanding.is_empty() {
            self.leave();
        }
        let version = ask.message.version.clone().unwrap_or("1.1".into());
        let (host, target) = self.host_and_target(ask);
        let start = format!("{} {target} HTTP/{version}", ask.method);
        let (head, body) = encode(&start, &with_length(ask), &[("Host", host)], &self.scope);
        self.outstanding.push_back((ask.method.clone(), version));
        let body = if ask.message.body_later { Vec::new() } else { body };
        self.talk()?.write(&[head, body].concat())
    }

    fn host_and_target(&self, ask: &Ask) -> (String, String) {
        if ask.method == "CONNECT" {
            let address = self.scope.address(&ask.origin);
            return (address.clone(), ask.target.as_ref().map_or(address, |t| t.render_str(&self.scope)));
        }
        let (host, site) = match &self.tunnel {
            Some(origin) => (self.scope.address(origin), String::new()),
            None => (self.scope.host(&ask.origin), self.scope.site(&ask.origin)),
        };
        if let Some(target) = &ask.target {
            return (host, target.render_str(&self.scope));
        }
        let path = ask.path.render_str(&self.scope);
        let target = match path.as_str() {
            // RFC 9112 section 3.2.4: a request about the whole server has an empty path in absolute form.
            "*" if !site.is_empty() => site,
            "*" => path,
            _ => format!("{site}{}{path}", self.scope.root),
        };
        (host, target)
    }

    /// Raw bytes that look like the start of a request count as one.
    fn note_method(&mut self, what: &Action) {
        let (Action::Send(payloads) | Action::Dribble(_, payloads)) = what else { return };
        let bytes = crate::text::render_payloads(payloads, &self.scope);
        let line = bytes.split(|&b| b == b'\n').find(|l| !l.trim_ascii().is_empty()).unwrap_or_default();
        let line = String::from_utf8_lossy(line).into_owned();
        let mut words = line.split_ascii_whitespace();
        let (method, version) = (words.next().unwrap_or(""), words.last().unwrap_or(""));
        if method.len() > 1 && method.bytes().all(|b| b.is_ascii_uppercase()) {
            let version = version.strip_prefix("HTTP/").unwrap_or("1.1");
            self.outstanding.push_back((method.to_string(), version.to_string()));
        }
    }

    fn next_head(&mut self, wants_interim: bool, what: &str) -> Result<(), Halt> {
        self.finish_last()?;
        let (method, version) = self.outstanding.front().cloned().unwrap_or(("GET".into(), "1.1".into()));
        loop {
            let mut head = self.talk()?.head(what)?;
            head.judge_response(&version);
            let is_interim = (100..200).contains(&head.status()) && head.status() != 101;
            let framing = head.response_framing(&method);
            if is_interim && !wants_interim {
                check::form(&head, None).map_err(Halt::Wrong)?;
                continue;
            }
            if !is_interim {
                self.outstanding.pop_front();
                self.is_ending = ends_connection(&head, &version);
            }
            let is_tunnel = method == "CONNECT" && (200..300).contains(&head.status());
            if is_tunnel {
                self.tunnel = self.scope.origins.first().map(|(name, _)| name.clone());
                self.is_ending = false;
            }
            self.talk()?.incoming = Some(Incoming::new(head, framing));
            return Ok(());
        }
    }

    /// A message of which the script wanted only the head must end before the next begins.
    fn finish_last(&mut self) -> Result<(), Halt> {
        let talk = self.talk()?;
        if talk.incoming.is_some() && !talk.whole_body()? {
            return wrong("the message before this one was cut short");
        }
        Ok(())
    }

    fn got_head(&mut self, statuses: &Statuses, checks: &[Check]) -> Result<(), Halt> {
        let what = format!("an answer with status {}", statuses.show());
        self.next_head(statuses.0.iter().all(|(low, _)| (100..200).contains(low) && *low != 101), &what)?;
        let scope = self.scope.clone();
        let Some(incoming) = &self.talk()?.incoming else { return Ok(()) };
        let head = &incoming.head;
        if !statuses.has(head.status()) {
            return wrong(format!("expected status {}, got `{}`", statuses.show(), head.start));
        }
        check::all(checks, head, None, &scope).map_err(Halt::Wrong)
    }

    fn got(&mut self, statuses: &Statuses, checks: &[Check]) -> Result<(), Halt> {
        let is_lenient = checks.iter().any(|c| matches!(c, Check::Lenient));
        self.got_head(statuses, if is_lenient { &[Check::Lenient] } else { &[] })?;
        let scope = self.scope.clone();
        self.talk()?.judge(checks, &scope)
    }

    fn refused(&mut self, statuses: &Statuses, or_closed: bool) -> Result<(), Halt> {
        if or_closed {
            let talk = self.talk()?;
            talk.fill(&format!("expected a refusal ({}) or the end of the connection", statuses.show()))?;
            if talk.buffer.is_empty() && talk.end.is_some() {
                return Ok(());
            }
        }
        self.got(statuses, &[])?;
        let scope = self.scope.clone();
        self.talk()?.play(&Action::Closed, &scope)
    }

    fn failed(&mut self, statuses: &Statuses) -> Result<(), Halt> {
        self.finish_last()?;
        let talk = self.talk()?;
        let statuses_shown = statuses.show();
        talk.fill(&format!(
            "expected an answer with status {statuses_shown} or the end of the connection, neither came"
        ))?;
        if talk.buffer.is_empty() && talk.end.is_some() {
            return Ok(());
        }
        self.failed_aloud(statuses)
    }

    fn failed_aloud(&mut self, statuses: &Statuses) -> Result<(), Halt> {
        let expected = format!("an answer with status {} or one that breaks off", statuses.show());
        self.finish_last()?;
        self.next_head(false, &expected)?;
        let talk = self.talk()?;
        let is_whole = talk.whole_body()?;
        let Some(incoming) = &talk.incoming else { return Ok(()) };
        check::form(&incoming.head, None).map_err(Halt::Wrong)?;
        if statuses.has(incoming.head.status()) || !is_whole {
            return Ok(());
        }
        let (start, progress) = (&incoming.head.start, incoming.body.progress());
        wrong(format!("expected {expected}, got `{start}` with {progress}, as if it were whole"))
    }
}

/// A request that means to have content says how much, even when it is none (RFC 9110 section 8.6).
fn with_length(ask: &Ask) -> Message {
    let mut message = ask.message.clone();
    let means_content = matches!(ask.method.as_str(), "POST" | "PUT" | "PATCH");
    if means_content && message.body.is_none() && message.chunks.is_none() && !message.body_later {
        message.body = Some(Vec::new());
    }
    message
}

fn ends_connection(head: &Head, version: &str) -> bool {
    let keeps = head.lists("Connection", "keep-alive");
    head.lists("Connection", "close") || (!keeps && (version == "1.0" || head.version() == "1.0"))
}
