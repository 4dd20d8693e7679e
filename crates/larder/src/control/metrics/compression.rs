//! The metrics of bodies that Larder codes (docs/compression.md).

use super::{Family, Samples, counter, gauge};
use larder_cache::policy::Coding;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes the counts of the three codings.
fn each<T: Display>(samples: &mut Samples, [gzip, br, zstd]: [&AtomicU64; 3], value: impl Fn(u64) -> T) {
    for (coding, count) in [(Coding::Gzip, gzip), (Coding::Brotli, br), (Coding::Zstd, zstd)] {
        samples.labelled("coding", coding.as_str(), value(count.load(Ordering::Relaxed)));
    }
}

pub(super) const BODIES: Family = counter(
    "larder_compression_bodies_total",
    "Bodies that were coded on their way into the store, by coding.",
    |admin, samples| {
        let c = &admin.common.counters;
        each(samples, [&c.gzip_bodies, &c.br_bodies, &c.zstd_bodies], |many| many);
    },
);

pub(super) const READ: Family = counter(
    "larder_compression_read_bytes_total",
    "Bytes of these bodies as they came, by coding.",
    |admin, samples| {
        let c = &admin.common.counters;
        each(samples, [&c.gzip_bytes_read, &c.br_bytes_read, &c.zstd_bytes_read], |bytes| bytes);
    },
);

pub(super) const WRITTEN: Family = counter(
    "larder_compression_written_bytes_total",
    "Bytes of these bodies as they are stored, by coding.",
    |admin, samples| {
        let c = &admin.common.counters;
        each(samples, [&c.gzip_bytes_written, &c.br_bytes_written, &c.zstd_bytes_written], |bytes| bytes);
    },
);

pub(super) const SECONDS: Family = counter(
    "larder_compression_seconds_total",
    "Seconds that coders worked on these bodies, by coding.",
    |admin, samples| {
        let c = &admin.common.counters;
        each(samples, [&c.gzip_micros, &c.br_micros, &c.zstd_micros], |micros| micros as f64 / 1e6);
    },
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
