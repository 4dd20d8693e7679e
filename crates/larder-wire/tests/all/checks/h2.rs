//! Laws of frames and field blocks of HTTP/2.

use larder_wire::h2::frame::{self, Frame};
use larder_wire::h2::hpack::{self, Decoder, FieldList};
use larder_wire::h2::{ErrorCode, Scope};

/// Bytes of a list that a small peer permits.
const LIST_BYTES_MAX: usize = 400;
const PAYLOAD_BYTES_MAX: u32 = 64;

/// Any bytes as the frames of a peer: no beginning of a frame is one, and a frame takes the bytes that its head says.
pub fn frames(bytes: &[u8]) {
    let mut rest = bytes;
    while let Some(whole) = frame::frame_len(rest) {
        let read = frame::read(rest, PAYLOAD_BYTES_MAX);
        for cut in 0..whole.min(rest.len()) {
            match frame::read(&rest[..cut], PAYLOAD_BYTES_MAX) {
                Ok(None) => {}
                // A length is refused before its bytes have come.
                Err(fault) => assert_eq!((fault.scope, fault.code), (Scope::Connection, ErrorCode::FrameSize)),
                Ok(Some(frame)) => panic!("{frame:?} of {cut} bytes"),
            }
        }
        match read {
            Ok(None) => return assert!(rest.len() < whole),
            Ok(Some((read, len))) => {
                assert_eq!(len, whole);
                within(&read, len);
            }
            Err(fault) if fault.scope == Scope::Connection => return,
            Err(_) => assert!(rest.len() >= whole, "a fault of a stream takes its whole frame along"),
        }
        rest = &rest[whole..];
    }
}

fn within(frame: &Frame<'_>, len: usize) {
    match frame {
        Frame::Data { stream, data, flow_bytes, .. } => {
            assert!(*stream > 0 && data.len() <= *flow_bytes as usize);
            assert_eq!(*flow_bytes as usize + frame::HEAD_BYTES, len);
        }
        Frame::Headers { stream, fragment, .. } | Frame::Continuation { stream, fragment, .. } => {
            assert!(*stream > 0 && fragment.len() < len);
        }
        Frame::WindowUpdate { bytes, .. } => assert!(*bytes > 0),
        _ => {}
    }
}

/// Any bytes as field blocks of one connection, each behind a byte with its length: two decoders agree, a list is as long as permitted, and
/// what it says can be said again.
pub fn hpack(bytes: &[u8]) {
    let (mut one, mut other) = (Decoder::new(), Decoder::new());
    let mut rest = bytes;
    while let Some((length, behind)) = rest.split_first() {
        let (block, behind) = behind.split_at(behind.len().min(usize::from(*length)));
        rest = behind;
        let (mut list, mut all) = (FieldList::default(), FieldList::default());
        let decoded = one.decode(block, LIST_BYTES_MAX, &mut list);
        assert_eq!(other.decode(block, usize::MAX, &mut all), decoded);
        if let Err(fault) = decoded {
            return assert_eq!((fault.scope, fault.code), (Scope::Connection, ErrorCode::Compression));
        }
        let size: usize = list.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
        assert!(size <= LIST_BYTES_MAX);
        assert!(list.iter().zip(all.iter()).all(|(kept, said)| kept == said));
        assert_eq!(list.len() < all.len(), list.is_too_long());
        said_again(&list);
    }
}

fn said_again(list: &FieldList) {
    let mut block = Vec::new();
    for (name, value) in list.iter() {
        hpack::write_field(&mut block, name, value, value.len().is_multiple_of(2));
    }
    let (mut decoder, mut again) = (Decoder::new(), FieldList::default());
    assert_eq!(decoder.decode(&block, usize::MAX, &mut again), Ok(()));
    assert!(decoder.is_untouched());
    let small = |name: &[u8]| name.to_ascii_lowercase();
    assert!(
        again.iter().eq(list
            .iter()
            .map(|(name, value)| (small(name), value))
            .collect::<Vec<_>>()
            .iter()
            .map(|(name, value)| (&name[..], *value)))
    );
}
