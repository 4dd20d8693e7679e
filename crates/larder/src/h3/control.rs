//! The client's streams in one direction (RFC 9114 section 6.2): its control stream, and those of QPACK.

use super::meters::Flood;
use super::{Link, number};
use crate::multiplexed::priority::{URGENCY_AT_FIRST, urgency};
use crate::ticker::Wait;
use larder_wire::h3::control::{Control, ControlReader, UniKind};
use larder_wire::h3::qpack::{InstructionSide, Instructions};
use larder_wire::h3::{ErrorCode, H3Fault, varint};
use quinn::{ReadError, RecvStream};
use std::cell::Cell;
use std::rc::Rc;

/// Bytes that are taken from QUIC at once.
const CHUNK_BYTES_MAX: usize = 16 * 1024;

/// The streams that the client has opened, each of which it may open once.
#[derive(Default)]
pub struct Opened {
    control: Cell<bool>,
    encoder: Cell<bool>,
    decoder: Cell<bool>,
}

/// Why a stream is read no further.
enum ReadEnd {
    /// The connection is gone.
    Gone,
    Fault(H3Fault),
}

impl From<H3Fault> for ReadEnd {
    fn from(fault: H3Fault) -> ReadEnd {
        ReadEnd::Fault(fault)
    }
}

/// Reads a stream for as long as it lasts.
pub async fn read(link: Rc<Link>, opened: Rc<Opened>, receive: RecvStream) {
    if let Err(ReadEnd::Fault(fault)) = read_kind(&link, &opened, receive).await {
        link.fault(fault);
    }
}

async fn read_kind(link: &Link, opened: &Opened, mut receive: RecvStream) -> Result<(), ReadEnd> {
    let env = link.env();
    let limit = env.config().timeouts.head;
    let kind = match env.ticker.timer().limit(limit, Wait::Busy, kind(&mut receive)).await {
        Ok(kind) => kind?,
        Err(_) => {
            let _ = receive.stop(number(ErrorCode::StreamCreation));
            None
        }
    };
    let Some(kind) = kind else {
        link.note(Flood::Control);
        return Ok(());
    };
    let once = |cell: &Cell<bool>| match cell.replace(true) {
        true => Err(H3Fault::connection(ErrorCode::StreamCreation, "a stream of a kind that is open already")),
        false => Ok(()),
    };
    match kind {
        UniKind::Control => {
            once(&opened.control)?;
            read_control(link, receive).await
        }
        UniKind::QpackEncoder => {
            once(&opened.encoder)?;
            read_instructions(link, receive, InstructionSide::Encoder).await
        }
        UniKind::QpackDecoder => {
            once(&opened.decoder)?;
            read_instructions(link, receive, InstructionSide::Decoder).await
        }
        UniKind::Push => Err(H3Fault::connection(ErrorCode::StreamCreation, "a push of a client").into()),
        UniKind::Unknown => {
            let _ = receive.stop(number(ErrorCode::StreamCreation));
            link.note(Flood::Control);
            Ok(())
        }
    }
}

/// The kind of a stream; `None` where it ends before, which means nothing (RFC 9114 section 6.2).
async fn kind(receive: &mut RecvStream) -> Result<Option<UniKind>, ReadEnd> {
    // Bytes behind the kind belong to the stream, so no more of them are taken than the kind has.
    let mut kind = Vec::with_capacity(varint::BYTES_MAX);
    loop {
        match receive.read_chunk(1, true).await {
            Ok(Some(chunk)) => kind.extend_from_slice(&chunk.bytes),
            Ok(None) | Err(ReadError::Reset(_)) => return Ok(None),
            Err(_) => return Err(ReadEnd::Gone),
        }
        if let Some((number, _)) = varint::read(&kind) {
            return Ok(Some(UniKind::of(number)));
        }
    }
}

/// The next bytes of a stream that lasts as long as its connection.
async fn chunk(receive: &mut RecvStream) -> Result<bytes::Bytes, ReadEnd> {
    match receive.read_chunk(CHUNK_BYTES_MAX, true).await {
        Ok(Some(chunk)) => Ok(chunk.bytes),
        Ok(None) | Err(ReadError::Reset(_)) => {
            let detail = "a stream ended that lasts as long as its connection";
            Err(H3Fault::connection(ErrorCode::ClosedCriticalStream, detail).into())
        }
        Err(_) => Err(ReadEnd::Gone),
    }
}

async fn read_control(link: &Link, mut receive: RecvStream) -> Result<(), ReadEnd> {
    let mut reader = ControlReader::default();
    loop {
        let mut bytes = chunk(&mut receive).await?;
        while !bytes.is_empty() {
            let (frame, taken) = reader.read(&bytes)?;
            let _ = bytes.split_to(taken);
            match frame {
                None => {}
                Some(Control::Settings(settings)) => {
                    link.section_bytes_max.set(settings.field_section_bytes_max.unwrap_or(u64::MAX));
                }
                Some(Control::Priority(stream, value)) => {
                    link.note(Flood::Control);
                    link.prioritise(stream, urgency(&value).unwrap_or(URGENCY_AT_FIRST))?;
                }
                Some(Control::GoAway(_) | Control::MaxPushId(_) | Control::Nothing) => link.note(Flood::Control),
            }
        }
    }
}

async fn read_instructions(link: &Link, mut receive: RecvStream, side: InstructionSide) -> Result<(), ReadEnd> {
    let mut instructions = Instructions::new(side);
    loop {
        let bytes = chunk(&mut receive).await?;
        for _ in 0..instructions.read(&bytes)? {
            link.note(Flood::Control);
        }
    }
}
