//! One connection as its party sees it: what came and was not used yet, the message under way, and the steps that
//! are the same for clients and origins.

use crate::check;
use crate::failure::readable;
use crate::message::{Body, Framing, Head};
use crate::script::{Action, Check, Message};
use crate::text::{Scope, Text, render_payloads};
use crate::world::{End, Halt, World};
use std::sync::Arc;
use std::time::Duration;

/// A connection in the hands of a party.
#[derive(Debug)]
pub struct Talk {
    pub world: Arc<World>,
    pub wire: usize,
    pub buffer: Vec<u8>,
    pub end: Option<End>,
    pub incoming: Option<Incoming>,
}

/// A message of which at least the head came.
#[derive(Debug)]
pub struct Incoming {
    pub head: Head,
    pub body: Body,
    /// Body bytes that `piece` steps have looked at.
    seen: usize,
}

impl Incoming {
    pub fn new(head: Head, framing: Framing) -> Incoming {
        Incoming { head, body: Body::new(framing), seen: 0 }
    }
}

impl Talk {
    pub fn new(world: Arc<World>, wire: usize) -> Talk {
        Talk { world, wire, buffer: Vec::new(), end: None, incoming: None }
    }

    /// Takes what has come, without waiting; true when there was something new.
    pub fn take(&mut self) -> bool {
        let mut state = self.world.lock();
        let wire = &mut state.wires[self.wire];
        let is_new = !wire.input.is_empty() || (wire.end.is_some() && self.end.is_none());
        self.buffer.append(&mut wire.input);
        self.end = wire.end;
        is_new
    }

    /// Waits for more bytes or the end; `Ok(false)` when it has ended already.
    pub fn fill(&mut self, missing: &str) -> Result<bool, Halt> {
        if self.take() {
            return Ok(true);
        }
        if self.end.is_some() {
            return Ok(false);
        }
        let wire = self.wire;
        self.world.wait(missing, |state| {
            let wire = &state.wires[wire];
            (!wire.input.is_empty() || wire.end.is_some()).then_some(())
        })?;
        self.take();
        Ok(true)
    }

    pub fn write(&self, bytes: &[u8]) -> Result<(), Halt> {
        self.world.write(self.wire, bytes)
    }

    /// The next head on this connection.
    pub fn head(&mut self, what: &str) -> Result<Head, Halt> {
        loop {
            if let Some(head) = Head::take(&mut self.buffer) {
                return Ok(head);
            }
            if !self.fill(&format!("expected {what}, none came{}", self.so_far()))? {
                let end = if self.end == Some(End::Reset) { "was reset" } else { "was closed" };
                return wrong(format!("expected {what}, but the connection {end}{}", self.so_far()));
            }
        }
    }

    fn so_far(&self) -> String {
        if self.buffer.is_empty() {
            return String::new();
        }
        format!(" (got `{}` so far)", readable(&self.buffer, 200))
    }

    /// Reads the body under way to its end; tells whether the end was proper.
    pub fn whole_body(&mut self) -> Result<bool, Halt> {
        self.body_until(|incoming| incoming.body.is_done())
    }

    fn body_until(&mut self, enough: impl Fn(&Incoming) -> bool) -> Result<bool, Halt> {
        let Some(mut incoming) = self.incoming.take() else {
            return wrong("there is no message under way: this step comes after `got-head` or `expect … body later`");
        };
        let result = loop {
            incoming.body.feed(&mut self.buffer);
            if enough(&incoming) {
                break Ok(true);
            }
            match self.fill(&format!("the message did not go on: {}", incoming.body.progress())) {
                Ok(true) => {}
                Ok(false) => break Ok(self.end == Some(End::Closed) && incoming.body.end() && enough(&incoming)),
                Err(halt) => break Err(halt),
            }
        };
        self.incoming = Some(incoming);
        result
    }

    /// The message under way, whole, judged by these checks.
    pub fn judge(&mut self, checks: &[Check], scope: &Scope) -> Result<(), Halt> {
        let is_whole = self.whole_body()?;
        let Some(incoming) = &self.incoming else { return Ok(()) };
        if !is_whole {
            return wrong(format!("the message was cut short after {}", incoming.body.progress()));
        }
        check::all(checks, &incoming.head, Some(&incoming.body), scope).map_err(Halt::Wrong)
    }

    /// Plays a step that is the same for both sides.
    pub fn play(&mut self, step: &Action, scope: &Scope) -> Result<(), Halt> {
        match step {
            Action::Send(payloads) => self.write(&render_payloads(payloads, scope)),
            Action::Dribble(time, payloads) => self.world.dribble(self.wire, &render_payloads(payloads, scope), *time),
            Action::Chunk(payloads) => self.write(&chunk(&render_payloads(payloads, scope))),
            Action::LastChunk(trailers) => self.write(&last_chunk(trailers, scope)),
            Action::Piece(payloads) => self.piece(&render_payloads(payloads, scope)),
            Action::Rest(payloads, checks) => {
                let expected = payloads.as_ref().map(|p| render_payloads(p, scope));
                self.rest(expected.as_deref(), checks, scope)
            }
            Action::Cut => self.cut(),
            Action::Receive(payloads) => self.receive(&render_payloads(payloads, scope)),
            Action::Closed => self.closed(),
            Action::Quiet(time) => self.quiet(*time),
            Action::Close => {
                self.world.close(self.wire);
                Ok(())
            }
            Action::Reset => self.world.reset(self.wire),
            Action::HalfClose => {
                self.world.half_close(self.wire);
                Ok(())
            }
            Action::Reading(on) => {
                self.world.set_reading(self.wire, *on);
                Ok(())
            }
            _ => wrong("this step needs no connection"),
        }
    }

    fn piece(&mut self, expected: &[u8]) -> Result<(), Halt> {
        let enough = |incoming: &Incoming| incoming.body.bytes.len() >= incoming.seen + expected.len();
        let came = self.body_until(enough)?;
        let Some(incoming) = &mut self.incoming else { return Ok(()) };
        if !came {
            return wrong(format!("the message ended after {}", incoming.body.progress()));
        }
        let from = incoming.seen;
        incoming.seen += expected.len();
        check::bytes(expected, &incoming.body.bytes[from..incoming.seen]).map_err(Halt::Wrong)
    }

    fn rest(&mut self, expected: Option<&[u8]>, checks: &[Check], scope: &Scope) -> Result<(), Halt> {
        self.judge(checks, scope)?;
        match (&self.incoming, expected) {
            (Some(incoming), Some(expected)) => {
                check::bytes(expected, &incoming.body.bytes[incoming.seen..]).map_err(Halt::Wrong)
            }
            _ => Ok(()),
        }
    }

    fn cut(&mut self) -> Result<(), Halt> {
        let is_whole = self.whole_body()?;
        match &self.incoming {
            Some(incoming) if is_whole => wrong(format!(
                "expected the message to be cut short, but it ended as if it were whole: {}, framing {}",
                incoming.body.progress(),
                incoming.body.framing().as_str()
            )),
            _ => Ok(()),
        }
    }

    fn receive(&mut self, expected: &[u8]) -> Result<(), Halt> {
        while self.buffer.len() < expected.len() {
            let missing = format!("expected `{}`{}", readable(expected, 200), self.so_far());
            if !self.fill(&missing)? {
                return wrong(format!("{missing}, but the connection ended"));
            }
        }
        let got: Vec<u8> = self.buffer.drain(..expected.len()).collect();
        check::bytes(expected, &got).map_err(Halt::Wrong)
    }

    fn closed(&mut self) -> Result<(), Halt> {
        while self.buffer.is_empty() {
            if !self.fill("expected the proxy to close the connection, it did not")? {
                return Ok(());
            }
        }
        wrong(format!("expected the proxy to close the connection, got `{}`", readable(&self.buffer, 400)))
    }

    fn quiet(&mut self, time: Duration) -> Result<(), Halt> {
        let wire = self.wire;
        let came = self.world.wait_at_most(time, |state| {
            let wire = &state.wires[wire];
            (!wire.input.is_empty() || wire.end.is_some()).then_some(())
        })?;
        self.take();
        if came.is_none() && self.buffer.is_empty() {
            return Ok(());
        }
        match self.end {
            Some(_) => wrong("expected the connection to stay open and quiet, but it ended"),
            None => wrong(format!("expected no more bytes, got `{}`", readable(&self.buffer, 400))),
        }
    }
}

/// A step's failure.
pub fn wrong<T>(what: impl Into<String>) -> Result<T, Halt> {
    Err(Halt::Wrong(what.into()))
}

/// A message as bytes: its head with the fields in `automatic` that the script neither wrote nor forbade, its body.
pub fn encode(start: &str, message: &Message, automatic: &[(&str, String)], scope: &Scope) -> (Vec<u8>, Vec<u8>) {
    let mut head = start.as_bytes().to_vec();
    let mut line = |name: &[u8], value: &[u8]| head.extend([b"\r\n", name, b": ", value].concat());
    let written: Vec<(Vec<u8>, Vec<u8>)> =
        message.fields.iter().map(|(n, v)| (n.render(scope), v.render(scope))).collect();
    let names = |name: &str| written.iter().any(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()));
    let forbidden = |name: &str| message.without.iter().any(|w| w.eq_ignore_ascii_case(name));
    for (name, value) in automatic.iter().filter(|(n, _)| !names(n) && !forbidden(n)) {
        line(name.as_bytes(), value.as_bytes());
    }
    for (name, value) in &written {
        line(name, value);
    }
    let (framing, body) = body(message, scope);
    let is_framed = names("Content-Length") || names("Transfer-Encoding");
    match framing {
        Some((name, value)) if !is_framed && !forbidden(name) => line(name.as_bytes(), value.as_bytes()),
        _ => {}
    }
    head.extend(b"\r\n\r\n");
    (head, body)
}

fn body(message: &Message, scope: &Scope) -> (Option<(&'static str, String)>, Vec<u8>) {
    if let Some(chunks) = &message.chunks {
        let mut bytes: Vec<u8> =
            chunks.iter().flat_map(|c| chunk(&render_payloads(std::slice::from_ref(&c[0]), scope))).collect();
        bytes.extend(last_chunk(&message.trailers, scope));
        return (Some(("Transfer-Encoding", "chunked".into())), bytes);
    }
    let Some(payloads) = &message.body else { return (None, Vec::new()) };
    let bytes = render_payloads(payloads, scope);
    let framing = (!message.until_close).then(|| ("Content-Length", bytes.len().to_string()));
    (framing, bytes)
}

fn chunk(content: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", content.len()).as_bytes(), content, b"\r\n"].concat()
}

fn last_chunk(trailers: &[(Text, Text)], scope: &Scope) -> Vec<u8> {
    let mut bytes = b"0\r\n".to_vec();
    for (name, value) in trailers {
        bytes.extend([&name.render(scope)[..], b": ", &value.render(scope), b"\r\n"].concat());
    }
    bytes.extend(b"\r\n");
    bytes
}
