//! Connections of robots that speak HTTP/2: one for each host that a robot meets, on which its requests go side by side.

use super::{LINK, TRIES_MAX, TimerEvent, Worker, desk};
use crate::engine::slots::Slot;
use crate::ledger::Side;
use crate::robot::{Job, Multiplexed, Room, StreamOutcome, trouble_of};

/// Waiting requests of a robot that are looked at for one whose host has room.
pub(in crate::engine) const PASSED_OVER_MAX: usize = 100;

impl Worker {
    /// Sends the robot's waiting requests on its connections, as far as they have room. A connection is turned later, so that
    /// requests that come together leave together.
    pub(super) fn dispatch_streams(&mut self, robot: u32) {
        // Requests that are passed over: their hosts have no room, and hosts of others may.
        let mut at = 0;
        while at < PASSED_OVER_MAX {
            let found = &mut self.crowd.robots[robot as usize];
            if found.rests_until > self.now {
                return;
            }
            let Some(wish) = found.queue.get(at) else { break };
            let end = self.settings.route.authority(wish.name.server);
            let slots = found.links.iter().copied();
            let mut rooms = slots.filter_map(|slot| {
                let link = self.links.at(slot).filter(|link| link.end == end)?;
                Some((slot, link.room()))
            });
            match rooms.find(|(_, room)| *room != Room::Gone) {
                Some((slot, Room::Free)) => {
                    let Some(wish) = found.queue.remove(at) else { return };
                    let job = self.job(wish);
                    self.send_on(slot, robot, job);
                }
                None if self.has_connection_to_spare(robot) => {
                    let Some(wish) = self.crowd.robots[robot as usize].queue.remove(at) else { return };
                    let job = self.job(wish);
                    self.connect_link(robot, job);
                }
                _ if at > 0 || self.may_send_more(robot) => at += 1,
                _ => break,
            }
        }
        // All that are left wait for the cache. Those that have waited before stand before those that have not.
        let waiting = self.crowd.robots[robot as usize].queue.iter_mut().rev();
        waiting.take_while(|wish| !wish.waited).for_each(|wish| wish.waited = true);
    }

    /// Whether the robot could send a request to another host.
    fn may_send_more(&mut self, robot: u32) -> bool {
        if self.settings.route.is_one() {
            return false;
        }
        let found = &self.crowd.robots[robot as usize];
        let may_open = found.open < self.settings.robots.connections_max && self.links.len() < self.connections_max;
        // Each is asked: one that is full tells when it has room again.
        let rooms = found.links.iter().filter_map(|slot| Some(self.links.at(*slot)?.room()));
        rooms.fold(may_open, |may, room| may | (room == Room::Free))
    }

    /// Whether the robot may open one more connection, for which an idle one may have to end.
    fn has_connection_to_spare(&mut self, robot: u32) -> bool {
        let has_files = self.links.len() < self.connections_max;
        if self.crowd.robots[robot as usize].open >= self.settings.robots.connections_max {
            return self.close_idle_of(robot as usize);
        }
        if has_files || self.close_idle(robot) {
            return true;
        }
        self.has_no_files(robot);
        false
    }

    fn send_on(&mut self, slot: Slot, robot: u32, job: Box<Job>) {
        self.sends_again(robot);
        let desk = desk(&self.settings, &self.journal, &self.clock, self.now, &mut self.buffer);
        if let Some(link) = self.links.at(slot) {
            link.begin(job, &desk);
        }
        self.stirred.push(slot);
    }

    fn connect_link(&mut self, robot: u32, job: Box<Job>) {
        let (from, hop, secure) = self.dials(robot, job.wish.name.server, true);
        let desk = desk(&self.settings, &self.journal, &self.clock, self.now, &mut self.buffer);
        let error = match Multiplexed::connect(robot, from, secure, job, &desk, &mut self.stream) {
            Ok(link) => {
                let slot = self.links.insert(link);
                let watched = self.links.at(slot).map(|link| self.poll.watch(link.socket(), slot.token(LINK)));
                self.crowd.robots[robot as usize].links.push(slot);
                let Some(Err(error)) = watched else { return };
                let job = self.links.remove(slot).and_then(Multiplexed::abandon);
                self.crowd.robots[robot as usize].links.retain(|link| *link != slot);
                job.map(|job| (job, error))
            }
            Err(failed) => Some(failed),
        };
        self.gone(robot);
        if let Some((job, error)) = error {
            let detail = format!("no connection from {from} to {hop}: {error}");
            self.failed(robot, job, trouble_of(&error), detail, 0);
        }
    }

    /// Turns the connections that have something to send or to take in.
    pub(super) fn turn_stirred(&mut self) {
        while let Some(slot) = self.stirred.pop() {
            while self.turn_link(slot) {}
        }
    }

    /// One turn of a connection; says whether another one follows. Each has its own time: a connection may have something to read for
    /// as long as the cache sends it films.
    fn turn_link(&mut self, slot: Slot) -> bool {
        self.read_clock();
        let Some(link) = self.links.at(slot) else { return false };
        let mut desk = desk(&self.settings, &self.journal, &self.clock, self.now, &mut self.buffer);
        let outcome = link.step(&mut desk);
        let robot = link.robot;
        if let Some(took) = link.connected.take() {
            self.recorder.connected(Side::Client, Some(took));
        }
        if let Some((shaken, took)) = link.shaken.take() {
            self.recorder.shaken(Side::Client, shaken.resumed, Some(took));
        }
        match outcome {
            StreamOutcome::Poll => return false,
            StreamOutcome::Read => {
                self.readers.insert(TimerEvent::Link(slot));
                return false;
            }
            StreamOutcome::Wake(at) => {
                self.timers.set(at, TimerEvent::Link(slot));
                return false;
            }
            StreamOutcome::Open => self.dispatch(robot),
            StreamOutcome::Done(report) => self.done(robot, report),
            StreamOutcome::Failed(job, trouble, detail) => self.failed(robot, job, trouble, detail, 0),
            StreamOutcome::Again(job, trouble, detail) if job.wish.tries >= TRIES_MAX => {
                self.failed(robot, job, trouble, detail, 0);
            }
            StreamOutcome::Again(job, ..) => {
                self.finished(robot);
                self.send_again(robot, job);
            }
            StreamOutcome::Accused((trouble, detail)) => self.trouble(trouble, String::new(), &detail),
            StreamOutcome::Ended(by_cache) => {
                self.forget_link(slot, by_cache);
                self.dispatch(robot);
                return false;
            }
        }
        true
    }

    /// A connection is over.
    pub(super) fn forget_link(&mut self, slot: Slot, by_cache: bool) {
        let Some(link) = self.links.remove(slot) else { return };
        let side = self.recorder.side(Side::Client);
        match (link.was_made(), by_cache) {
            (true, true) => side.closed_by_cache += 1,
            (true, false) => side.closed += 1,
            // Nobody closed what never was.
            (false, _) => {}
        }
        self.crowd.robots[link.robot as usize].links.retain(|other| *other != slot);
        self.gone(link.robot);
    }

    /// Each second: requests that take too long, each by itself.
    pub(super) fn expire_links(&mut self) {
        let (now, timeout) = (self.now, self.settings.robots.timeout);
        let slots: Vec<Slot> = self.links.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            if let Some(link) = self.links.at(slot) {
                link.expire(now, timeout);
                self.stirred.push(slot);
            }
        }
    }
}
