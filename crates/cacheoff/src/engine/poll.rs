//! The poll: what the kernel says is ready. Sockets are watched edge-triggered, so a connection is registered once.

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;

/// An epoll instance.
pub struct Poll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

/// One socket is ready.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The token it was registered with.
    pub token: u64,
    /// Reading is worth a try; an error counts as that.
    pub read: bool,
    /// Writing is worth a try.
    pub write: bool,
    /// The other end sends no more: there will be no further event, so reading must go on to the end.
    pub ended: bool,
}

impl Poll {
    /// A new one.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Watches a listening socket, level-triggered.
    pub fn listen(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(token), EventFlags::IN)?)
    }

    /// Watches a listening socket no more.
    pub fn ignore(&self, socket: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, socket)?)
    }

    /// Watches a connection for both directions, edge-triggered. Closing the socket ends that.
    pub fn watch(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        let both = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(token), both)?)
    }

    /// Waits until something is ready, at most so long, and appends it to `ready`.
    pub fn wait(&mut self, timeout: Duration, ready: &mut Vec<Ready>) -> io::Result<()> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let broken = EventFlags::HUP | EventFlags::ERR;
        ready.extend(self.events.drain(..).map(|event| {
            let (flags, data) = (event.flags, event.data);
            Ready {
                token: data.u64(),
                read: flags.intersects(EventFlags::IN | EventFlags::RDHUP | broken),
                write: flags.intersects(EventFlags::OUT | broken),
                ended: flags.intersects(EventFlags::RDHUP | broken),
            }
        }));
        Ok(())
    }
}
