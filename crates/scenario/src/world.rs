//! The state that all parties of one play share: connections and what came on them, barriers, the transcript,
//! and the verdict. One lock and one bell: a party waits for a condition on this state, never for a time.

use crate::failure::readable;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a party waits for what it expects.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a reader looks whether its connection is to be given up.
const READER_TURN: Duration = Duration::from_millis(20);

/// Bytes of one event that the transcript shows.
const SHOWN_BYTES: usize = 1600;

/// Why a party stops.
#[derive(Debug)]
pub enum Halt {
    /// Its step failed: what was expected, what came.
    Wrong(String),
    /// The play is over, or another party failed first.
    Over,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Closed,
    Reset,
}

/// One TCP connection.
#[derive(Debug)]
pub struct Wire {
    pub party: String,
    pub input: Vec<u8>,
    pub end: Option<End>,
    label: String,
    stream: Option<Arc<TcpStream>>,
    is_paused: bool,
    is_read: bool,
}

/// All that changes during a play.
#[derive(Debug, Default)]
pub struct State {
    pub wires: Vec<Wire>,
    pub requests: HashMap<String, usize>,
    pub finished: Vec<String>,
    /// Origins that do not listen any more.
    pub deaf: Vec<String>,
    pub is_over: bool,
    pub verdict: Option<Verdict>,
    down: Vec<String>,
    barriers: HashMap<String, Barrier>,
    transcript: Vec<String>,
}

impl State {
    /// Whether all parties came to a barrier.
    pub fn is_met(&self, name: &str) -> bool {
        self.barriers.get(name).is_none_or(|b| b.arrived >= b.needed)
    }
}

/// The first thing that went wrong.
#[derive(Debug, Clone)]
pub struct Verdict {
    pub party: String,
    pub line: usize,
    pub step: String,
    pub what: String,
}

#[derive(Debug)]
struct Barrier {
    needed: usize,
    arrived: usize,
}

/// The shared state with its lock and bell.
#[derive(Debug)]
pub struct World {
    state: Mutex<State>,
    bell: Condvar,
    begun: Instant,
    limit: Duration,
}

impl World {
    /// A world in which nothing happened; `barriers` says how many parties meet at each.
    pub fn new(limit: Duration, barriers: HashMap<String, usize>) -> World {
        let barriers = barriers.into_iter().map(|(name, needed)| (name, Barrier { needed, arrived: 0 })).collect();
        let state = State { barriers, ..State::default() };
        World { state: Mutex::new(state), bell: Condvar::new(), begun: Instant::now(), limit }
    }

    /// The state, locked. A party that panicked has failed already; its state is still whole.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Wakes everyone who waits.
    pub fn ring(&self) {
        self.bell.notify_all();
    }

    /// Waits until `ready` gives something; `missing` says what did not come when it was not in time.
    pub fn wait<T>(&self, missing: &str, ready: impl FnMut(&mut State) -> Option<T>) -> Result<T, Halt> {
        match self.wait_until(Instant::now() + PATIENCE, ready)? {
            Some(found) => Ok(found),
            None if self.begun.elapsed() >= self.limit => {
                Err(Halt::Wrong(format!("{missing} (the script's limit of {:?} is over)", self.limit)))
            }
            None => Err(Halt::Wrong(format!("{missing} within {PATIENCE:?}"))),
        }
    }

    /// Waits at most `time`; `Ok(None)` when nothing came.
    pub fn wait_at_most<T>(
        &self,
        time: Duration,
        ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<Option<T>, Halt> {
        self.wait_until(Instant::now() + time, ready)
    }

    /// Waits until `ready` gives something, or the script's time is over.
    pub fn wait_for_end<T>(&self, ready: impl FnMut(&mut State) -> Option<T>) -> Result<Option<T>, Halt> {
        self.wait_until(self.begun + self.limit, ready)
    }

    fn wait_until<T>(&self, until: Instant, mut ready: impl FnMut(&mut State) -> Option<T>) -> Result<Option<T>, Halt> {
        let until = until.min(self.begun + self.limit);
        let mut state = self.lock();
        loop {
            if state.is_over || state.verdict.is_some() {
                return Err(Halt::Over);
            }
            if let Some(found) = ready(&mut state) {
                return Ok(Some(found));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            state = self.bell.wait_timeout(state, left).map_or_else(|poisoned| poisoned.into_inner().0, |(s, _)| s);
        }
    }

    /// Records the first failure; later ones are its consequences.
    pub fn fail(&self, verdict: Verdict) {
        self.lock().verdict.get_or_insert(verdict);
        self.ring();
    }

    /// Ends the play: everyone stops waiting, every connection is closed.
    pub fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        for wire in &mut state.wires {
            if let Some(stream) = wire.stream.take() {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        drop(state);
        self.ring();
    }

    /// Adds a line to the transcript.
    pub fn note(&self, who: &str, what: &str) {
        let at = self.begun.elapsed();
        self.lock().transcript.push(format!("{:>7.1} ms  {who:<14} {what}", at.as_secs_f64() * 1000.0));
    }

    /// The transcript as text.
    pub fn transcript(&self) -> String {
        self.lock().transcript.join("\n")
    }

    /// Meets the other parties at a barrier.
    pub fn meet(&self, name: &str) -> Result<(), Halt> {
        self.arrive(name);
        self.wait(&World::nobody_at(name), |state| state.is_met(name).then_some(()))
    }

    /// Counts one more party at a barrier.
    pub fn arrive(&self, name: &str) {
        if let Some(barrier) = self.lock().barriers.get_mut(name) {
            barrier.arrived += 1;
        }
        self.ring();
    }

    /// The message when a party waits at a barrier in vain.
    pub fn nobody_at(name: &str) -> String {
        format!("not everyone came to barrier `{name}`")
    }

    /// Whether an origin was taken down.
    pub fn is_down(&self, party: &str) -> bool {
        let state = self.lock();
        state.is_over || state.down.iter().any(|p| p == party)
    }

    /// Marks an origin as down and gives up its connections.
    pub fn take_down(&self, party: &str) {
        let mut state = self.lock();
        state.down.push(party.to_string());
        for wire in state.wires.iter_mut().filter(|w| w.party == party) {
            if let Some(stream) = wire.stream.take() {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// Takes a connection in: a thread reads it from now on. Gives its number.
    pub fn attach(self: &Arc<World>, stream: TcpStream, party: &str) -> std::io::Result<usize> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READER_TURN))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let stream = Arc::new(stream);
        let mut state = self.lock();
        let id = state.wires.len();
        let number = state.wires.iter().filter(|w| w.party == party).count() + 1;
        let label = format!("{party}/{number}");
        let wire = Wire {
            party: party.to_string(),
            label: label.clone(),
            stream: Some(stream.clone()),
            input: Vec::new(),
            end: None,
            is_paused: false,
            is_read: true,
        };
        state.wires.push(wire);
        drop(state);
        self.note(&label, "connection made");
        let world = self.clone();
        std::thread::spawn(move || world.read(id, &label, stream));
        Ok(id)
    }

    fn read(&self, id: usize, label: &str, stream: Arc<TcpStream>) {
        let mut buffer = vec![0; 64 * 1024];
        let end = loop {
            let (is_given_up, is_paused) = {
                let state = self.lock();
                (state.wires[id].stream.is_none(), state.wires[id].is_paused)
            };
            if is_given_up {
                break End::Closed;
            }
            if is_paused {
                std::thread::sleep(READER_TURN);
                continue;
            }
            match (&*stream).read(&mut buffer) {
                Ok(0) => break End::Closed,
                Ok(count) => self.came(id, label, &buffer[..count]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
                Err(_) => break End::Reset,
            }
        };
        drop(stream);
        self.note(label, if end == End::Reset { "<  reset" } else { "<  end" });
        let mut state = self.lock();
        state.wires[id].end.get_or_insert(end);
        state.wires[id].is_read = false;
        drop(state);
        self.ring();
    }

    fn came(&self, id: usize, label: &str, bytes: &[u8]) {
        self.note(label, &format!("<  {}", readable(bytes, SHOWN_BYTES)));
        self.lock().wires[id].input.extend_from_slice(bytes);
        self.ring();
    }

    /// Writes bytes one by one with a pause after each; the transcript shows them as one.
    pub fn dribble(&self, id: usize, bytes: &[u8], time: Duration) -> Result<(), Halt> {
        let label = self.lock().wires[id].label.clone();
        self.note(&label, &format!(" > byte by byte: {}", readable(bytes, SHOWN_BYTES)));
        for byte in bytes {
            self.put(id, std::slice::from_ref(byte))?;
            self.wait_at_most(time, |_| None::<()>)?;
        }
        Ok(())
    }

    /// Writes to a connection. That the other side has gone is no failure here: what it said last will tell.
    pub fn write(&self, id: usize, bytes: &[u8]) -> Result<(), Halt> {
        let label = self.lock().wires[id].label.clone();
        self.note(&label, &format!(" > {}", readable(bytes, SHOWN_BYTES)));
        self.put(id, bytes)
    }

    fn put(&self, id: usize, bytes: &[u8]) -> Result<(), Halt> {
        let (stream, label) = {
            let state = self.lock();
            (state.wires[id].stream.clone(), state.wires[id].label.clone())
        };
        let Some(stream) = stream else { return Ok(()) };
        match (&*stream).write_all(bytes) {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(Halt::Wrong(format!("the proxy did not take these bytes within {PATIENCE:?}")))
            }
            Err(e) => {
                self.note(&label, &format!(" > not taken: {e}"));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Closes a connection, orderly.
    pub fn close(&self, id: usize) {
        let mut state = self.lock();
        if let Some(stream) = state.wires[id].stream.take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let label = state.wires[id].label.clone();
        drop(state);
        self.note(&label, " > close");
        self.ring();
    }

    /// Closes the sending direction.
    pub fn half_close(&self, id: usize) {
        if let Some(stream) = &self.lock().wires[id].stream {
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    /// Closes a connection with a reset: its last owner drops it with data unsent on purpose.
    pub fn reset(&self, id: usize) -> Result<(), Halt> {
        let (stream, label) = {
            let mut state = self.lock();
            (state.wires[id].stream.take(), state.wires[id].label.clone())
        };
        if let Some(stream) = &stream {
            let _ = socket2::SockRef::from(&**stream).set_linger(Some(Duration::ZERO));
        }
        self.note(&label, " > reset");
        self.wait("the connection could not be reset", |state| (!state.wires[id].is_read).then_some(()))?;
        drop(stream);
        Ok(())
    }

    /// Stops or restarts the reading of a connection.
    pub fn set_reading(&self, id: usize, on: bool) {
        self.lock().wires[id].is_paused = !on;
    }
}
