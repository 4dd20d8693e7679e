//! One record of the log, as bytes: a head (with a small body inside) or an extent of a body.
//!
//! ```text
//!  0  magic      u32     16 key hash        u64    56 key bytes    u32
//!  4  kind       u8      24 id              u64    60 meta bytes   u32
//!  5  flags      u8      32 length / offset u64    64 body bytes   u32
//!  6  tags       u16     40 variant         u64    68 payload crc  u32
//!  8  sequence   u64     48 epoch           u64    72 header crc   u32   76 zero
//! ```
//!
//! Behind the header: key, tags, meta, body; then zeros to a multiple of 8. All numbers are little-endian.
//! The sequence is that of the segment, so what an earlier life of a segment left behind is never taken for
//! a record of today. Nothing is handed out of here before both checksums were compared.

use bytes::Bytes;
use crc32c::{crc32c, crc32c_append};

use super::rules::Verdict;
use super::{DiskHead, HeadToStore, ObjectId};

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 80;
/// Records begin at multiples of this.
pub const ALIGN_BYTES: u64 = 8;

const MAGIC: u32 = 0x3152_644c;
const KIND_HEAD: u8 = 1;
const KIND_EXTENT: u8 = 2;
const HAS_LENGTH: u8 = 1;
const HAS_BODY: u8 = 2;

/// The kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A head without its body.
    Head,
    /// A head with its whole body.
    WholeHead,
    /// A piece of a body.
    Extent,
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the record.
    pub kind: Kind,
    /// The life of the segment that it belongs to.
    pub sequence: u64,
    /// The hash of the key, also for an extent: it leads to its head.
    pub key_hash: u64,
    /// The representation.
    pub id: u64,
    /// Extent: where it begins in the body.
    pub offset: u64,
    /// Head: the length of the whole body.
    pub length: Option<u64>,
    /// Head: the variant.
    pub variant: u64,
    /// Head: the number of the last invalidation rule when its fetch began.
    pub epoch: u64,
    tags: u16,
    key_bytes: u32,
    meta_bytes: u32,
    body_bytes: u32,
    payload_crc: u32,
}

impl Header {
    /// Reads and verifies a header; `None` for anything that is none.
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES] = bytes.get(..HEADER_BYTES)?.try_into().ok()?;
        if u32_at(bytes, 0) != MAGIC || u32_at(bytes, 72) != crc32c(&bytes[..72]) {
            return None;
        }
        let flags = bytes[5];
        let kind = match bytes[4] {
            KIND_HEAD if flags & HAS_BODY != 0 => Kind::WholeHead,
            KIND_HEAD => Kind::Head,
            KIND_EXTENT => Kind::Extent,
            _ => return None,
        };
        let place = u64_at(bytes, 32);
        Some(Header {
            kind,
            sequence: u64_at(bytes, 8),
            key_hash: u64_at(bytes, 16),
            id: u64_at(bytes, 24),
            offset: if kind == Kind::Extent { place } else { 0 },
            length: (kind != Kind::Extent && flags & HAS_LENGTH != 0).then_some(place),
            variant: u64_at(bytes, 40),
            epoch: u64_at(bytes, 48),
            tags: u16::from_le_bytes([bytes[6], bytes[7]]),
            key_bytes: u32_at(bytes, 56),
            meta_bytes: u32_at(bytes, 60),
            body_bytes: u32_at(bytes, 64),
            payload_crc: u32_at(bytes, 68),
        })
    }

    /// The header as it was before one bit of it was changed. `None` where that is not all that is wrong.
    pub fn decode_with_one_bit_wrong(bytes: &[u8]) -> Option<Header> {
        let mut bytes: [u8; HEADER_BYTES] = bytes.get(..HEADER_BYTES)?.try_into().ok()?;
        let (magic_bits, crc_bits) = (u32_at(&bytes, 0) ^ MAGIC, u32_at(&bytes, 72) ^ crc32c(&bytes[..72]));
        // The wrong bit is in the magic, in the checksum, or in neither.
        if magic_bits.count_ones() > 1 {
            return None;
        }
        if crc_bits.is_power_of_two() {
            let crc = crc32c(&bytes[..72]);
            bytes[72..76].copy_from_slice(&crc.to_le_bytes());
            return Header::decode(&bytes);
        }
        for bit in 0..72 * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Some(header) = Header::decode(&bytes) {
                return Some(header);
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        None
    }

    fn encode(&self) -> [u8; HEADER_BYTES] {
        let (kind, has_body) = match self.kind {
            Kind::Head => (KIND_HEAD, 0),
            Kind::WholeHead => (KIND_HEAD, HAS_BODY),
            Kind::Extent => (KIND_EXTENT, 0),
        };
        let has_length = if self.length.is_some() { HAS_LENGTH } else { 0 };
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4] = kind;
        bytes[5] = has_body | has_length;
        bytes[6..8].copy_from_slice(&self.tags.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.key_hash.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.id.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.length.unwrap_or(self.offset).to_le_bytes());
        bytes[40..48].copy_from_slice(&self.variant.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.key_bytes.to_le_bytes());
        bytes[60..64].copy_from_slice(&self.meta_bytes.to_le_bytes());
        bytes[64..68].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[68..72].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc32c(&bytes[..72]);
        bytes[72..76].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Header and payload, without the zeros behind.
    pub fn exact_bytes(&self) -> u64 {
        let payload = u64::from(self.tags) * 8
            + u64::from(self.key_bytes)
            + u64::from(self.meta_bytes)
            + u64::from(self.body_bytes);
        HEADER_BYTES as u64 + payload
    }

    /// Bytes that the record takes in its segment.
    pub fn record_bytes(&self) -> u64 {
        self.exact_bytes().next_multiple_of(ALIGN_BYTES)
    }

    /// Bytes of the body in this record.
    pub fn body_bytes(&self) -> u64 {
        u64::from(self.body_bytes)
    }

    /// Where a piece of a body lies in it.
    pub fn body_range(&self) -> std::ops::Range<u64> {
        self.offset..self.offset.saturating_add(u64::from(self.body_bytes))
    }
}

/// A head to be written, measured.
pub fn head_header(head: &HeadToStore, key_hash: u64) -> Option<Header> {
    let body_bytes = head.body.iter().flatten().map(|piece| piece.len() as u64).sum::<u64>();
    Some(Header {
        kind: if head.body.is_some() { Kind::WholeHead } else { Kind::Head },
        sequence: 0,
        key_hash,
        id: head.id.0,
        offset: 0,
        length: head.length,
        variant: head.variant,
        epoch: head.epoch,
        tags: head.tags.len().try_into().ok()?,
        key_bytes: head.key.len().try_into().ok()?,
        meta_bytes: head.meta.len().try_into().ok()?,
        body_bytes: body_bytes.try_into().ok()?,
        payload_crc: 0,
    })
}

/// A piece of a body to be written, measured.
pub fn extent_header(id: ObjectId, key_hash: u64, offset: u64, body_bytes: usize) -> Option<Header> {
    Some(Header {
        kind: Kind::Extent,
        sequence: 0,
        key_hash,
        id: id.0,
        offset,
        length: None,
        variant: 0,
        epoch: 0,
        tags: 0,
        key_bytes: 0,
        meta_bytes: 0,
        body_bytes: body_bytes.try_into().ok()?,
        payload_crc: 0,
    })
}

/// Appends header, key, tags and meta; the body follows as pieces of its own.
pub fn write_front(header: Header, head: Option<&HeadToStore>, body: &[Bytes], sequence: u64, into: &mut Vec<u8>) {
    let start = into.len();
    into.resize(start + HEADER_BYTES, 0);
    if let Some(head) = head {
        into.extend_from_slice(&head.key);
        head.tags.iter().for_each(|tag| into.extend_from_slice(&tag.to_le_bytes()));
        into.extend_from_slice(&head.meta);
    }
    let front_crc = crc32c(&into[start + HEADER_BYTES..]);
    let payload_crc = body.iter().fold(front_crc, |crc, piece| crc32c_append(crc, piece));
    let header = Header { sequence, payload_crc, ..header };
    into[start..start + HEADER_BYTES].copy_from_slice(&header.encode());
}

/// A record that was verified: its header, and the bytes that its parts are cut from.
#[derive(Clone, Debug)]
pub struct Record {
    /// The header.
    pub header: Header,
    payload: Bytes,
}

impl Record {
    /// Verifies a record that begins with these bytes; more may follow. It must be of this life of its segment.
    pub fn verify(header: &[u8], mut payload: Bytes, sequence: u64) -> Option<Record> {
        let header = Header::decode(header)?;
        let len = usize::try_from(header.exact_bytes()).ok()? - HEADER_BYTES;
        if header.sequence != sequence || payload.len() < len {
            return None;
        }
        payload.truncate(len);
        (crc32c(&payload) == header.payload_crc).then_some(Record { header, payload })
    }

    /// The text of a head's key.
    pub fn key(&self) -> &[u8] {
        &self.payload[..self.header.key_bytes as usize]
    }

    /// The hashes of a head's tags.
    pub fn tags(&self) -> Vec<u64> {
        let start = self.header.key_bytes as usize;
        let bytes = &self.payload[start..start + usize::from(self.header.tags) * 8];
        bytes.chunks_exact(8).map(|each| u64_at(each, 0)).collect()
    }

    /// The body, or the piece of it that is here.
    pub fn body(&self) -> Bytes {
        self.payload.slice(self.payload.len() - self.header.body_bytes as usize..)
    }

    /// As a head that was read.
    pub fn into_head(self) -> DiskHead {
        let header = self.header;
        let meta_end = self.payload.len() - header.body_bytes as usize;
        DiskHead {
            key: self.payload.slice(..header.key_bytes as usize),
            variant: header.variant,
            id: ObjectId(header.id),
            epoch: header.epoch,
            length: header.length,
            tags: self.tags(),
            meta: self.payload.slice(meta_end - header.meta_bytes as usize..meta_end),
            body: (header.kind == Kind::WholeHead).then(|| self.body()),
            verdict: Verdict::Valid,
        }
    }

    /// As a head to be written again.
    pub fn into_head_to_store(self) -> HeadToStore {
        let head = self.into_head();
        HeadToStore {
            key: head.key,
            variant: head.variant,
            id: head.id,
            epoch: head.epoch,
            length: head.length,
            tags: head.tags,
            meta: head.meta,
            body: head.body.map(|body| vec![body]),
        }
    }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(head: &HeadToStore, sequence: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let body = head.body.clone().unwrap_or_default();
        write_front(head_header(head, 77).unwrap(), Some(head), &body, sequence, &mut bytes);
        body.iter().for_each(|piece| bytes.extend_from_slice(piece));
        bytes
    }

    fn some_head() -> impl Strategy<Value = HeadToStore> {
        let bytes = |most| prop::collection::vec(any::<u8>(), 0..most).prop_map(Bytes::from);
        let body = prop::option::of(prop::collection::vec(bytes(900), 0..3));
        (
            bytes(200),
            any::<[u64; 3]>(),
            any::<Option<u64>>(),
            prop::collection::vec(any::<u64>(), 0..4),
            bytes(300),
            body,
        )
            .prop_map(|(key, [variant, id, epoch], length, tags, meta, body)| HeadToStore {
                key,
                variant,
                id: ObjectId(id),
                epoch,
                length,
                tags,
                meta,
                body,
            })
    }

    fn verified(bytes: impl Into<Bytes>, sequence: u64) -> Option<Record> {
        let bytes = bytes.into();
        Record::verify(&bytes, bytes.slice(HEADER_BYTES.min(bytes.len())..), sequence)
    }

    proptest! {
        #[test]
        fn a_head_comes_back_as_it_was(head in some_head(), sequence in any::<u64>(), more in 0usize..70) {
            let mut bytes = written(&head, sequence);
            let exact = bytes.len();
            bytes.resize(exact + more, 0xee);
            let record = verified(bytes, sequence).unwrap();
            prop_assert_eq!(record.header.exact_bytes(), exact as u64);
            prop_assert_eq!(record.header.key_hash, 77);
            let back = record.into_head();
            prop_assert_eq!(back.body.map(|body| body.to_vec()), head.body.map(|pieces| pieces.concat()));
            prop_assert_eq!((back.key, back.variant, back.id, back.epoch), (head.key, head.variant, head.id, head.epoch));
            prop_assert_eq!((back.length, back.tags, back.meta), (head.length, head.tags, head.meta));
        }

        #[test]
        fn one_wrong_byte_is_noticed(head in some_head(), at in any::<prop::sample::Index>(), change in 1u8..) {
            let mut bytes = written(&head, 5);
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            let padding = (76..80).contains(&at);
            prop_assert_eq!(verified(bytes, 5).is_some(), padding);
        }

        #[test]
        fn a_header_with_one_wrong_bit_says_what_it_said(head in some_head(), bit in 0usize..76 * 8, other in 0usize..76 * 8) {
            let sound = written(&head, 5);
            let mut bytes = sound.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Header::decode_with_one_bit_wrong(&bytes), Header::decode(&sound));
            bytes[other / 8] ^= 1 << (other % 8);
            let again = Header::decode_with_one_bit_wrong(&bytes);
            prop_assert!(again.is_none() || bit == other, "{:?}", again);
        }

        #[test]
        fn a_cut_record_is_none(head in some_head(), cut in any::<prop::sample::Index>()) {
            let bytes = written(&head, 5);
            let cut = cut.index(bytes.len());
            prop_assert!(verified(Bytes::from(bytes).slice(..cut), 5).is_none());
        }
    }

    #[test]
    fn an_extent_comes_back_and_another_life_of_the_segment_does_not() {
        let piece = Bytes::from_static(b"some bytes of a body");
        let header = extent_header(ObjectId(9), 77, 65_536, piece.len()).unwrap();
        let mut bytes = Vec::new();
        write_front(header, None, std::slice::from_ref(&piece), 3, &mut bytes);
        bytes.extend_from_slice(&piece);
        assert!(verified(bytes.clone(), 4).is_none());
        let record = verified(bytes, 3).unwrap();
        assert_eq!((record.header.kind, record.header.id), (Kind::Extent, 9));
        assert_eq!(record.header.body_range(), 65_536..65_556);
        assert_eq!(record.body(), piece);
        assert_eq!(record.header.record_bytes(), 104);
    }
}
