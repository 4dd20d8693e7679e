//! The turns in which the streams of a connection write. QUIC holds so many bytes for a connection, and the client permits so many; where
//! either is used up, QUIC wakes the stream first that asked last, and it would take all the room that there is. So streams take turns:
//! those of a higher urgency first, within one urgency the one that has waited longest.

use crate::multiplexed::priority::URGENCIES;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The order of the streams of one connection.
#[derive(Default)]
pub struct Turns {
    /// Streams that may have room, at most as many as are open.
    waiting: RefCell<Vec<Waiting>>,
    /// The number of the next turn.
    next: Cell<u64>,
    /// By urgency, the latest stream that had a turn: the number of its turn before that.
    served: Cell<[u64; URGENCIES]>,
}

struct Waiting {
    order: (u8, u64),
    waker: Waker,
}

/// A stream's place in the order.
pub struct Place {
    turns: Rc<Turns>,
    urgency: u8,
    /// The number of its last turn; at first, of the moment when it came.
    turn: u64,
    state: PlaceState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaceState {
    /// The stream asks for nothing, or its last turn was of use.
    Free,
    /// There was no room.
    Blocked,
    /// It is in the list.
    Waits,
}

impl Turns {
    /// The place of a stream that comes now.
    pub fn place(self: &Rc<Turns>, urgency: u8) -> Place {
        Place { urgency, turn: self.number(), turns: Rc::clone(self), state: PlaceState::Free }
    }

    fn number(&self) -> u64 {
        let number = self.next.get();
        self.next.set(number + 1);
        number
    }

    fn wake_first(&self) {
        if let Some(first) = self.waiting.borrow().iter().min_by_key(|waiting| waiting.order) {
            first.waker.wake_by_ref();
        }
    }
}

impl Place {
    fn order(&self) -> (u8, u64) {
        (self.urgency, self.turn)
    }

    /// Changes the urgency, in which 0 goes first.
    pub fn have_urgency(&mut self, urgency: u8) {
        if urgency != self.urgency {
            self.leave();
            self.urgency = urgency;
        }
    }

    /// Waits for the stream's turn, which ends by [`took`](Place::took) or [`found_no_room`](Place::found_no_room).
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let order = self.order();
        let mut waiting = self.turns.waiting.borrow_mut();
        match self.state {
            PlaceState::Free if waiting.is_empty() => return Poll::Ready(()),
            PlaceState::Waits => {
                if waiting.iter().all(|other| other.order >= order) {
                    return Poll::Ready(());
                }
                if let Some(own) = waiting.iter_mut().find(|own| own.order == order) {
                    own.waker.clone_from(cx.waker());
                }
                return Poll::Pending;
            }
            PlaceState::Free | PlaceState::Blocked => {}
        }
        waiting.push(Waiting { order, waker: cx.waker().clone() });
        self.state = PlaceState::Waits;
        // Others that were woken at the same moment come into the list before the first of them writes.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// The stream has written in its turn, and goes behind the others.
    pub fn took(&mut self) {
        self.leave();
        let mut served = self.turns.served.get();
        let latest = &mut served[usize::from(self.urgency).min(URGENCIES - 1)];
        *latest = self.turn.max(*latest);
        self.turns.served.set(served);
        self.turn = self.turns.number();
    }

    /// There was no room for the stream; QUIC wakes it when there may be.
    pub fn found_no_room(&mut self) {
        self.leave();
        self.state = PlaceState::Blocked;
    }

    /// Whether a stream had a turn that was behind this one: then this one's own window is what it waits for, and not the room that all
    /// streams share.
    pub fn was_passed_over(&self) -> bool {
        let served = self.turns.served.get();
        served.iter().skip(self.urgency.into()).any(|latest| *latest > self.turn)
    }

    /// The stream asks for no turn any more.
    pub fn leave(&mut self) {
        if std::mem::replace(&mut self.state, PlaceState::Free) == PlaceState::Waits {
            let order = self.order();
            self.turns.waiting.borrow_mut().retain(|waiting| waiting.order != order);
            self.turns.wake_first();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polled(place: &mut Place) -> bool {
        place.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Room for one turn comes again and again, and the stream that asked last is always woken first.
    #[test]
    fn the_one_that_has_waited_longest_goes_first() {
        let turns = Rc::new(Turns::default());
        let mut places: Vec<Place> = (0..3).map(|_| turns.place(3)).collect();
        for place in &mut places {
            assert!(polled(place));
            place.found_no_room();
        }
        let mut blocked = vec![0, 1, 2];
        let mut had = [0; 3];
        for _ in 0..30 {
            let mut woken: Vec<usize> = std::mem::take(&mut blocked).into_iter().rev().collect();
            let mut has_room = true;
            while !woken.is_empty() {
                for number in std::mem::take(&mut woken) {
                    if !polled(&mut places[number]) {
                        woken.push(number);
                    } else if std::mem::take(&mut has_room) {
                        places[number].took();
                        had[number] += 1;
                        woken.push(number);
                    } else {
                        places[number].found_no_room();
                        blocked.push(number);
                    }
                }
            }
            assert!(places.iter().all(|place| !place.was_passed_over()));
        }
        assert_eq!(had, [10, 10, 10]);
    }

    #[test]
    fn urgent_ones_go_first_and_pass_nobody_over() {
        let turns = Rc::new(Turns::default());
        let (mut usual, mut urgent) = (turns.place(3), turns.place(0));
        for place in [&mut usual, &mut urgent] {
            place.found_no_room();
            assert!(!polled(place));
        }
        assert!(!polled(&mut usual) && polled(&mut urgent));
        urgent.took();
        assert!(polled(&mut usual) && !usual.was_passed_over());
        // One of its own urgency that came later does, and one that is dropped holds up nobody.
        usual.found_no_room();
        let mut later = turns.place(3);
        assert!(polled(&mut later));
        later.took();
        assert!(usual.was_passed_over() && !later.was_passed_over());
        later.found_no_room();
        assert!(!polled(&mut usual) && !polled(&mut later) && !polled(&mut later));
        drop(usual);
        assert!(polled(&mut later));
    }
}
