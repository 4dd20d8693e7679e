//! Laws of the streams and field sections of HTTP/3.

use larder_wire::h2::hpack::FieldList;
use larder_wire::h3::control::{Control, ControlReader};
use larder_wire::h3::message::{MessageReader, Step};
use larder_wire::h3::{ErrorCode, H3Fault, Scope, qpack};

/// Bytes of a list, and of a section, that a small peer permits.
const LIST_BYTES_MAX: usize = 400;
const SECTION_BYTES_MAX: usize = 100;

/// All that was read of the stream of a request.
#[derive(Debug, Default, PartialEq)]
struct Message {
    steps: Vec<Step>,
    sections: Vec<Vec<u8>>,
    body: Vec<u8>,
    end: Option<Result<(), H3Fault>>,
}

fn message_in_pieces(bytes: &[u8], piece: usize) -> Message {
    let (mut reader, mut read) = (MessageReader::new(SECTION_BYTES_MAX), Message::default());
    for mut rest in bytes.chunks(piece) {
        while !rest.is_empty() {
            let (step, taken) = match reader.read(rest) {
                Ok(step) => step,
                Err(fault) => {
                    read.end = Some(Err(fault));
                    return read;
                }
            };
            assert!(taken > 0 && taken <= rest.len() && reader.section_bytes() <= SECTION_BYTES_MAX);
            match step {
                Step::Some => {}
                Step::Data => read.body.extend_from_slice(&rest[..taken]),
                step => read.steps.push(step),
            }
            if matches!(step, Step::Head | Step::Trailers) {
                read.sections.push(reader.section().to_vec());
                reader.forget_section();
            }
            rest = &rest[taken..];
        }
    }
    read.end = Some(reader.end());
    read
}

/// Any bytes as the stream of a request: it is the same in one piece and in small ones, has one head at most, and trailers behind that.
pub fn message(bytes: &[u8]) {
    let whole = message_in_pieces(bytes, usize::MAX);
    for piece in [1, 7] {
        assert_eq!(message_in_pieces(bytes, piece), whole, "in pieces of {piece}");
    }
    let of = |wanted: Step| whole.steps.iter().filter(|step| **step == wanted).count();
    assert!(of(Step::Head) <= 1 && of(Step::Trailers) <= 1 && of(Step::TooLong) <= 2, "{whole:?}");
    assert!(whole.body.is_empty() || of(Step::Head) + of(Step::TooLong) > 0, "{whole:?}");
    if let Some(Err(fault)) = whole.end {
        assert!(fault.scope == Scope::Connection || fault.code == ErrorCode::RequestIncomplete, "{fault}");
    }
}

fn control_in_pieces(bytes: &[u8], piece: usize) -> (Vec<Control>, Option<H3Fault>) {
    let (mut reader, mut frames) = (ControlReader::default(), Vec::new());
    for mut rest in bytes.chunks(piece) {
        while !rest.is_empty() {
            match reader.read(rest) {
                Ok((frame, taken)) => {
                    assert!(taken > 0 && taken <= rest.len());
                    frames.extend(frame);
                    rest = &rest[taken..];
                }
                Err(fault) => return (frames, Some(fault)),
            }
        }
    }
    (frames, None)
}

/// Any bytes as a control stream: it is the same in one piece and in small ones, and SETTINGS come first and once.
pub fn control(bytes: &[u8]) {
    let whole = control_in_pieces(bytes, usize::MAX);
    for piece in [1, 7] {
        assert_eq!(control_in_pieces(bytes, piece), whole, "in pieces of {piece}");
    }
    let are_settings = |frame: &Control| matches!(frame, Control::Settings(_));
    assert!(whole.0.iter().enumerate().all(|(at, frame)| are_settings(frame) == (at == 0)), "{whole:?}");
    assert!(whole.1.is_none_or(|fault| fault.scope == Scope::Connection), "{whole:?}");
}

/// Any bytes as a field section: a list is as long as permitted, and what it says can be said again.
pub fn qpack(bytes: &[u8]) {
    let (mut list, mut all) = (FieldList::default(), FieldList::default());
    let decoded = qpack::decode(bytes, LIST_BYTES_MAX, &mut list);
    assert_eq!(qpack::decode(bytes, usize::MAX, &mut all), decoded);
    if let Err(fault) = decoded {
        return assert_eq!((fault.scope, fault.code), (Scope::Connection, ErrorCode::QpackDecompression));
    }
    let size: usize = list.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
    assert!(size <= LIST_BYTES_MAX);
    assert!(list.iter().zip(all.iter()).all(|(kept, said)| kept == said));
    assert_eq!(list.len() < all.len(), list.is_too_long());
    let (mut section, mut again) = (Vec::new(), FieldList::default());
    qpack::write_prefix(&mut section);
    for (name, value) in list.iter() {
        qpack::write_field(&mut section, name, value, value.len().is_multiple_of(2));
    }
    assert_eq!(qpack::decode(&section, usize::MAX, &mut again), Ok(()));
    let small: Vec<_> = list.iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    assert!(again.iter().eq(small.iter().map(|(name, value)| (&name[..], *value))));
}
