//! One body on its way through a coder.

use super::Place;
use crate::clock;
use bytes::Bytes;
use flate2::write::GzEncoder;
use larder_cache::policy::Coding;
use std::io::{self, Write};
use std::time::Duration;

/// Codes one body. All of its work is for the processor alone, so it may be moved to another thread between two steps.
pub struct Coder {
    coding: Coding,
    encoder: Encoder,
    /// The body's bytes so far.
    pub bytes_read: u64,
    /// The bytes that they have become.
    pub bytes_written: u64,
    /// The time of the processor.
    pub took: Duration,
    _place: Place,
}

enum Encoder {
    Gzip(GzEncoder<Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
    /// It has ended, or failed.
    Over,
}

/// The bytes of one step of work.
pub enum Step {
    /// These bytes follow, and others after them.
    Goes(Vec<Bytes>),
    /// These bytes follow, and the next ones are late: what came so far goes out.
    Pauses(Vec<Bytes>),
    /// These bytes are the last ones.
    Ends(Vec<Bytes>),
}

/// The window of a coder, as a power of two: 256 KiB. Larger ones make text hardly shorter, and take memory for each body that
/// is coded. With one of less than 64 KiB this brotli takes thirty times as long (decision 109).
const WINDOW_LOG: u32 = 18;
/// Bytes that brotli hands over at once.
const BROTLI_BUFFER_BYTES: usize = 4096;

impl Coder {
    /// Begins a body. `length` is that of the body, where it is known.
    pub fn new(coding: Coding, level: u8, length: Option<u64>, place: Place) -> io::Result<Coder> {
        let level = u32::from(level);
        let encoder = match coding {
            Coding::Gzip => Encoder::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::new(level))),
            Coding::Brotli => {
                let writer = brotli::CompressorWriter::new(Vec::new(), BROTLI_BUFFER_BYTES, level, WINDOW_LOG);
                Encoder::Brotli(Box::new(writer))
            }
            Coding::Zstd => {
                let level = i32::try_from(level).unwrap_or(i32::MAX);
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level)?;
                encoder.window_log(WINDOW_LOG)?;
                // Small tables do for a short body. That the body has this length is compared in the end.
                encoder.set_pledged_src_size(length)?;
                Encoder::Zstd(Box::new(encoder))
            }
        };
        Ok(Coder { coding, encoder, bytes_read: 0, bytes_written: 0, took: Duration::ZERO, _place: place })
    }

    /// The coding.
    pub fn coding(&self) -> Coding {
        self.coding
    }

    /// Does one step; gives the coded bytes that came of it, which may be none. After an error nothing more comes.
    pub fn step(&mut self, step: Step) -> io::Result<Bytes> {
        let began = clock::instant();
        let result = self.work(step);
        self.took += clock::instant().saturating_duration_since(began);
        if result.is_err() {
            self.encoder = Encoder::Over;
        }
        let coded = result?;
        self.bytes_written += coded.len() as u64;
        // A vector that has grown may have nearly twice the memory of its bytes, which is all that the store counts.
        Ok(coded.into_boxed_slice().into())
    }

    fn work(&mut self, step: Step) -> io::Result<Vec<u8>> {
        let (pieces, pauses, ends) = match step {
            Step::Goes(pieces) => (pieces, false, false),
            Step::Pauses(pieces) => (pieces, true, false),
            Step::Ends(pieces) => (pieces, false, true),
        };
        for piece in &pieces {
            self.bytes_read += piece.len() as u64;
            self.writer()?.write_all(piece)?;
        }
        if ends {
            return match std::mem::replace(&mut self.encoder, Encoder::Over) {
                Encoder::Gzip(encoder) => encoder.finish(),
                Encoder::Brotli(encoder) => Ok(encoder.into_inner()),
                Encoder::Zstd(encoder) => encoder.finish(),
                Encoder::Over => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        if pauses {
            self.writer()?.flush()?;
        }
        Ok(match &mut self.encoder {
            Encoder::Gzip(encoder) => std::mem::take(encoder.get_mut()),
            Encoder::Brotli(encoder) => std::mem::take(encoder.get_mut()),
            Encoder::Zstd(encoder) => std::mem::take(encoder.get_mut()),
            Encoder::Over => Vec::new(),
        })
    }

    fn writer(&mut self) -> io::Result<&mut dyn Write> {
        match &mut self.encoder {
            Encoder::Gzip(encoder) => Ok(encoder),
            Encoder::Brotli(encoder) => Ok(encoder),
            Encoder::Zstd(encoder) => Ok(encoder),
            Encoder::Over => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::UnderWay;
    use super::*;
    use proptest::prelude::*;
    use std::io::Read;

    fn decoded(coding: Coding, coded: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::MultiGzDecoder::new(coded).read_to_end(&mut body).map(|_| ()),
            Coding::Brotli => brotli::Decompressor::new(coded, 4096).read_to_end(&mut body).map(|_| ()),
            Coding::Zstd => zstd::stream::copy_decode(coded, &mut body),
        }
        .expect("a whole body");
        body
    }

    fn coder(coding: Coding, level: u8, length: Option<u64>) -> Coder {
        Coder::new(coding, level, length, UnderWay::new(1).begin(1).unwrap()).unwrap()
    }

    #[test]
    fn a_body_becomes_shorter_and_comes_back() {
        let line = b"a line that comes again and again, as lines of text do\n".as_slice();
        let body = line.repeat(4_000);
        for coding in Coding::ALL {
            let mut coder = coder(coding, 5, Some(body.len() as u64));
            let coded = coder.step(Step::Ends(vec![body.clone().into()])).unwrap();
            assert!(coded.len() * 10 < body.len(), "{coding:?} {}", coded.len());
            assert_eq!((coder.bytes_read, coder.bytes_written), (body.len() as u64, coded.len() as u64));
            assert_eq!(decoded(coding, &coded), body);
            assert!(coder.step(Step::Ends(Vec::new())).is_err(), "it is over");
        }
    }

    #[test]
    fn a_pause_lets_all_out_that_came() {
        for coding in Coding::ALL {
            let mut coder = coder(coding, 5, None);
            let first = coder.step(Step::Pauses(vec!["the head of a page".into()])).unwrap();
            let mut seen = Vec::new();
            // The decoder gets no more than this.
            let _ = match coding {
                Coding::Gzip => flate2::read::GzDecoder::new(&first[..]).read_to_end(&mut seen),
                Coding::Brotli => brotli::Decompressor::new(&first[..], 1).read_to_end(&mut seen),
                Coding::Zstd => zstd::stream::read::Decoder::new(&first[..]).unwrap().read_to_end(&mut seen),
            };
            assert_eq!(seen, b"the head of a page", "{coding:?}");
        }
    }

    #[test]
    fn coded_bytes_take_no_more_memory_than_they_are() {
        let mut seed = 1_u64;
        let next = |_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 56) as u8
        };
        // Noise becomes no shorter, so that the vector grows and grows.
        let body: Vec<u8> = (0..70_000).map(next).collect();
        for coding in Coding::ALL {
            let coded = coder(coding, 5, None).step(Step::Ends(vec![body.clone().into()])).unwrap();
            let length = coded.len();
            assert_eq!(coded.try_into_mut().unwrap().capacity(), length, "{coding:?}");
        }
    }

    proptest! {
        #[test]
        fn any_body_in_any_pieces_comes_back(
            pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), 1usize..200, 0u8..3), 0..12),
            coding in prop::sample::select(Coding::ALL.to_vec()),
            level in 1u8..=9,
            is_known: bool,
        ) {
            let body: Vec<u8> = pieces.iter().flat_map(|(piece, times, _)| piece.repeat(*times)).collect();
            let mut coder = coder(coding, level, is_known.then_some(body.len() as u64));
            let mut coded = Vec::new();
            for (piece, times, pause) in &pieces {
                let bytes = vec![Bytes::from(piece.repeat(*times))];
                let step = if *pause == 0 { Step::Pauses(bytes) } else { Step::Goes(bytes) };
                coded.extend_from_slice(&coder.step(step).unwrap());
            }
            coded.extend_from_slice(&coder.step(Step::Ends(Vec::new())).unwrap());
            prop_assert_eq!(coder.bytes_read, body.len() as u64);
            prop_assert_eq!(decoded(coding, &coded), body);
        }
    }
}
