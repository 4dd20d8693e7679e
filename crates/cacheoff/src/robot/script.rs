//! The requests of a log, in its order and at its times, instead of what robots would draw. An object belongs to one
//! worker, so that what is known of it lies in one place.

use crate::object::{Name, World};
use crate::random::mix;
use std::time::Duration;

/// One request of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// When it is due.
    pub at: Duration,
    /// Number of the object, from 1 on.
    pub object: u32,
    /// Whether the log asked for it before.
    pub repeat: bool,
}

/// The lines of one worker, and how far they are.
#[derive(Debug)]
pub struct Script {
    worker: u16,
    servers: u32,
    lines: Vec<Line>,
    /// Lines for which somebody was woken.
    woken: usize,
    /// Lines that were asked.
    asked: usize,
}

impl Script {
    /// The part of the log that belongs to one worker of several.
    pub fn new(log: &[Line], worker: u16, workers: u16, servers: u32) -> Self {
        let mine = |line: &&Line| line.object % u32::from(workers.max(1)) == u32::from(worker);
        let lines = log.iter().filter(mine).copied().collect();
        Self { worker, servers, lines, woken: 0, asked: 0 }
    }

    /// Times of the lines that become due before `until`, each told once, with how many were told before.
    pub fn wake(&mut self, until: Duration) -> impl Iterator<Item = (usize, Duration)> + use<> {
        let from = self.woken;
        self.woken = from + self.lines[from..].iter().take_while(|line| line.at < until).count();
        let times: Vec<Duration> = self.lines[from..self.woken].iter().map(|line| line.at).collect();
        times.into_iter().enumerate().map(move |(place, at)| (from + place, at))
    }

    /// The next line: its object, and whether it was asked for before.
    pub fn take(&mut self) -> Option<(Name, bool)> {
        let line = self.lines.get(self.asked)?;
        self.asked += 1;
        let server = ((u128::from(mix(u64::from(line.object))) * u128::from(self.servers)) >> 64) as u32;
        let world = World::Public { worker: self.worker };
        let name = Name { server, content: 0, world, number: u64::from(line.object), embedded: false };
        Some((name, line.repeat))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_told_once_in_its_order_by_the_worker_of_its_object() {
        let line = |ms, object, repeat| Line { at: Duration::from_millis(ms), object, repeat };
        let log = [line(0, 1, false), line(10, 2, false), line(10, 3, false), line(60, 1, true), line(70, 2, true)];
        for workers in [1, 2] {
            let mut all = Vec::new();
            for worker in 0..workers {
                let mut script = Script::new(&log, worker, workers, 4);
                for tick in 1..4u32 {
                    for (place, at) in script.wake(tick * Duration::from_millis(50)) {
                        let (name, repeat) = script.take().expect("a line for each waking");
                        assert!(at < tick * Duration::from_millis(50) && place < log.len() && name.server < 4);
                        all.push(Line { at, object: name.number as u32, repeat });
                    }
                }
                assert_eq!(script.take(), None);
            }
            all.sort_by_key(|line| (line.at, line.object));
            assert_eq!(all, log);
        }
    }
}
