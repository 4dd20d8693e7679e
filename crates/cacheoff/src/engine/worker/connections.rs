//! The connections of robots: which request gets which one, and how many there may be.

use super::{ASK, PAUSE, TimerEvent, Worker, desk};
use crate::engine::slots::Slot;
use crate::journal::Journal;
use crate::ledger::{Side, Trouble};
use crate::robot::{Ask, Company, Job, Kindred, Wish, robot_address, trouble_of};
use crate::wire::Xact;
use rustls::ClientConfig;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

impl Worker {
    /// Gives the robot's waiting requests the connections it may have.
    ///
    /// A connection that fails at once sends its robot here again. The loop goes on with what is left then: thousands of
    /// such connections in a row must not be thousands of calls within each other.
    pub(super) fn dispatch(&mut self, robot: u32) {
        if self.dispatching == Some(robot) {
            return;
        }
        let before = self.dispatching.replace(robot);
        match self.settings.robots.streams {
            None => self.dispatch_all(robot),
            Some(_) => self.dispatch_streams(robot),
        }
        self.dispatching = before;
    }

    fn dispatch_all(&mut self, robot: u32) {
        loop {
            let found = &mut self.crowd.robots[robot as usize];
            if found.rests_until > self.now {
                return;
            }
            let Some(wish) = found.queue.front_mut() else { return };
            let end = self.settings.route.end(wish.name.server);
            let reuse = found.idle.iter().rposition(|(leads, _)| *leads == end);
            let follows = self.settings.robots.pipeline > 1 && wish.kind.is_repeatable() && reuse.is_none();
            if follows && let Some(slot) = self.with_room(robot, end) {
                let Some(wish) = self.crowd.robots[robot as usize].queue.pop_front() else { return };
                let job = self.job(wish);
                self.follow(slot, job);
                continue;
            }
            let found = &mut self.crowd.robots[robot as usize];
            if reuse.is_none() && found.open >= self.settings.robots.connections_max {
                if self.close_idle_of(robot as usize) {
                    continue;
                }
                if let Some(wish) = self.crowd.robots[robot as usize].queue.front_mut() {
                    wish.waited = true;
                }
                return;
            }
            if reuse.is_none() && self.asks.len() >= self.connections_max {
                if self.close_idle(robot) {
                    continue;
                }
                return self.has_no_files(robot);
            }
            let found = &mut self.crowd.robots[robot as usize];
            let Some(wish) = found.queue.pop_front() else { return };
            let idle = reuse.map(|place| found.idle.remove(place).1);
            let job = self.job(wish);
            match idle {
                Some(slot) => self.reuse(slot, job),
                None => self.connect(robot, job),
            }
        }
    }

    /// Closes an idle connection, of this robot before those of others, since there are as many as the limit of open files allows.
    pub(super) fn close_idle(&mut self, robot: u32) -> bool {
        let all = self.crowd.robots.len();
        (0..all).any(|step| self.close_idle_of((robot as usize + step) % all))
    }

    /// Closes the oldest idle connection of a robot, if it has one.
    pub(super) fn close_idle_of(&mut self, robot: usize) -> bool {
        let found = &mut self.crowd.robots[robot];
        if !found.idle.is_empty() {
            let (_, oldest) = found.idle.remove(0);
            self.close(oldest);
            return true;
        }
        let is_idle = |slot: &Slot| self.links.at(*slot).is_some_and(|link| link.is_idle());
        let Some(oldest) = found.links.iter().copied().find(is_idle) else { return false };
        self.forget_link(oldest, false);
        true
    }

    /// A connection of a robot on which a request may be sent behind others.
    fn with_room(&mut self, robot: u32, end: SocketAddr) -> Option<Slot> {
        let (busy, depth) = (&mut self.crowd.robots[robot as usize].busy, self.settings.robots.pipeline);
        busy.retain(|slot| self.asks.at(*slot).is_some_and(|ask| ask.is_busy()));
        busy.iter().copied().find(|slot| self.asks.at(*slot).is_some_and(|ask| ask.end == end && ask.has_room(depth)))
    }

    /// Notes that a connection carries requests.
    fn carries(&mut self, robot: u32, slot: Slot) {
        let busy = &mut self.crowd.robots[robot as usize].busy;
        if self.settings.robots.pipeline > 1 && !busy.contains(&slot) {
            busy.push(slot);
        }
    }

    /// A request leaves the queue.
    pub(super) fn job(&mut self, mut wish: Wish) -> Box<Job> {
        self.crowd.age(&self.settings, &mut wish, self.clock.unix);
        let object = wish.name.fingerprint();
        let purges = wish.kind == Kindred::Purge;
        let company = if purges { Company::default() } else { self.crowd.pending.ask(object) };
        let first = self.crowd.pending.is_first(object);
        let late = (!wish.waited && wish.tries == 0).then(|| self.now.saturating_sub(wish.intended));
        self.recorder.sent(wish.repeat, wish.name.is_private(), late);
        self.xacts += 1;
        let number = Journal::number(self.number, self.xacts);
        self.journal.open(number, wish.kind == Kindred::Basic && !wish.client.logged_in);
        let mut job = Job::new(wish, Xact { tag: self.settings.law.tag, number }, company, first, self.now);
        job.purged = self.crowd.pending.purged_at(object);
        // An unsafe request makes stored answers of its target invalid (RFC 9111 section 4.4).
        if purges || job.wish.kind.upload_bytes().is_some() {
            self.crowd.pending.purge(object, self.now);
        }
        job
    }

    fn reuse(&mut self, slot: Slot, job: Box<Job>) {
        if let Some(robot) = self.sent_on(slot) {
            self.carries(robot, slot);
            self.ask(slot, |ask, desk| ask.begin(job, desk));
        }
    }

    /// Sends a request behind others.
    fn follow(&mut self, slot: Slot, job: Box<Job>) {
        if self.sent_on(slot).is_some() {
            self.ask(slot, |ask, desk| ask.follow(job, desk));
        }
    }

    /// A request goes out on a connection that carried one before; says whose it is.
    fn sent_on(&mut self, slot: Slot) -> Option<u32> {
        let robot = self.asks.at(slot).map(|ask| ask.robot)?;
        self.sends_again(robot);
        Some(robot)
    }

    /// Counts a request on a connection that carried one before.
    pub(super) fn sends_again(&mut self, robot: u32) {
        self.recorder.side(Side::Client).reused += 1;
        self.crowd.robots[robot as usize].under_way += 1;
        self.under_way += 1;
    }

    /// Counts a request on a new connection to the server; gives the address that it comes from, the one that it goes to, and
    /// its TLS.
    pub(super) fn dials(
        &mut self,
        robot: u32,
        server: u32,
        http2: bool,
    ) -> (Ipv4Addr, SocketAddr, Option<Arc<ClientConfig>>) {
        let from = robot_address(self.crowd.robots[robot as usize].number, &self.settings.robots);
        let found = &mut self.crowd.robots[robot as usize];
        (found.open, found.under_way) = (found.open + 1, found.under_way + 1);
        self.under_way += 1;
        let tls = self.settings.tls.as_ref().filter(|_| self.settings.route.tls);
        let secure = tls.map(|tls| self.speakers.entry(robot).or_insert_with(|| tls.robot(http2)).clone());
        (from, self.settings.route.hop(server), secure)
    }

    fn connect(&mut self, robot: u32, job: Box<Job>) {
        let (from, hop, secure) = self.dials(robot, job.wish.name.server, false);
        let desk = desk(&self.settings, &self.journal, &self.clock, self.now, &mut self.buffer);
        match Ask::connect(robot, from, secure, job, &desk, &mut self.stream) {
            Ok(ask) => {
                let slot = self.asks.insert(ask);
                let watched = self.asks.at(slot).map(|ask| self.poll.watch(ask.socket(), slot.token(ASK)));
                self.carries(robot, slot);
                if let Some(Err(error)) = watched {
                    let job = self.asks.remove(slot).and_then(|ask| ask.abandon().0);
                    self.gone(robot);
                    if let Some(job) = job {
                        self.failed(robot, job, trouble_of(&error), error.to_string(), 0);
                    }
                }
            }
            Err((job, error)) => {
                self.gone(robot);
                let detail = format!("no connection from {from} to {hop}: {error}");
                self.failed(robot, job, trouble_of(&error), detail, 0);
            }
        }
    }

    /// The robot's first request waits, for there is no file for one more connection.
    pub(super) fn has_no_files(&mut self, robot: u32) {
        if let Some(wish) = self.crowd.robots[robot as usize].queue.front_mut() {
            wish.waited = true;
        }
        self.rest(robot);
        let detail = "as many connections are under way as the limit of open files has room for";
        self.trouble(Trouble::NoDescriptors, String::new(), detail);
    }

    /// A robot opens no connection for a while.
    pub(super) fn rest(&mut self, robot: u32) {
        let found = &mut self.crowd.robots[robot as usize];
        if found.rests_until <= self.now {
            found.rests_until = self.now + PAUSE;
            self.timers.set(found.rests_until, TimerEvent::Dispatch(robot));
        }
    }
}
