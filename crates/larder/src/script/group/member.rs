//! One process of a group, from its start to its end.

use crate::mount::{Closed, Hooks, LateLoad, Process, RunningNote};
use crate::script::cgroups::ControlGroup;
use crate::script::descendants::{self, Descendant, pid_of};
use rustix::process::{Signal, kill_process};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// Within this time a request that has a place in a process has reached its socket, so that the process knows of it when it is told
/// to end.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// A process.
pub(super) struct Member {
    pub number: u64,
    pub pid: u32,
    pub socket: PathBuf,
    pub generation: u64,
    pub began: Instant,
    pub began_at: SystemTime,
    /// It began with the files that are kept of its version.
    pub is_of_copy: bool,
    /// Its note of the call that it runs.
    pub running: Option<Arc<RunningNote>>,
    pub phase: Phase,
    /// It has been loading for so long that people were told, and the line where it was.
    pub late: Option<LateLoad>,
    /// It was ended because it hung or was broken.
    pub faulty: Option<FaultyMember>,
    /// When it was seen that it has closed something, and a word for that.
    pub closed: Option<(Instant, Closed)>,
    /// The processes that it had started when they were looked for last.
    pub descendants: Vec<Descendant>,
    pub control_group: Option<ControlGroup>,
    /// It is to end, but requests that have a place in it may still be on their way to its socket: it is told when they are over, or
    /// at this time.
    pub to_be_told: Option<(Arc<Process>, Instant)>,
}

/// A process that was ended because it hung or was broken.
pub(super) struct FaultyMember {
    /// The hooks that it ran.
    pub hooks: Option<Arc<Hooks>>,
    /// The one of them that was late is counted, or none was.
    pub is_counted: bool,
}

pub(super) enum Phase {
    /// It imports the application.
    Loading,
    /// It can serve.
    Ready(Arc<Process>),
    /// It ends the requests that it has, until then.
    Draining(Instant),
    /// It was killed.
    Killed,
}

impl Member {
    /// Whether it serves or will serve.
    pub fn is_of_use(&self) -> bool {
        matches!(self.phase, Phase::Loading | Phase::Ready(_))
    }

    /// Lets it end the requests that it has, until this time.
    pub fn drain(&mut self, until: Instant) {
        let phase = match self.is_of_use() {
            true => std::mem::replace(&mut self.phase, Phase::Draining(until)),
            false => return,
        };
        match phase {
            Phase::Ready(process) => {
                self.to_be_told = Some((process, Instant::now() + TOLD_WITHIN));
                self.tell_to_end();
            }
            _ => signal(self.pid, Signal::TERM),
        }
    }

    /// Tells it to end, where the requests that have a place in it are over, or it is time.
    pub fn tell_to_end(&mut self) {
        let is_due = |(process, at): &mut (Arc<Process>, Instant)| process.under_way() == 0 || Instant::now() >= *at;
        if self.to_be_told.take_if(is_due).is_some() && matches!(self.phase, Phase::Draining(_)) {
            signal(self.pid, Signal::TERM);
        }
    }

    /// Kills it with all that it has started.
    pub fn kill(&mut self) {
        if !matches!(self.phase, Phase::Killed) {
            self.phase = Phase::Killed;
            self.end()();
        }
    }

    /// The way to kill it with all that it has started: at once by its control group; without one by a search, which may take a moment
    /// and has a thread of its own.
    pub fn end(&mut self) -> impl FnOnce() + use<> {
        let (pid, known) = (self.pid, std::mem::take(&mut self.descendants));
        let group = self.control_group.as_ref().map(ControlGroup::killer);
        move || {
            if !group.is_some_and(|kill| kill()) {
                tokio::task::spawn_blocking(move || descendants::kill(Some(pid), &known));
            }
        }
    }
}

/// Sends a process a signal.
pub(super) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = pid_of(pid) {
        let _ = kill_process(pid, signal);
    }
}
