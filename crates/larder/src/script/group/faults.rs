//! Processes that can't serve any longer: they are ended, and others take their place.

use super::Group;
use super::member::{HungMember, Member, Phase, signal};
use crate::clock;
use crate::config::application::Interface;
use crate::mount::{Failure, Faulty, Hook, LateLoad, ProcessFault};
use crate::script::descendants::Descendant;
use crate::script::stacks::{self, Frame};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time for a process that hangs to write its stacks into the log.
const STACKS_WITHIN: Duration = Duration::from_millis(100);

/// A process that has not imported its application within this time is told of. It may go on.
const BEGINS_WITHIN: Duration = Duration::from_secs(10);

/// A process that closed a connection, because it is ending most likely, gets so long to end.
const CLOSED_WITHIN: Duration = Duration::from_millis(100);

impl Group {
    /// One of its processes can't serve any longer.
    pub fn end_faulty(&mut self, Faulty { number, fault }: Faulty) {
        let Some(member) = self.members.iter_mut().find(|member| member.number == number) else { return };
        match fault {
            ProcessFault::Hangs(hook) => self.end_hung(number, hook),
            ProcessFault::Broken(how) => self.end_broken(number, how),
            ProcessFault::Closed => member.closed_at = member.closed_at.or(Some(Instant::now())),
        }
    }

    /// Ends processes that have closed a connection and go on.
    pub fn end_closed(&mut self) {
        // One that has ended already is known to have ended in a moment, when its last messages were read.
        let is_due = |member: &&Member| {
            member.closed_at.is_some_and(|at| at.elapsed() >= CLOSED_WITHIN)
                && matches!(member.phase, Phase::Ready(_))
                && Descendant::at(member.pid).is_some()
        };
        let due: Vec<u64> = self.members.iter().filter(is_due).map(|member| member.number).collect();
        due.into_iter().for_each(|number| self.end_broken(number, "it closed a connection and did not end"));
    }

    /// A process broke the rules of its connections: a script has written into them, or closed them. The stacks say where it was.
    fn end_broken(&mut self, number: u64, how: &str) {
        let Some(member) = self.members.iter_mut().find(|member| member.number == number) else { return };
        member.closed_at = None;
        let hooks = match &member.phase {
            Phase::Ready(process) => process.hooks.clone(),
            Phase::Draining(_) => return member.kill(),
            Phase::Loading | Phase::Killed => return,
        };
        member.hung = Some(HungMember { hooks, is_counted: true });
        member.phase = Phase::Killed;
        let (pid, name) = (member.pid, &self.mount.application.name);
        tracing::error!("{name}[{pid}]: {how}; the process is ended, another one takes its place, its stacks follow");
        self.state.counts.broken.fetch_add(1, Ordering::Relaxed);
        let traceback = format!("process {pid} was ended: {how}");
        self.state.note_failure(Failure { traceback, ended: Some(pid), ..Failure::default() });
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

    /// One of its processes hangs, in this hook where that is known: it writes its stacks into the log and is killed.
    fn end_hung(&mut self, number: u64, hook: Option<u16>) {
        let Some(member) = self.members.iter_mut().find(|member| member.number == number) else { return };
        let hooks = match std::mem::replace(&mut member.phase, Phase::Killed) {
            Phase::Killed => return,
            Phase::Ready(process) => process.hooks.clone(),
            Phase::Loading | Phase::Draining(_) => None,
        };
        let known = hook.and_then(|place| hooks.as_ref()?.at(place));
        // The worker whose call it was counts it.
        member.hung = Some(HungMember { is_counted: known.is_some(), hooks });
        let (pid, name) = (member.pid, &self.mount.application.name);
        let (limit, setting) = match self.mount.application.interface {
            Interface::Hooks => (self.mount.python.hook_time, "hook_time"),
            Interface::Wsgi | Interface::Asgi => (self.mount.python.request_time, "request_time"),
        };
        tracing::error!(
            "{name}[{pid}]: no answer after {} s (`{setting}`), or its socket is closed; the process is ended, its stacks follow",
            limit.as_secs_f64()
        );
        self.state.counts.hung.fetch_add(1, Ordering::Relaxed);
        self.kill_with_stacks(number);
    }

    /// Tells people of processes that import their application for long, with the lines where they are.
    pub(super) fn tell_late_loads(&mut self) {
        let (name, state) = (&self.mount.application.name, &self.state);
        let is_loading = |member: &&mut Member| matches!(member.phase, Phase::Loading);
        let mut loading = BTreeSet::new();
        for member in self.members.iter_mut().filter(is_loading) {
            loading.insert(member.pid);
            if member.is_late || member.began.elapsed() < BEGINS_WITHIN {
                continue;
            }
            member.is_late = true;
            let goes_on = if state.serves() { "the version before goes on" } else { "requests wait for it" };
            let (pid, seconds) = (member.pid, BEGINS_WITHIN.as_secs());
            tracing::warn!("{name}[{pid}]: it has not begun within {seconds} s, and is imported still; {goes_on}");
            let since = clock::wall().saturating_sub(member.began.elapsed());
            state.note(|report| report.late_load = Some(LateLoad { pid, since, place: String::new() }));
            // Before the runtime has said that it writes them, this signal would end the process.
            if stacks::are_written_by(pid) {
                signal(pid, Signal::USR2);
            }
        }
        state.note(|report| drop(report.late_load.take_if(|late| !loading.contains(&late.pid))));
    }

    /// The stacks of a process that hung, or is loading for long, have come.
    pub(super) fn was_at(&mut self, number: u64, frames: &[Frame]) {
        let Some(member) = self.members.iter_mut().find(|member| member.number == number) else { return };
        let pid = member.pid;
        if let (Phase::Loading, Some(place)) = (&member.phase, stacks::place_of(frames, &self.mount.python.folder)) {
            tracing::warn!("{}[{pid}]: {place}", self.mount.application.name);
            return self.state.note(|report| {
                if let Some(late) = report.late_load.as_mut().filter(|late| late.pid == pid) {
                    late.place = place;
                }
            });
        }
        let Some(hung) = &mut member.hung else { return };
        let Some(mut place) = stacks::place_of(frames, &self.mount.python.folder) else { return };
        let is_frame_of = |hook: &&Hook, frame: &Frame| {
            hook.place.name == frame.function
                && Path::new(&frame.file).file_name().is_some_and(|it| *it == *hook.place.script)
        };
        let hooks = hung.hooks.as_deref();
        // The outermost frame is that of the hook that was called.
        let hook = frames.iter().rev().find_map(|frame| hooks?.iter().find(|hook| is_frame_of(hook, frame)));
        if let Some(hook) = hook {
            if !hung.is_counted {
                count_late(hook);
            }
            place = format!("{place} (hook {})", hook.place);
        }
        hung.is_counted = true;
        tracing::error!("{}[{pid}]: {place}", self.mount.application.name);
        self.state.was_at(pid, &place);
    }
}

fn count_late(hook: &Hook) {
    hook.counts.late.fetch_add(1, Ordering::Relaxed);
}
