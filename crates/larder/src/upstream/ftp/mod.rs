//! The gateway to FTP servers (RFC 959, RFC 3659): requests of HTTP come in by one end of a pair of sockets, their answers go out
//! there, and behind it stands the control connection to the server. For all the rest of Larder that is an HTTP/1.1 origin: permits,
//! idle connections, time limits, the store and records count for it as for any.
//!
//! Only GET and HEAD are offered. Data connections are passive, and lead to the address of the control connection whatever the
//! server says, so that no server can have a third one asked.

mod answer;
mod listing;
mod path;
mod session;

use answer::{Answer, Refusal};
use larder_wire::parse::{HeadLimits, HeadScan, Parsed};
use larder_wire::{Method, RequestHead, Target};
use path::FtpPath;
use session::{Login, Session};
use socket2::SockRef;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpStream, UnixStream};

/// How long a server may take over its good-bye.
const QUIT_WITHIN: Duration = Duration::from_secs(1);
/// How long a server may take to say that a file is over of which all bytes are here. The next request waits for it.
const FINISH_WITHIN: Duration = Duration::from_secs(2);
/// Bytes that are read at once from either side.
const READ_BYTES: usize = 64 * 1024;

/// Puts the gateway before a control connection that has just been opened. The stream speaks HTTP/1.1; once it is dropped the gateway
/// ends.
pub(super) fn before(control: TcpStream) -> io::Result<UnixStream> {
    let peer = control.peer_addr()?;
    let (near, far) = UnixStream::pair()?;
    let (from, to) = far.into_split();
    let gateway = Gateway { peer, control: Some(control), session: None, from, to };
    tokio::task::spawn_local(gateway.run());
    Ok(near)
}

struct Gateway {
    peer: SocketAddr,
    /// The control connection, until the first request says who logs in by it.
    control: Option<TcpStream>,
    session: Option<Session>,
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
}

/// Whether the connection takes another request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Afterwards {
    Open,
    Close,
}

/// Why a request has no answer. The stream is closed then, in the middle of an answer or before it, which is what a broken
/// connection to an HTTP origin looks like.
struct Broken;

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Broken {
        Broken
    }
}

impl Gateway {
    async fn run(mut self) {
        let (mut scan, mut read) = (HeadScan::new(), Vec::new());
        while let Some(head) = next_head(&mut self.from, &mut scan, &mut read).await {
            let Gateway { peer, control, session, from, to } = &mut self;
            let answered = tokio::select! {
                answered = answer_one((*peer, control, session), &head, to) => answered,
                // A fetch that was given up ends the transfer at once.
                () = closed(from) => Err(Broken),
            };
            if !matches!(answered, Ok(Afterwards::Open)) {
                break;
            }
        }
        if let Some(session) = self.session.take() {
            let _ = tokio::time::timeout(QUIT_WITHIN, session.quit()).await;
        }
    }
}

/// The next request; `None` where there is none, or none that can be read.
async fn next_head(from: &mut OwnedReadHalf, scan: &mut HeadScan, read: &mut Vec<u8>) -> Option<RequestHead> {
    loop {
        if let Parsed::Complete { head, len } = scan.request(read, &HeadLimits::default()).ok()? {
            read.drain(..len);
            return Some(head);
        }
        if from.read_buf(read).await.ok()? == 0 {
            return None;
        }
    }
}

/// Waits until the other end is closed. Once the next request is here nothing is waited for: the body of the answer is over then.
async fn closed(from: &OwnedReadHalf) {
    while from.readable().await.is_ok() {
        let peek = || SockRef::from(from.as_ref()).peek(&mut [MaybeUninit::uninit()]);
        match from.as_ref().try_io(Interest::READABLE, peek) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(1..) => return std::future::pending().await,
            _ => return,
        }
    }
}

async fn answer_one(
    (peer, control, session): (SocketAddr, &mut Option<TcpStream>, &mut Option<Session>),
    head: &RequestHead,
    to: &mut OwnedWriteHalf,
) -> Result<Afterwards, Broken> {
    let mut answer = Answer::to(head, to);
    match find(peer, control, session, head).await {
        Ok((session, path)) => session.serve(&path, head, &mut answer).await,
        Err(Refusal::Broken) => Err(Broken),
        Err(refusal) => answer.refuse(&refusal).await,
    }
}

/// The session by which this request is answered, logged in as it says, and the path that it asks for.
async fn find<'a>(
    peer: SocketAddr,
    control: &mut Option<TcpStream>,
    session: &'a mut Option<Session>,
    head: &RequestHead,
) -> Result<(&'a mut Session, FtpPath), Refusal> {
    if !matches!(head.method, Method::Get | Method::Head) {
        return Err(Refusal::Method);
    }
    if head.fields.get("Content-Length").is_some_and(|length| length != b"0")
        || head.fields.contains("Transfer-Encoding")
    {
        return Err(Refusal::Request("a body with a GET means nothing to an FTP server"));
    }
    let Target::Origin(path) = &head.target else { return Err(Refusal::Request("the target is no path")) };
    let path = FtpPath::of(path).map_err(Refusal::Request)?;
    let login = Login::of(&head.fields).map_err(Refusal::Request)?;
    // A connection that is logged in as one user answers nothing for another.
    if session.as_ref().is_some_and(|session| !session.is_of(&login)) {
        *session = None;
    }
    if session.is_none() {
        let stream = match control.take() {
            Some(stream) => stream,
            None => TcpStream::connect(peer).await.map_err(|_| Refusal::Broken)?,
        };
        *session = Some(Session::begin(stream, login).await?);
    }
    session.as_mut().map(|session| (session, path)).ok_or(Refusal::Broken)
}
