//! The body of a request on its way into the frames of its connection.

use super::super::call::OutgoingBody;
use super::super::fault::{UpstreamFault, UpstreamFaultKind};
use super::super::wait_limit::WaitLimit;
use super::Link;
use crate::request_body::Piece;
use std::future::poll_fn;

/// The part of a request that is still to be sent.
pub struct Upload {
    body: OutgoingBody,
    has_last: bool,
    is_over: bool,
}

impl Upload {
    /// A body of which nothing is sent yet.
    pub fn new(mut body: OutgoingBody) -> Upload {
        body.pieces.keep();
        Upload { body, has_last: false, is_over: false }
    }

    /// Whether the body was sent to its end, or no more of it is wanted.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The body, where all of it may be sent once more.
    pub fn into_whole_body(self) -> Option<OutgoingBody> {
        self.body.pieces.again().map(|pieces| OutgoingBody { pieces, ..self.body })
    }

    /// Sends until the request is over. Cancel-safe.
    pub async fn send(&mut self, link: &Link, number: u32, wait_limit: &WaitLimit) -> Result<(), UpstreamFault> {
        while !self.has_last {
            if !progress(link, number, wait_limit, Until::Room).await? {
                self.is_over = true;
                return Ok(());
            }
            let piece = self.body.pieces.recv().await;
            let mut state = link.state.borrow_mut();
            match piece {
                Some(Piece::Data(data)) => state.queue(number, data),
                Some(Piece::End(trailers)) => {
                    state.end_body(number, trailers);
                    self.has_last = true;
                }
                None => return Err(UpstreamFault::client_left()),
            }
            drop(state);
            link.wake();
        }
        progress(link, number, wait_limit, Until::Sent).await?;
        self.is_over = true;
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// More bytes may be queued.
    Room,
    /// All of the request is in frames.
    Sent,
}

/// Waits for the origin to take bytes, for as long as it takes any; false where it wants no more.
async fn progress(link: &Link, number: u32, wait_limit: &WaitLimit, until: Until) -> Result<bool, UpstreamFault> {
    let idle = link.shared.settings.idle_timeout;
    loop {
        let before = link.state.borrow().queued_bytes(number);
        let room = poll_fn(|cx| {
            let mut state = link.state.borrow_mut();
            match until {
                Until::Room => state.poll_room(number, cx),
                Until::Sent => state.poll_sent(number, cx).map(|()| true),
            }
        });
        match wait_limit.limit(idle, room).await {
            Ok(has_room) => return Ok(has_room),
            Err(_) if link.state.borrow().queued_bytes(number) < before => {}
            Err(_) => {
                let detail = format!("the origin took no byte of the request for {} s", idle.as_secs_f64());
                return Err(UpstreamFault::new(UpstreamFaultKind::IdleTimeout, detail));
            }
        }
    }
}
