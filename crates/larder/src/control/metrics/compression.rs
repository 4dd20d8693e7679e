//! The metrics of bodies that Larder codes (docs/compression.md).

use super::{Family, Samples, counter, gauge};
use crate::control::Admin;
use crate::tally::Counters;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of one coding.
struct OfCoding<'a> {
    coding: &'static str,
    bodies: &'a AtomicU64,
    read: &'a AtomicU64,
    written: &'a AtomicU64,
    micros: &'a AtomicU64,
}

fn each<T: Display>(admin: &Admin, samples: &mut Samples, value: impl Fn(&OfCoding<'_>) -> T) {
    let c: &Counters = &admin.common.counters;
    let all = [
        OfCoding {
            coding: "gzip",
            bodies: &c.gzip_bodies,
            read: &c.gzip_bytes_read,
            written: &c.gzip_bytes_written,
            micros: &c.gzip_micros,
        },
        OfCoding {
            coding: "br",
            bodies: &c.br_bodies,
            read: &c.br_bytes_read,
            written: &c.br_bytes_written,
            micros: &c.br_micros,
        },
        OfCoding {
            coding: "zstd",
            bodies: &c.zstd_bodies,
            read: &c.zstd_bytes_read,
            written: &c.zstd_bytes_written,
            micros: &c.zstd_micros,
        },
    ];
    all.iter().for_each(|of| samples.labelled("coding", of.coding, value(of)));
}

pub(super) const BODIES: Family = counter(
    "larder_compression_bodies_total",
    "Bodies that were coded on their way into the store, by coding.",
    |admin, samples| each(admin, samples, |of| of.bodies.load(Ordering::Relaxed)),
);

pub(super) const READ: Family = counter(
    "larder_compression_read_bytes_total",
    "Bytes of these bodies as they came, by coding.",
    |admin, samples| each(admin, samples, |of| of.read.load(Ordering::Relaxed)),
);

pub(super) const WRITTEN: Family = counter(
    "larder_compression_written_bytes_total",
    "Bytes of these bodies as they are stored, by coding.",
    |admin, samples| each(admin, samples, |of| of.written.load(Ordering::Relaxed)),
);

pub(super) const SECONDS: Family = counter(
    "larder_compression_seconds_total",
    "Seconds that coders worked on these bodies, by coding.",
    |admin, samples| each(admin, samples, |of| of.micros.load(Ordering::Relaxed) as f64 / 1e6),
);

pub(super) const REFUSED: Family = counter(
    "larder_compression_refused_total",
    "Bodies that were stored as they came because `limits.codings_max` were being coded.",
    |admin, samples| samples.one(admin.common.counters.codings_refused.load(Ordering::Relaxed)),
);

pub(super) const UNDER_WAY: Family =
    gauge("larder_compression_under_way", "Bodies that are being coded.", |admin, samples| {
        samples.one(admin.common.codings.count());
    });
