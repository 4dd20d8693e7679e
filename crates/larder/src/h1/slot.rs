//! The slots of a worker's connections: each connection holds the [`Slot`] in which it is parked between two requests, and the
//! table [`Slots`] holds the parked connections and notes which of the others became readable. `h1::idle` serves them. The
//! table does not know what it parks, so that a connection can hold its slot.

#[cfg(test)]
use crate::in_memory::Readiness;
#[cfg(test)]
use crate::planted::{self, Planted};
use crate::socket::Socket;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::rc::Rc;

/// The slots of a worker, in which connections of type `C` are parked.
pub struct Slots<C> {
    /// The descriptor that reports sockets which become readable, by the numbers of their slots.
    pub registry: Registry,
    states: RefCell<Vec<SlotState<C>>>,
    free: RefCell<Vec<usize>>,
    /// Simulated connections that became readable.
    #[cfg(test)]
    pub simulated: Readiness,
}

enum SlotState<C> {
    /// No connection has this slot.
    Free,
    /// Its connection is idle since this tick.
    Parked(C, u64),
    /// Its connection is being served; whether its socket became readable since.
    Served { is_readable: bool },
}

/// The slot of a connection; it is free again when this is dropped.
pub struct Slot<C> {
    slots: Rc<Slots<C>>,
    number: usize,
    registered: bool,
}

impl<C> Slots<C> {
    /// No slots yet; sockets will be registered here.
    pub fn new(registry: Registry) -> Rc<Slots<C>> {
        Rc::new(Slots {
            registry,
            states: RefCell::default(),
            free: RefCell::default(),
            #[cfg(test)]
            simulated: Readiness::default(),
        })
    }

    /// A slot for a connection that was accepted.
    pub fn slot(self: &Rc<Self>) -> Slot<C> {
        let number = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let mut states = self.states.borrow_mut();
            states.push(SlotState::Free);
            states.len() - 1
        });
        self.states.borrow_mut()[number] = SlotState::Served { is_readable: false };
        Slot { slots: Rc::clone(self), number, registered: false }
    }

    /// Whether the socket of a connection that is being served became readable since this was asked last.
    pub fn became_readable(&self, number: usize) -> bool {
        match &mut self.states.borrow_mut()[number] {
            SlotState::Served { is_readable } => std::mem::take(is_readable),
            SlotState::Free | SlotState::Parked(..) => false,
        }
    }

    /// Parks a connection in its slot, idle since this tick.
    pub fn park(&self, number: usize, connection: C, since: u64) {
        self.states.borrow_mut()[number] = SlotState::Parked(connection, since);
    }

    /// Takes a connection that became readable from its slot.
    pub fn take(&self, number: usize) -> Option<C> {
        let mut states = self.states.borrow_mut();
        let state = states.get_mut(number)?;
        match state {
            SlotState::Parked(..) => state.take_parked(),
            SlotState::Served { is_readable } => {
                *is_readable = true;
                #[cfg(test)]
                if planted::is(Planted::LostWakeup) {
                    *is_readable = false;
                }
                None
            }
            SlotState::Free => None,
        }
    }

    /// Takes those of the parked connections that expired; `is_expired` is given each with the tick since which it is idle.
    pub fn take_expired(&self, mut is_expired: impl FnMut(&C, u64) -> bool) -> Vec<C> {
        let mut states = self.states.borrow_mut();
        let expired = states.iter_mut().filter_map(|state| match state {
            SlotState::Parked(connection, since) if is_expired(connection, *since) => state.take_parked(),
            _ => None,
        });
        expired.collect()
    }
}

impl<C> SlotState<C> {
    /// Takes the connection out if one is parked here: from now on it is being served.
    fn take_parked(&mut self) -> Option<C> {
        if !matches!(self, SlotState::Parked(..)) {
            return None;
        }
        match std::mem::replace(self, SlotState::Served { is_readable: false }) {
            SlotState::Parked(connection, _) => Some(connection),
            SlotState::Free | SlotState::Served { .. } => None,
        }
    }
}

impl<C> Slot<C> {
    /// The number by which the descriptor reports the connection's socket.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Whether the descriptor reports the connection's socket.
    pub fn is_registered(&self) -> bool {
        self.registered
    }

    /// Has the descriptor report the connection's socket; false where that is impossible.
    pub fn register(&mut self, socket: &Socket) -> bool {
        self.registered = self.add(socket);
        self.registered
    }

    fn add(&self, socket: &Socket) -> bool {
        #[cfg(test)]
        if socket.watch(&self.slots.simulated, self.number) {
            return true;
        }
        let registry = &self.slots.registry;
        socket.descriptor().is_ok_and(|socket| {
            registry.register(&mut SourceFd(&socket.as_raw_fd()), Token(self.number), Interest::READABLE).is_ok()
        })
    }

    /// Removes the socket from the descriptor: the connection will not be parked any more.
    pub fn give_up(self, socket: &Socket) {
        #[cfg(test)]
        socket.unwatch();
        if self.registered
            && let Ok(socket) = socket.descriptor()
        {
            // It was added, so it is there.
            let _ = self.slots.registry.deregister(&mut SourceFd(&socket.as_raw_fd()));
        }
    }
}

impl<C> Drop for Slot<C> {
    fn drop(&mut self) {
        self.slots.states.borrow_mut()[self.number] = SlotState::Free;
        self.slots.free.borrow_mut().push(self.number);
    }
}
