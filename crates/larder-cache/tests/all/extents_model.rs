//! Extents against the plainest model there is: one optional byte per offset.

use std::ops::Range;

use bytes::Bytes;
use larder_cache::extents::{CHUNK_BYTES, Extents};
use proptest::prelude::*;

/// The byte that the object has at this offset; all pieces of one representation agree.
fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

fn piece(range: Range<u64>) -> Bytes {
    range.map(byte_at).collect::<Vec<u8>>().into()
}

const SPACE: u64 = 200;

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u64),
    Append(u64),
    DropBefore(u64),
    Compact,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..SPACE, 0..40u64).prop_map(|(at, len)| Step::Insert(at, len)),
        2 => (0..20u64).prop_map(Step::Append),
        1 => (0..SPACE).prop_map(Step::DropBefore),
        1 => Just(Step::Compact),
    ];
    prop::collection::vec(step, 1..40)
}

/// One flag per offset: present.
struct Model(Vec<bool>);

impl Model {
    fn fill(&mut self, range: Range<u64>) -> u64 {
        let mut filled = 0;
        for offset in range {
            filled += u64::from(!std::mem::replace(&mut self.0[offset as usize], true));
        }
        filled
    }

    fn present_from(&self, offset: u64) -> u64 {
        self.0[offset as usize..].iter().take_while(|&&present| present).count() as u64
    }

    fn holes(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut holes: Vec<Range<u64>> = Vec::new();
        for offset in range.filter(|&offset| !self.0[offset as usize]) {
            match holes.last_mut() {
                Some(last) if last.end == offset => last.end += 1,
                _ => holes.push(offset..offset + 1),
            }
        }
        holes
    }

    fn end(&self) -> u64 {
        self.0.iter().rposition(|&present| present).map_or(0, |last| last as u64 + 1)
    }
}

fn compare(extents: &Extents, model: &Model, range: Range<u64>, bytes_max: usize) {
    let from = range.start;
    assert_eq!(extents.end(), model.end());
    assert_eq!(extents.bytes(), model.0.iter().filter(|&&present| present).count() as u64);
    assert_eq!(extents.is_empty(), extents.bytes() == 0);
    assert_eq!(extents.present_from(from), model.present_from(from));
    assert_eq!(extents.covers(range.clone()), range.clone().all(|offset| model.0[offset as usize]));
    assert_eq!(extents.holes(range.clone()).collect::<Vec<_>>(), model.holes(range.clone()));

    let mut slices = Vec::new();
    let given = extents.slices(range.clone(), &mut slices);
    assert_eq!(given, model.present_from(from).min(range.end.saturating_sub(from)));
    assert!(slices.iter().all(|slice| !slice.is_empty()));
    assert_eq!(slices.concat(), piece(from..from + given));

    match extents.slice_at(from, bytes_max) {
        None => assert!(!model.0[from as usize]),
        Some(slice) => {
            assert!(model.0[from as usize] && slice.len() <= bytes_max && (bytes_max == 0 || !slice.is_empty()));
            assert_eq!(slice, piece(from..from + slice.len() as u64));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn extents_are_a_byte_map(steps in steps(), reads in prop::collection::vec((0..SPACE, 0..SPACE, 0..50usize), 1..10)) {
        let mut extents = Extents::new();
        let mut model = Model(vec![false; 2 * SPACE as usize + 1000]);
        for step in steps {
            match step {
                Step::Insert(at, len) => {
                    let added = extents.insert(at, piece(at..at + len));
                    prop_assert_eq!(added, model.fill(at..at + len));
                }
                Step::Append(len) => {
                    let at = extents.end();
                    prop_assert_eq!(extents.insert(at, piece(at..at + len)), len);
                    model.fill(at..at + len);
                }
                Step::DropBefore(offset) => {
                    // Whole pieces go: everything before the offset but a piece that reaches past it.
                    let before = extents.bytes();
                    let freed = extents.drop_before(offset);
                    prop_assert_eq!(before - freed, extents.bytes());
                    let kept_from = offset - count_back(&extents, offset);
                    prop_assert!(extents.holes(0..kept_from).eq((kept_from > 0).then_some(0..kept_from)));
                    model.0[..kept_from as usize].fill(false);
                }
                Step::Compact => {
                    extents.compact();
                    prop_assert!(extents.pieces() <= extents.holes(0..extents.end()).count() + 1, "small runs are one piece each");
                }
            }
            for &(start, end, bytes_max) in &reads {
                compare(&extents, &model, start..end, bytes_max);
            }
        }
    }

    #[test]
    fn compaction_changes_no_byte_and_is_done_once(sizes in prop::collection::vec((0..120_000usize, 0..3u8), 1..30)) {
        let mut extents = Extents::new();
        let mut at = 0;
        for (size, gap) in sizes {
            at += u64::from(gap == 0);
            extents.insert(at, piece(at..at + size as u64));
            at += size as u64;
        }
        let holes: Vec<_> = extents.holes(0..at).collect();
        let (bytes, end) = (extents.bytes(), extents.end());
        extents.compact();
        prop_assert_eq!((extents.bytes(), extents.end()), (bytes, end));
        prop_assert_eq!(extents.holes(0..at).collect::<Vec<_>>(), holes);
        let first = extents.holes(0..at).next().filter(|hole| hole.start == 0).map_or(0, |hole| hole.end);
        let mut slices = Vec::new();
        let given = extents.slices(first..at, &mut slices);
        prop_assert_eq!(slices.concat(), piece(first..first + given));

        let addresses = |extents: &Extents| {
            let mut all = Vec::new();
            let mut next = 0;
            while let Some(hole_end) = extents.holes(next..u64::MAX).next().map(|hole| if hole.start == next { hole.end } else { next }) {
                next = hole_end;
                next += extents.slices(next..u64::MAX, &mut all);
                if next >= extents.end() { break }
            }
            all.iter().map(|slice| (slice.as_ptr(), slice.len())).collect::<Vec<_>>()
        };
        let before = addresses(&extents);
        extents.compact();
        prop_assert_eq!(addresses(&extents), before, "a second compaction copies nothing");
    }
}

/// How many present bytes lie before the offset without a hole, when the offset itself is present.
fn count_back(extents: &Extents, offset: u64) -> u64 {
    let mut back = 0;
    while extents.slice_at(offset, 1).is_some() && back < offset && extents.covers(offset - back - 1..offset) {
        back += 1;
    }
    back
}

#[test]
fn an_object_of_small_pieces_becomes_few_exact_allocations() {
    let mut extents = Extents::new();
    let buffer = piece(0..200_000);
    for at in (0..200_000).step_by(1000) {
        extents.insert(at, buffer.slice(at as usize..at as usize + 1000));
    }
    assert_eq!(extents.pieces(), 200);
    extents.compact();
    assert_eq!(extents.pieces(), 200_000_usize.div_ceil(CHUNK_BYTES));
    assert!(buffer.is_unique(), "the read buffer is free again");
    let overhead = extents.heap_bytes() - 6 * CHUNK_BYTES as u64 - 3584;
    assert!(overhead <= 88 * extents.pieces() as u64, "{overhead}");
}

#[test]
fn one_small_slice_of_a_large_buffer_does_not_keep_the_buffer() {
    let buffer = piece(0..65_536);
    let mut extents = Extents::new();
    extents.insert(0, buffer.slice(100..700));
    assert!(!buffer.is_unique());
    extents.compact();
    assert!(buffer.is_unique());
    assert_eq!(extents.bytes(), 600);
}

#[test]
fn large_pieces_stay_where_they_are() {
    let large = piece(0..2 * CHUNK_BYTES as u64);
    let mut extents = Extents::new();
    extents.insert(0, large.clone());
    extents.insert(large.len() as u64, large.clone());
    extents.compact();
    assert_eq!(extents.pieces(), 2);
    assert_eq!(extents.slice_at(0, 1).map(|slice| slice.as_ptr()), Some(large.as_ptr()));
}

#[test]
fn offsets_at_the_end_of_the_number_line_do_no_harm() {
    let mut extents = Extents::new();
    assert_eq!(extents.insert(u64::MAX - 2, piece(0..10)), 2);
    assert_eq!(extents.insert(u64::MAX, piece(0..10)), 0);
    assert_eq!(extents.end(), u64::MAX);
    assert_eq!(extents.present_from(u64::MAX), 0);
    assert_eq!(extents.slice_at(u64::MAX - 1, usize::MAX).map(|slice| slice.len()), Some(1));
    assert!(extents.covers(u64::MAX - 2..u64::MAX));
    assert!(extents.holes(0..u64::MAX).eq(std::iter::once(0..u64::MAX - 2)));
    assert_eq!(extents.drop_before(u64::MAX), 2);
    assert!(extents.is_empty());
}

#[test]
fn a_window_slides_over_an_endless_stream_in_constant_memory() {
    let mut extents = Extents::new();
    let chunk = piece(0..1000);
    let mut heap_bytes_max = 0;
    for turn in 0..20_000u64 {
        extents.insert(turn * 1000, chunk.clone());
        extents.drop_before((turn * 1000).saturating_sub(16_000));
        heap_bytes_max = heap_bytes_max.max(extents.heap_bytes());
    }
    assert_eq!(extents.end(), 20_000_000);
    assert!(heap_bytes_max < 20_000, "{heap_bytes_max}");
}
