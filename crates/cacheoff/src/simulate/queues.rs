//! The policies that know only the past. All are plain maps and queues: none is fast, each is easy to check.

use super::trace::Request;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// A policy that is given one request after the other.
pub(super) trait Keep {
    /// Says whether the object is there, and puts it there if not.
    fn ask(&mut self, request: Request) -> bool;
}

/// Least recently used.
pub(super) struct Lru {
    capacity: u64,
    bytes: u64,
    clock: u64,
    /// Last use and bytes of what is there.
    there: HashMap<u32, (u64, u64)>,
    by_use: BTreeMap<u64, u32>,
}

impl Lru {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, bytes: 0, clock: 0, there: HashMap::new(), by_use: BTreeMap::new() }
    }
}

impl Keep for Lru {
    fn ask(&mut self, request: Request) -> bool {
        self.clock += 1;
        if let Some((used, _)) = self.there.get_mut(&request.object) {
            self.by_use.remove(used);
            *used = self.clock;
            self.by_use.insert(self.clock, request.object);
            return true;
        }
        if request.bytes > self.capacity {
            return false;
        }
        while self.bytes + request.bytes > self.capacity {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            self.bytes -= self.there.remove(&oldest).map_or(0, |(_, bytes)| bytes);
        }
        self.there.insert(request.object, (self.clock, request.bytes));
        self.by_use.insert(self.clock, request.object);
        self.bytes += request.bytes;
        false
    }
}

/// First in, first out.
pub(super) struct Fifo {
    capacity: u64,
    bytes: u64,
    there: HashMap<u32, u64>,
    queue: VecDeque<u32>,
}

impl Fifo {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, bytes: 0, there: HashMap::new(), queue: VecDeque::new() }
    }
}

impl Keep for Fifo {
    fn ask(&mut self, request: Request) -> bool {
        if self.there.contains_key(&request.object) {
            return true;
        }
        if request.bytes > self.capacity {
            return false;
        }
        while self.bytes + request.bytes > self.capacity {
            let Some(oldest) = self.queue.pop_front() else { break };
            self.bytes -= self.there.remove(&oldest).unwrap_or(0);
        }
        self.there.insert(request.object, request.bytes);
        self.queue.push_back(request.object);
        self.bytes += request.bytes;
        false
    }
}

/// Least often used while in the cache.
pub(super) struct Lfu {
    capacity: u64,
    bytes: u64,
    clock: u64,
    /// Uses, last use and bytes of what is there.
    there: HashMap<u32, (u64, u64, u64)>,
    order: BTreeSet<(u64, u64, u32)>,
}

impl Lfu {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, bytes: 0, clock: 0, there: HashMap::new(), order: BTreeSet::new() }
    }
}

impl Keep for Lfu {
    fn ask(&mut self, request: Request) -> bool {
        self.clock += 1;
        let object = request.object;
        if let Some((uses, last, _)) = self.there.get_mut(&object) {
            self.order.remove(&(*uses, *last, object));
            (*uses, *last) = (*uses + 1, self.clock);
            self.order.insert((*uses, *last, object));
            return true;
        }
        if request.bytes > self.capacity {
            return false;
        }
        while self.bytes + request.bytes > self.capacity {
            let Some((.., least)) = self.order.pop_first() else { break };
            self.bytes -= self.there.remove(&least).map_or(0, |(.., bytes)| bytes);
        }
        self.there.insert(object, (1, self.clock, request.bytes));
        self.order.insert((1, self.clock, object));
        self.bytes += request.bytes;
        false
    }
}

/// Three queues (Yang and others, SOSP 2023): a tenth of the bytes for what is new, the rest for what was used again while it
/// was new, and the names of what left the first queue unused, as many bytes of them as the main queue has.
pub(super) struct S3Fifo {
    small_capacity: u64,
    capacity: u64,
    small: Queue,
    main: Queue,
    ghost: Queue,
    /// Of what is there: uses since it came or was moved, at most three.
    there: HashMap<u32, u8>,
}

#[derive(Default)]
struct Queue {
    order: VecDeque<(u32, u64)>,
    bytes: u64,
    /// Of the ghost queue: places, so that one that left by another way is told from one that came again.
    names: HashMap<u32, u64>,
}

impl Queue {
    fn push(&mut self, object: u32, bytes: u64) {
        self.order.push_back((object, bytes));
        self.bytes += bytes;
    }

    fn pop(&mut self) -> Option<(u32, u64)> {
        let (object, bytes) = self.order.pop_front()?;
        self.bytes -= bytes;
        Some((object, bytes))
    }
}

/// Uses beyond this are not counted.
const USES_MAX: u8 = 3;
/// Uses while new that bring an object to the main queue.
const USES_TO_MOVE: u8 = 2;

impl S3Fifo {
    pub(super) fn new(capacity: u64) -> Self {
        let (small, main, ghost) = Default::default();
        Self { small_capacity: capacity / 10, capacity, small, main, ghost, there: HashMap::new() }
    }

    fn make_room(&mut self, bytes: u64) {
        while self.small.bytes + self.main.bytes + bytes > self.capacity {
            let from_small = self.small.bytes > self.small_capacity || self.main.order.is_empty();
            let moved = if from_small { self.leave_small() } else { self.leave_main() };
            if !moved {
                break;
            }
        }
    }

    fn leave_small(&mut self) -> bool {
        let Some((object, bytes)) = self.small.pop() else { return false };
        let used = self.there.get(&object).copied().unwrap_or(0);
        if used >= USES_TO_MOVE {
            self.there.insert(object, 0);
            self.main.push(object, bytes);
        } else {
            self.there.remove(&object);
            self.remember(object, bytes);
        }
        true
    }

    fn leave_main(&mut self) -> bool {
        let Some((object, bytes)) = self.main.pop() else { return false };
        match self.there.get_mut(&object) {
            Some(uses) if *uses > 0 => {
                *uses -= 1;
                self.main.push(object, bytes);
            }
            _ => {
                self.there.remove(&object);
            }
        }
        true
    }

    fn remember(&mut self, object: u32, bytes: u64) {
        let ghost_capacity = self.capacity - self.small_capacity;
        self.ghost.push(object, bytes);
        *self.ghost.names.entry(object).or_default() += 1;
        while self.ghost.bytes > ghost_capacity {
            let Some((gone, _)) = self.ghost.pop() else { break };
            let Some(times) = self.ghost.names.get_mut(&gone) else { continue };
            *times -= 1;
            if *times == 0 {
                self.ghost.names.remove(&gone);
            }
        }
    }
}

impl Keep for S3Fifo {
    fn ask(&mut self, request: Request) -> bool {
        if let Some(uses) = self.there.get_mut(&request.object) {
            *uses = (*uses + 1).min(USES_MAX);
            return true;
        }
        if request.bytes > self.capacity {
            return false;
        }
        // Asked before room is made: making room may push it out of the ghost queue.
        let known = self.ghost.names.contains_key(&request.object);
        self.make_room(request.bytes);
        let queue = if known || request.bytes > self.small_capacity { &mut self.main } else { &mut self.small };
        queue.push(request.object, request.bytes);
        self.there.insert(request.object, 0);
        false
    }
}
