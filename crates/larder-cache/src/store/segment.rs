//! A segment as bytes, and where it lies: head, records, room, summary, trailer.
//!
//! ```text
//! | head 64 | records … | … | summary: 16 bytes a record | trailer 64 |
//! ```
//!
//! The head names the store and the sequence, that is the life, of the segment; everything else in it is of this
//! life or counts for nothing. Summary and trailer are written when it is full and its records are on disk; without
//! them it is read record by record. A segment of another store, or of no sequence, is free.

use crc32c::crc32c;

use super::locations::{Location, RECORD_BYTES_MAX, SEGMENTS_MAX};
use super::record::{u32_at, u64_at};
use super::superblock::{Identity, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};

/// Before the first record.
pub const HEAD_BYTES: u64 = 64;
/// At the very end.
pub const TRAILER_BYTES: u64 = 64;
/// A record in the summary.
pub const SUMMARY_ENTRY_BYTES: u64 = 16;
/// One to write, one being recycled, and two to keep something in.
pub const SEGMENTS_MIN: u64 = 4;

const FILE_BYTES_MAX: u64 = 1 << 30;
const HEAD_MAGIC: u32 = 0x4753_644c;
const TRAILER_MAGIC: u32 = 0x5453_644c;

/// How a folder's budget is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// How many there may be.
    pub segments: u32,
}

impl Geometry {
    /// For a budget, with segments of a given size or of the size that suits it. `None`: it is too small.
    pub fn new(disk_bytes: u64, segment_bytes: Option<u64>) -> Option<Geometry> {
        let fitting = (disk_bytes / 16).max(1);
        let fitting = (1 << fitting.ilog2()).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let segment_bytes = segment_bytes.unwrap_or(fitting);
        // The small files beside the data have their share.
        let segments = (disk_bytes - disk_bytes / 64) / segment_bytes;
        let segments = segments.min(SEGMENTS_MAX) as u32;
        (u64::from(segments) >= SEGMENTS_MIN).then_some(Geometry { segment_bytes, segments })
    }

    /// Segments in one file.
    pub fn segments_per_file(&self) -> u32 {
        (FILE_BYTES_MAX / self.segment_bytes) as u32
    }

    /// How many files there may be.
    pub fn files(&self) -> u32 {
        self.segments.div_ceil(self.segments_per_file())
    }

    /// The file of a segment, and where it begins there.
    pub fn place(&self, segment: u32) -> (u32, u64) {
        let per_file = self.segments_per_file();
        (segment / per_file, u64::from(segment % per_file) * self.segment_bytes)
    }

    /// The longest record: half a segment, so that a segment that is recycled always frees room for one.
    pub fn record_bytes_max(&self) -> u64 {
        RECORD_BYTES_MAX.min(self.segment_bytes / 2 - HEAD_BYTES - TRAILER_BYTES)
    }

    /// Whether a record fits behind others.
    pub fn fits(&self, filled: u64, records: usize, record_bytes: u64) -> bool {
        let summary = (records as u64 + 1) * SUMMARY_ENTRY_BYTES;
        filled + record_bytes + summary + TRAILER_BYTES <= self.segment_bytes
    }
}

/// The name of a data file.
pub fn file_name(file: u32) -> String {
    format!("data-{file:03}")
}

/// The number of a data file, by its name.
pub fn file_number(name: &str) -> Option<u32> {
    name.strip_prefix("data-").filter(|digits| digits.len() >= 3)?.parse().ok()
}

/// The description of a segment at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHead {
    /// The store that it belongs to.
    pub identity: Identity,
    /// Its life; never 0, never given twice.
    pub sequence: u64,
    /// Ids given while it was written are below.
    pub ids_below: u64,
    /// So are the numbers of invalidation rules.
    pub rules_below: u64,
}

impl SegmentHead {
    /// As bytes.
    pub fn encode(&self) -> [u8; HEAD_BYTES as usize] {
        let mut bytes = [0; HEAD_BYTES as usize];
        bytes[0..4].copy_from_slice(&HEAD_MAGIC.to_le_bytes());
        self.identity.write(&mut bytes[4..36]);
        bytes[36..44].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[44..52].copy_from_slice(&self.ids_below.to_le_bytes());
        bytes[52..60].copy_from_slice(&self.rules_below.to_le_bytes());
        let crc = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// From bytes; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<SegmentHead> {
        let bytes = bytes.get(..HEAD_BYTES as usize)?;
        if u32_at(bytes, 0) != HEAD_MAGIC || u32_at(bytes, 60) != crc32c(&bytes[..60]) {
            return None;
        }
        let identity = Identity::read(&bytes[4..36])?;
        Some(SegmentHead {
            identity,
            sequence: u64_at(bytes, 36),
            ids_below: u64_at(bytes, 44),
            rules_below: u64_at(bytes, 52),
        })
    }
}

/// The description of a sealed segment at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// The life that was sealed.
    pub sequence: u64,
    /// Records in the summary.
    pub records: u32,
    /// The lowest epoch of its heads; the largest number without heads.
    pub epoch_min: u64,
    /// The highest id.
    pub id_max: u64,
    summary_crc: u32,
}

impl Trailer {
    /// The summary and the trailer, as they end a segment; and where they begin in it.
    pub fn write(
        sequence: u64,
        epoch_min: u64,
        id_max: u64,
        records: &[Location],
        segment_bytes: u64,
    ) -> (u64, Vec<u8>) {
        let mut bytes: Vec<u8> = records.iter().flat_map(|each| each.to_bytes()).collect();
        let summary_crc = crc32c(&bytes);
        let start = bytes.len();
        bytes.extend_from_slice(&TRAILER_MAGIC.to_le_bytes());
        bytes.extend_from_slice(&(records.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&sequence.to_le_bytes());
        bytes.extend_from_slice(&epoch_min.to_le_bytes());
        bytes.extend_from_slice(&id_max.to_le_bytes());
        bytes.extend_from_slice(&summary_crc.to_le_bytes());
        bytes.resize(start + 60, 0);
        let crc = crc32c(&bytes[start..]);
        bytes.extend_from_slice(&crc.to_le_bytes());
        (segment_bytes - bytes.len() as u64, bytes)
    }

    /// From the last bytes of a segment; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Trailer> {
        if bytes.len() != TRAILER_BYTES as usize
            || u32_at(bytes, 0) != TRAILER_MAGIC
            || u32_at(bytes, 60) != crc32c(&bytes[..60])
        {
            return None;
        }
        Some(Trailer {
            records: u32_at(bytes, 4),
            sequence: u64_at(bytes, 8),
            epoch_min: u64_at(bytes, 16),
            id_max: u64_at(bytes, 24),
            summary_crc: u32_at(bytes, 32),
        })
    }

    /// Bytes of the summary before it.
    pub fn summary_bytes(&self) -> u64 {
        u64::from(self.records) * SUMMARY_ENTRY_BYTES
    }

    /// The records, from the bytes of the summary; `None` if these are not what was written.
    pub fn records(&self, summary: &[u8], segment: u32, geometry: &Geometry) -> Option<Vec<Location>> {
        if crc32c(summary) != self.summary_crc {
            return None;
        }
        let (entries, _) = summary.as_chunks::<{ SUMMARY_ENTRY_BYTES as usize }>();
        let inside = |each: &Location| each.offset() < geometry.segment_bytes;
        Some(entries.iter().map(|bytes| Location::from_bytes(bytes, segment)).filter(inside).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::locations::Name;
    use super::super::record::Kind;
    use super::*;

    #[test]
    fn a_budget_is_cut() {
        let cut = |disk_bytes| Geometry::new(disk_bytes, None).map(|cut| (cut.segment_bytes >> 10, cut.segments));
        let cases = [
            (0, None),
            (1 << 20, None),
            (2 << 20, Some((256, 7))),
            (4 << 20, Some((256, 15))),
            (10_000_000, Some((512, 18))),
            (1 << 30, Some((8192, 126))),
            (20_000_000_000, Some((8192, 2346))),
            (1 << 60, Some((8192, 1 << 20))),
        ];
        for (disk_bytes, expected) in cases {
            assert_eq!(cut(disk_bytes), expected, "{disk_bytes}");
        }
        let large = Geometry::new(3 << 30, None).unwrap();
        assert_eq!((large.files(), large.place(127), large.place(128)), (3, (0, 127 * (8 << 20)), (1, 0)));
    }

    #[test]
    fn files_have_numbers() {
        assert_eq!(file_name(7), "data-007");
        let cases =
            [("data-007", Some(7)), ("data-1234", Some(1234)), ("data-1", None), ("data-x12", None), ("lock", None)];
        for (name, expected) in cases {
            assert_eq!(file_number(name), expected, "{name}");
        }
    }

    #[test]
    fn head_and_trailer_come_back_and_changed_ones_do_not() {
        let identity = Identity { uuid: 1 << 100 | 3, hash_seed: 99, segment_bytes: 8 << 20 };
        let head = SegmentHead { identity, sequence: 12, ids_below: 1 << 40, rules_below: 9 };
        let mut bytes = head.encode();
        assert_eq!(SegmentHead::decode(&bytes), Some(head));
        bytes[40] ^= 1;
        assert_eq!(SegmentHead::decode(&bytes), None);

        let geometry = Geometry::new(1 << 30, None).unwrap();
        let records = [8u64, 80, 800].map(|at| Location::new(Name::of_head(at << 16, 1), Kind::Head, at, 3, at, 70));
        let (start, mut bytes) = Trailer::write(12, 4, 800, &records, geometry.segment_bytes);
        assert_eq!(start + 3 * 16 + 64, geometry.segment_bytes);
        let (summary, end) = bytes.split_at(48);
        let trailer = Trailer::decode(end).unwrap();
        assert_eq!((trailer.sequence, trailer.records, trailer.epoch_min, trailer.id_max), (12, 3, 4, 800));
        assert_eq!(trailer.records(summary, 3, &geometry).unwrap(), records);
        bytes[5] ^= 1;
        assert_eq!(trailer.records(&bytes[..48], 3, &geometry), None);
        bytes[60] ^= 1;
        assert_eq!(Trailer::decode(&bytes[48..]), None);
    }
}
