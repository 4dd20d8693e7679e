//! Clients that ask on and compare every byte with the law of the origin.

use crate::http::{Answer, Connection};
use crate::law;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const OBJECTS: u64 = 3_000;
const HOSTS: u64 = 3;
/// Between two requests of a client: a load that leaves the machine time for the failures.
const PAUSE: Duration = Duration::from_millis(4);

/// The counts of all clients together.
#[derive(Default)]
pub struct Counts {
    answered: AtomicU64,
    refused: AtomicU64,
    unanswered: AtomicU64,
    wrong: AtomicU64,
}

/// The counts at one moment, or between two.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Right answers.
    pub answered: u64,
    /// Error pages: 502, 503, 504.
    pub refused: u64,
    /// No whole answer.
    pub unanswered: u64,
    /// Anything else.
    pub wrong: u64,
}

impl Counts {
    /// As they are now.
    pub fn read(&self) -> Reading {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Reading {
            answered: of(&self.answered),
            refused: of(&self.refused),
            unanswered: of(&self.unanswered),
            wrong: of(&self.wrong),
        }
    }
}

impl Reading {
    /// The counts since an earlier reading.
    pub fn since(self, earlier: Reading) -> Reading {
        Reading {
            answered: self.answered - earlier.answered,
            refused: self.refused - earlier.refused,
            unanswered: self.unanswered - earlier.unanswered,
            wrong: self.wrong - earlier.wrong,
        }
    }

    /// Both together.
    pub fn plus(self, other: Reading) -> Reading {
        Reading {
            answered: self.answered + other.answered,
            refused: self.refused + other.refused,
            unanswered: self.unanswered + other.unanswered,
            wrong: self.wrong + other.wrong,
        }
    }
}

/// Asks until it is told to stop.
pub fn ask_on(number: usize, port: u16, origin: u16, goes_on: &AtomicBool, counts: &Counts) {
    let mut drawn = number as u64;
    let mut connection = None;
    let mut told = Told::default();
    while goes_on.load(Ordering::Relaxed) {
        drawn = law::mix(drawn);
        let object = drawn % OBJECTS;
        let length = 200 + law::mix(object) % 30_000;
        let host = format!("origin{}.test:{origin}", object % HOSTS);
        let request = format!("GET http://{host}/{object}/{length} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let asked = match connection.take().map_or_else(|| Connection::open(port), Ok) {
            Ok(mut open) => {
                let answer = open.ask(request.as_bytes(), false);
                connection = answer.as_ref().is_ok_and(|answer| answer.keeps).then_some(open);
                answer
            }
            Err(trouble) => Err(trouble),
        };
        let counter = match &asked {
            Ok(answer) if is_right(answer, object, length) => &counts.answered,
            Ok(Answer { status: 502..=504, .. }) => &counts.refused,
            Ok(answer) => {
                told.say(format!(
                    "/{object}/{length}: status {}, {} bytes, not the origin's",
                    answer.status,
                    answer.body.len()
                ));
                &counts.wrong
            }
            Err(trouble) => {
                told.say(format!("/{object}/{length}: {trouble}"));
                &counts.unanswered
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    }
}

/// The first few of a client's troubles; a dead server would fill the screen.
#[derive(Default)]
struct Told(usize);

impl Told {
    fn say(&mut self, what: String) {
        self.0 += 1;
        if self.0 <= 3 {
            eprintln!("xtask: {what}");
        }
    }
}

fn is_right(answer: &Answer, object: u64, length: u64) -> bool {
    answer.status == 200 && answer.body == law::bytes(object, 0, 0..length)
}
