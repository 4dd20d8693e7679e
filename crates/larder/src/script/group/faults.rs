//! Processes that can't serve any longer: they are ended, and others take their place.

use super::Group;
use super::member::{FaultyMember, Member, Phase, signal};
use crate::clock;
use crate::config::application::Interface;
use crate::mount::{Closed, Failure, Faulty, Hook, LateLoad, ProcessFault};
use crate::script::descendants::Descendant;
use crate::script::stacks::{self, Frame};
use rustix::process::Signal;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time for a process that hangs to write its stacks into the log.
const STACKS_WITHIN: Duration = Duration::from_millis(100);

/// A process that has not imported its application within this time is told of. It may go on.
const BEGINS_WITHIN: Duration = Duration::from_secs(10);

/// A process that closed a connection or its socket, because it is ending most likely, gets so long to end.
const CLOSED_WITHIN: Duration = Duration::from_millis(100);

/// Why a process is ended.
enum EndReason {
    /// A request goes on although its time is over: in the hook at this place, where that is known.
    Hangs(Option<u16>),
    /// It broke the rules of its connections or of its reports, in this way: a script has written into them, or closed them.
    Broken(&'static str),
}

impl Group {
    /// One of its processes can't serve any longer.
    pub fn end_faulty(&mut self, Faulty { number, fault }: Faulty) {
        let Some(member) = self.members.iter_mut().find(|member| member.number == number) else { return };
        match fault {
            ProcessFault::Hangs(hook) => self.end_for(number, &EndReason::Hangs(hook)),
            ProcessFault::Broken(how) => self.end_for(number, &EndReason::Broken(how)),
            ProcessFault::Closed(what) => member.closed = member.closed.or(Some((Instant::now(), what))),
        }
    }

    /// Ends processes that have closed a connection or their socket, and go on.
    pub fn end_closed(&mut self) {
        // The system closes what a process has open before anybody can know that it ends. One that has ended already is known to have in
        // a moment, when its last messages were read; one that was told to end closes its socket rightly.
        let is_due = |member: &&Member| {
            member.closed.is_some_and(|(at, _)| at.elapsed() >= CLOSED_WITHIN)
                && matches!(member.phase, Phase::Ready(_))
                && !is_ending(member.pid)
        };
        let due = self.members.iter().filter(is_due).filter_map(|member| Some((member.number, member.closed?.1)));
        let due: Vec<(u64, Closed)> = due.collect();
        for (number, closed) in due {
            let how = match closed {
                Closed::Connection => "it closed a connection and did not end",
                Closed::Socket => "it closed its socket and did not end",
            };
            self.end_for(number, &EndReason::Broken(how));
        }
    }

    /// A process said that it can't be loaded, though it served.
    pub(super) fn end_forger(&mut self, number: u64) {
        self.end_for(number, &EndReason::Broken("it said that it can't be loaded, though it served"));
    }

    /// Ends a process; its stacks, in the log, say where it was. Another one takes its place.
    fn end_for(&mut self, number: u64, reason: &EndReason) {
        let Some(member) = self.members.iter_mut().find(|member| member.number == number) else { return };
        let hooks = match &member.phase {
            Phase::Ready(process) => process.hooks.clone(),
            Phase::Draining(_) => None,
            // Workers know none of these.
            Phase::Loading | Phase::Killed => return,
        };
        (member.phase, member.closed) = (Phase::Killed, None);
        let (pid, name) = (member.pid, &self.mount.application.name);
        // The worker whose call was late counts it.
        let is_counted = match reason {
            EndReason::Hangs(hook) => hook.and_then(|place| hooks.as_ref()?.at(place)).is_some(),
            EndReason::Broken(_) => true,
        };
        member.faulty = Some(FaultyMember { hooks, is_counted });
        match reason {
            EndReason::Hangs(_) => {
                let (limit, setting) = match self.mount.application.interface {
                    Interface::Hooks => (self.mount.python.hook_time, "hook_time"),
                    Interface::Wsgi | Interface::Asgi => (self.mount.python.request_time, "request_time"),
                };
                let seconds = limit.as_secs_f64();
                tracing::error!(
                    "{name}[{pid}]: no answer after {seconds} s (`{setting}`); the process is ended, its stacks follow"
                );
                self.state.counts.hung.fetch_add(1, Ordering::Relaxed);
            }
            EndReason::Broken(how) => {
                tracing::error!("{name}[{pid}]: {how}; the process is ended, its stacks follow");
                self.state.counts.broken.fetch_add(1, Ordering::Relaxed);
                let traceback = format!("process {pid} was ended: {how}");
                self.state.note_failure(Failure { traceback, ended: Some(pid), ..Failure::default() });
            }
        }
        self.kill_with_stacks(number);
    }

    /// Has a process write its stacks into the log, and kills it. Others take its place.
    fn kill_with_stacks(&mut self, number: u64) {
        let Some(member) = self.members.iter_mut().find(|member| member.number == number) else { return };
        signal(member.pid, Signal::USR2);
        let end = member.end();
        tokio::task::spawn_local(async move {
            sleep(STACKS_WITHIN).await;
            end();
        });
        self.publish();
        self.fill();
    }

    /// Tells people of processes that import their application for long, with the lines where they are.
    pub(super) fn tell_late_loads(&mut self) {
        let (name, state) = (&self.mount.application.name, &self.state);
        let mut first = None;
        for member in self.members.iter_mut().filter(|member| matches!(member.phase, Phase::Loading)) {
            if member.late.is_none() && member.began.elapsed() >= BEGINS_WITHIN {
                let goes_on = state.condition().of_requests();
                let (pid, seconds) = (member.pid, BEGINS_WITHIN.as_secs());
                tracing::warn!("{name}[{pid}]: it has not begun within {seconds} s, and is imported still; {goes_on}");
                let since = clock::wall().saturating_sub(member.began.elapsed());
                member.late = Some(LateLoad { pid, since, place: String::new() });
                // Before the runtime has said that it writes them, this signal would end the process.
                if stacks::are_written_by(pid) {
                    signal(pid, Signal::USR2);
                }
            }
            first = first.or_else(|| member.late.clone());
        }
        state.note(|report| report.late_load = first);
    }

    /// The stacks of a process that was ended, or is loading for long, have come.
    pub(super) fn was_at(&mut self, number: u64, frames: &[Frame]) {
        let Some(member) = self.members.iter_mut().find(|member| member.number == number) else { return };
        let pid = member.pid;
        if matches!(member.phase, Phase::Loading) {
            // Once, and only where it was asked: a script can write what looks like stacks without an end.
            if let Some(late) = member.late.as_mut().filter(|late| late.place.is_empty())
                && let Some(place) = stacks::place_of(frames, &self.mount.python.folder)
            {
                tracing::warn!("{}[{pid}]: {place}", self.mount.application.name);
                late.place = place;
                self.tell_late_loads();
            }
            return;
        }
        let Some(faulty) = &mut member.faulty else { return };
        let Some(mut place) = stacks::place_of(frames, &self.mount.python.folder) else { return };
        let is_frame_of = |hook: &&Hook, frame: &Frame| {
            hook.place.name == frame.function
                && Path::new(&frame.file).file_name().is_some_and(|it| *it == *hook.place.script)
        };
        let hooks = faulty.hooks.as_deref();
        // The outermost frame is that of the hook that was called.
        let hook = frames.iter().rev().find_map(|frame| hooks?.iter().find(|hook| is_frame_of(hook, frame)));
        if let Some(hook) = hook {
            if !faulty.is_counted {
                count_late(hook);
            }
            place = format!("{place} (hook {})", hook.place);
        }
        faulty.is_counted = true;
        tracing::error!("{}[{pid}]: {place}", self.mount.application.name);
        self.state.was_at(pid, &place);
    }
}

/// Whether a process ends, or has ended. Where the system does not tell, none does.
fn is_ending(pid: u32) -> bool {
    match Descendant::at(pid) {
        Some(process) => !process.has_memory(),
        None => Descendant::at(std::process::id()).is_some(),
    }
}

fn count_late(hook: &Hook) {
    hook.counts.late.fetch_add(1, Ordering::Relaxed);
}
