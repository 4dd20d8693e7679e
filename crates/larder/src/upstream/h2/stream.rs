//! A request on a stream of a connection, and the response to it.

use super::super::call::{Call, CallEvent, OutgoingBody};
use super::super::fault::{UpstreamFault, UpstreamFaultKind};
use super::super::wait_limit::WaitLimit;
use super::Link;
use super::head::RequestParts;
use super::upload::Upload;
use crate::record::Peer;
use crate::request_body::RequestBody;
use bytes::Bytes;
use larder_wire::{Fields, ResponseHead};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// A stream of a connection for one request, until it is dropped (which resets it) or over.
pub(in crate::upstream) struct Stream(Box<Lease>);

/// Boxed as a whole: a stream goes from hand to hand while a fetch goes on.
struct Lease {
    link: Rc<Link>,
    wait_limit: WaitLimit,
    /// `None` before the request was sent.
    number: Option<u32>,
    /// The rest of a request that was answered before its end.
    upload: Option<Box<Upload>>,
    leased_at: Instant,
    is_reused: bool,
    is_over: bool,
    length: Option<u64>,
    trailers: Option<Fields>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.link.leases.set(self.link.leases.get() - 1);
        if let Some(number) = self.number {
            self.link.state.borrow_mut().end(number);
        }
        // The connection may be idle now.
        self.link.wake();
    }
}

impl Stream {
    /// A stream of this connection, which has room for it.
    pub fn on(link: Rc<Link>, now: Instant) -> Stream {
        link.leases.set(link.leases.get() + 1);
        let served = link.served.replace(link.served.get() + 1);
        let wait_limit = link.shared.clock.wait_limit();
        Stream(Box::new(Lease {
            link,
            wait_limit,
            number: None,
            upload: None,
            leased_at: now,
            is_reused: served > 0,
            is_over: false,
            length: None,
            trailers: None,
        }))
    }

    /// Whether the connection has served an earlier request.
    pub fn is_reused(&self) -> bool {
        self.0.is_reused
    }

    /// When there was a connection for this request.
    pub fn leased_at(&self) -> Instant {
        self.0.leased_at
    }

    /// The far end.
    pub fn peer(&self) -> Peer {
        Peer::Address(self.0.link.peer)
    }

    /// The length of the response's body, if the head says it.
    pub fn length(&self) -> Option<u64> {
        self.0.length
    }

    /// Whether the response was taken to its end.
    pub fn is_over(&self) -> bool {
        self.0.is_over
    }

    /// Whether the rest of the request is still to be sent.
    pub fn is_sending(&self) -> bool {
        self.0.upload.is_some()
    }

    /// The trailers of the response, once its body was read to the end; `None` when there were none.
    pub fn trailers(&mut self) -> Option<Fields> {
        self.0.trailers.take()
    }

    /// The next piece of the response's body; `None` at its end. The rest of the request is sent meanwhile. Cancel-safe.
    pub async fn next_piece(&mut self) -> Result<Option<Bytes>, UpstreamFault> {
        let Lease { link, wait_limit, number, upload, .. } = &mut *self.0;
        let Some(number) = *number else { return Ok(None) };
        let piece = match upload {
            None => piece(link, number, wait_limit).await,
            Some(rest) => {
                let own_limit = link.shared.clock.wait_limit();
                let taken = tokio::select! {
                    taken = piece(link, number, wait_limit) => Some(taken),
                    _ = rest.send(link, number, &own_limit) => None,
                };
                match taken {
                    Some(taken) => taken,
                    // The request is over, or the origin takes no more of it.
                    None => {
                        *upload = None;
                        piece(link, number, wait_limit).await
                    }
                }
            }
        };
        self.note_end();
        piece
    }

    /// Waits for `work` and sends the rest of the request meanwhile.
    pub async fn send_beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let Lease { link, wait_limit, number, upload, .. } = &mut *self.0;
        let (Some(rest), Some(number)) = (&mut *upload, *number) else { return work.await };
        let mut work = pin!(work);
        tokio::select! {
            done = &mut work => return done,
            _ = rest.send(link, number, wait_limit) => {}
        }
        *upload = None;
        work.await
    }

    fn note_end(&mut self) {
        let Some(number) = self.0.number else { return };
        let mut state = self.0.link.state.borrow_mut();
        if state.is_over(number) {
            self.0.is_over = true;
            self.0.trailers = state.take_trailers(number);
        }
        drop(state);
        // A window may have been opened.
        self.0.link.wake();
    }

    async fn head(&mut self, since: Option<Instant>) -> Result<ResponseHead, UpstreamFault> {
        let Lease { link, wait_limit, number, .. } = &mut *self.0;
        match number {
            Some(number) => head(link, *number, wait_limit, since).await,
            None => Err(UpstreamFault::new(UpstreamFaultKind::Reset, "no request was sent")),
        }
    }
}

/// Sends the request and waits for the final head; the body of the response follows on the stream. Where the origin says that it has not
/// processed the request, the body is put back into the call if it is whole.
pub(in crate::upstream) async fn ask(
    mut stream: Stream,
    call: &mut Call<'_>,
) -> Result<(ResponseHead, Stream), UpstreamFault> {
    if stream.is_reused() && call.body.is_none() {
        let link = &stream.0.link;
        link.ask_for_life(call.silent_for.unwrap_or(link.shared.settings.connect_timeout));
    }
    let head = match call.body.take() {
        None => {
            begin(&mut stream, call, call.fields, true)?;
            final_head(&mut stream, call).await?
        }
        Some(body) => Box::pin(ask_with_body(&mut stream, call, body)).await?,
    };
    let lease = &mut *stream.0;
    if let Some(number) = lease.number {
        lease.length = lease.link.state.borrow().expected_bytes(number);
    }
    stream.note_end();
    Ok((head, stream))
}

/// Sends the head.
fn begin(stream: &mut Stream, call: &Call<'_>, fields: &Fields, ends_stream: bool) -> Result<(), UpstreamFault> {
    let lease = &mut *stream.0;
    let parts = RequestParts {
        method: call.method,
        scheme: call.to.scheme,
        authority: call.to.authority(),
        target: call.target,
        fields,
    };
    let begun = lease.link.state.borrow_mut().begin(call.method, ends_stream, |out| parts.write(out));
    lease.number = Some(begun?);
    lease.link.wake();
    Ok(())
}

async fn final_head(stream: &mut Stream, call: &Call<'_>) -> Result<ResponseHead, UpstreamFault> {
    let mut since = stream.0.leased_at;
    loop {
        let head = stream.head(Some(since)).await?;
        if !head.is_interim() {
            return Ok(head);
        }
        since = Instant::now();
        (call.on)(CallEvent::Interim(head));
    }
}

/// Sends the body while watching for an early response. The rest of it is sent while the response's body comes.
async fn ask_with_body(
    stream: &mut Stream,
    call: &mut Call<'_>,
    body: OutgoingBody,
) -> Result<ResponseHead, UpstreamFault> {
    let mut fields = call.fields.clone();
    if body.is_gathered {
        fields.remove("Expect");
    }
    match body.length {
        RequestBody::Known(length) => fields.set("Content-Length", length.to_string()),
        RequestBody::Unknown => drop(fields.remove("Content-Length")),
        RequestBody::None => {}
    }
    if let Err(fault) = begin(stream, call, &fields, false) {
        call.body = Some(body);
        return Err(fault);
    }
    let mut upload = Box::new(Upload::new(body));
    match send_and_watch(stream, &mut upload, call).await {
        Ok(head) => {
            if !upload.is_over() {
                stream.0.upload = Some(upload);
            }
            Ok(head)
        }
        Err(fault) => {
            call.body = upload.into_whole_body();
            Err(fault)
        }
    }
}

async fn send_and_watch(
    stream: &mut Stream,
    upload: &mut Upload,
    call: &Call<'_>,
) -> Result<ResponseHead, UpstreamFault> {
    let Lease { link, wait_limit, number, .. } = &mut *stream.0;
    let Some(number) = *number else { return Err(UpstreamFault::client_left()) };
    let own_limit = link.shared.clock.wait_limit();
    let mut broken = None;
    let mut since = None;
    loop {
        tokio::select! {
            sent = upload.send(link, number, &own_limit), if since.is_none() => {
                // The origin may take its time from here on.
                since = Some(Instant::now());
                match sent {
                    Ok(()) => {}
                    Err(fault) if fault.kind == UpstreamFaultKind::ClientGone => return Err(fault),
                    // An origin that refuses a body answers early; its answer is worth more than this fault.
                    Err(fault) => broken = Some(fault),
                }
            },
            head = head(link, number, wait_limit, since) => match head {
                Ok(head) if head.is_interim() => {
                    since = since.map(|_| Instant::now());
                    (call.on)(CallEvent::Interim(head));
                }
                Ok(head) => return Ok(head),
                Err(fault) => return Err(broken.unwrap_or(fault)),
            },
        }
    }
}

/// The next head of a response. The time for its first byte runs from the end of the request, and begins anew while that is sent.
async fn head(
    link: &Link,
    number: u32,
    wait_limit: &WaitLimit,
    since: Option<Instant>,
) -> Result<ResponseHead, UpstreamFault> {
    let time = link.shared.settings.first_byte_timeout;
    loop {
        let limit = since.map_or(time, |since| time.saturating_sub(since.elapsed()));
        let head = poll_fn(|cx| link.state.borrow_mut().poll_head(number, cx));
        match wait_limit.limit(limit, head).await {
            Ok(head) => return head,
            Err(_) if since.is_none() => {}
            Err(_) => return Err(late(UpstreamFaultKind::FirstByteTimeout, "no answer began within", time)),
        }
    }
}

/// The next piece of a body.
async fn piece(link: &Link, number: u32, wait_limit: &WaitLimit) -> Result<Option<Bytes>, UpstreamFault> {
    let idle = link.shared.settings.idle_timeout;
    let piece = poll_fn(|cx| link.state.borrow_mut().poll_piece(number, cx));
    match wait_limit.limit(idle, piece).await {
        Ok(piece) => piece,
        Err(_) => Err(late(UpstreamFaultKind::IdleTimeout, "no byte of the answer's body came for", idle)),
    }
}

fn late(kind: UpstreamFaultKind, detail: &str, time: Duration) -> UpstreamFault {
    UpstreamFault::new(kind, format!("{detail} {} s", time.as_secs_f64()))
}
