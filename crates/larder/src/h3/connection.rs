//! The task of a connection: it takes streams, and ends the connection when its time has come.

use super::{Link, control, request};
use crate::permit::ConnectionPermit;
use crate::ticker::{Timer, Wait, WaitEnd};
use larder_wire::h3::control::UniKind;
use larder_wire::h3::frame::{self, Settings};
use larder_wire::h3::{ErrorCode, H3Fault, varint};
use quinn::{RecvStream, SendStream};
use std::cell::Cell;
use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;

/// The end of a listener's HTTP/3, which its connections wait for.
#[derive(Default)]
pub struct Leaving {
    has_begun: Cell<bool>,
    begins: Notify,
}

impl Leaving {
    /// Has all connections end as soon as their requests are answered.
    pub fn begin(&self) {
        self.has_begun.set(true);
        self.begins.notify_waiters();
    }

    async fn wait(&self) {
        let begins = self.begins.notified();
        if !self.has_begun.get() {
            begins.await;
        }
    }
}

/// For so long at least, and so long at most, a connection that takes no more requests waits for the client to hear of it.
const LINGER_MIN: Duration = Duration::from_millis(50);
const LINGER_MAX: Duration = Duration::from_secs(1);

/// Serves a connection to its end.
pub async fn serve(link: Rc<Link>, permit: ConnectionPermit, leaving: &Leaving) {
    let timer = link.env().ticker.timer();
    let mut connection = Connection { link: Rc::clone(&link), control: None };
    let limit = link.env().config().timeouts.head;
    let end = match timer.limit(limit, Wait::Busy, connection.open_control()).await {
        Ok(Some(())) => connection.run(&timer, leaving).await,
        Ok(None) => End::Gone,
        Err(_) => End::Mute,
    };
    match end {
        End::Gone => {}
        End::Idle => {
            connection.leave(&timer).await;
            link.end(ErrorCode::NoError, "no request came for timeouts.idle", None);
        }
        End::Mute => link.end(ErrorCode::StreamCreation, "no room for the control stream", Some("http3-fault")),
        End::Leaves => {
            connection.leave(&timer).await;
            link.end(ErrorCode::NoError, "", None);
        }
        End::Moved => {
            connection.leave(&timer).await;
            link.end(ErrorCode::NoError, "the client has another address than its handshake", None);
        }
    }
    // The task of QUIC sends its last packet before a worker that waits for this connection goes down.
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    drop(permit);
}

struct Connection {
    link: Rc<Link>,
    /// The control stream; its end would end the connection.
    control: Option<SendStream>,
}

/// Why a connection takes no more streams.
enum End {
    /// It is closed.
    Gone,
    /// No request came for too long.
    Idle,
    /// The client lets this side open no stream.
    Mute,
    /// The server goes down, or serves no HTTP/3 any more.
    Leaves,
    /// A request came from another address than the handshake, so the client has to prove by a new connection that it is there.
    Moved,
}

/// Something has happened on a connection.
enum Event {
    Request(SendStream, RecvStream),
    Uni(RecvStream),
    StreamEnded,
    ControlStopped,
    Leaves,
    Gone,
}

impl Connection {
    /// Opens the control stream, and says what this side permits.
    async fn open_control(&mut self) -> Option<()> {
        let mut control = self.link.quic.open_uni().await.ok()?;
        let mut bytes = Vec::new();
        UniKind::write_control(&mut bytes);
        let head_bytes_max = self.link.space.head_limits.head_bytes_max as u64;
        let settings = Settings { field_section_bytes_max: Some(head_bytes_max), ..Settings::default() };
        frame::write_settings(&mut bytes, &settings);
        let _ = control.set_priority(i32::MAX);
        control.write_all(&bytes).await.ok()?;
        self.control = Some(control);
        Some(())
    }

    async fn run(&mut self, timer: &Timer, leaving: &Leaving) -> End {
        let env = Rc::clone(self.link.env());
        let control_streams = Rc::new(control::Opened::default());
        let mut idle_since = env.ticker.wait_begins();
        let mut stopped = pin!(until_stopped(self.control.as_ref()));
        loop {
            let idle = env.config().timeouts.idle;
            let limit = match self.link.streams() {
                0 => idle.saturating_sub(env.ticker.since(idle_since)),
                _ => Duration::MAX,
            };
            match timer.limit(limit, Wait::Idle, self.event(leaving, stopped.as_mut())).await {
                Ok(Event::Request(send, receive)) if self.link.is_elsewhere() => {
                    self.link.note_move();
                    self.link.reject(send, receive);
                    return End::Moved;
                }
                Ok(Event::Request(send, receive)) => request::begin(&self.link, send, receive),
                Ok(Event::Uni(receive)) => {
                    let (link, opened) = (Rc::clone(&self.link), Rc::clone(&control_streams));
                    tokio::task::spawn_local(control::read(link, opened, receive));
                }
                Ok(Event::StreamEnded) => idle_since = env.ticker.wait_begins(),
                Ok(Event::Leaves) | Err(WaitEnd::Draining | WaitEnd::Ending) => return End::Leaves,
                Ok(Event::ControlStopped) => {
                    let detail = "the control stream was stopped, which lasts as long as its connection";
                    self.link.fault(H3Fault::connection(ErrorCode::ClosedCriticalStream, detail));
                    return End::Gone;
                }
                Ok(Event::Gone) => return End::Gone,
                Err(WaitEnd::Late) if self.link.streams() == 0 => return End::Idle,
                Err(WaitEnd::Late) => {}
            }
            if self.link.streams() > 0 {
                idle_since = env.ticker.wait_begins();
            }
        }
    }

    /// Waits for the next event. Cancel-safe.
    async fn event(&self, leaving: &Leaving, stopped: Pin<&mut impl Future<Output = ()>>) -> Event {
        let quic = &self.link.quic;
        tokio::select! {
            request = quic.accept_bi() => request.map_or(Event::Gone, |(send, receive)| Event::Request(send, receive)),
            uni = quic.accept_uni() => uni.map_or(Event::Gone, Event::Uni),
            () = self.link.stream_ended.notified() => Event::StreamEnded,
            () = stopped => Event::ControlStopped,
            () = leaving.wait() => Event::Leaves,
        }
    }

    /// Tells the client which requests are not taken any more (RFC 9114 section 5.2), and waits for the others to end. QUIC drops what was
    /// not sent when a connection is closed, and a request may cross the word on its way, so the connection goes on for two round trips.
    async fn leave(&mut self, timer: &Timer) {
        let mut bytes = Vec::new();
        frame::write_goaway(&mut bytes, self.link.next_request.get().min(varint::MAX));
        let link = Rc::clone(&self.link);
        let (quic, ticker) = (&link.quic, &link.env().ticker);
        let Some(control) = &mut self.control else { return };
        // Behind answers that the client takes slowly the word has to wait, and they go on meanwhile.
        let mut telling = pin!(control.write_all(&bytes));
        let mut has_told = false;
        let mut since = ticker.wait_begins();
        while quic.close_reason().is_none() {
            let lingers = (quic.rtt() * 2).clamp(LINGER_MIN, LINGER_MAX);
            let limit = match link.streams() {
                0 if has_told => lingers.saturating_sub(ticker.since(since)),
                0 => LINGER_MAX.saturating_sub(ticker.since(since)),
                _ => Duration::MAX,
            };
            if limit.is_zero() {
                return;
            }
            let event = async {
                tokio::select! {
                    _ = &mut telling, if !has_told => Some(Left::Told),
                    request = quic.accept_bi() => request.ok().map(|(send, receive)| Left::Request(send, receive)),
                    () = link.stream_ended.notified() => Some(Left::StreamEnded),
                    _ = quic.closed() => None,
                }
            };
            match timer.limit(limit, Wait::Busy, event).await {
                Ok(Some(Left::Told)) => (has_told, since) = (true, ticker.wait_begins()),
                Ok(Some(Left::Request(send, receive))) => link.reject(send, receive),
                // GOAWAY gets its time from when the last answer has made room for it.
                Ok(Some(Left::StreamEnded)) if !has_told => since = ticker.wait_begins(),
                Ok(_) | Err(_) => {}
            }
        }
    }
}

/// Something has happened on a connection that takes no more requests.
enum Left {
    /// GOAWAY was handed over to QUIC.
    Told,
    Request(SendStream, RecvStream),
    StreamEnded,
}

/// Waits until the client has stopped the control stream.
fn until_stopped(control: Option<&SendStream>) -> impl Future<Output = ()> + use<> {
    let stopped = control.map(SendStream::stopped);
    async {
        let stopped = match stopped {
            Some(stopped) => stopped.await,
            None => pending().await,
        };
        // Others see that the connection has ended.
        if !matches!(stopped, Ok(Some(_))) {
            pending().await
        }
    }
}
