//! Counts of the limits that clients of HTTP/2 and HTTP/3 have met, each by its word.

use crate::tally::Counters;
use crate::{h2, h3};
use std::sync::atomic::{AtomicU64, Ordering};

/// Those of HTTP/2.
pub fn of_http2(counters: &Counters) -> [(&'static str, u64); 6] {
    [
        (h2::Flood::RapidReset.as_str(), &counters.http2_rapid_resets),
        (h2::Flood::MadeReset.as_str(), &counters.http2_made_resets),
        (h2::Flood::Control.as_str(), &counters.http2_control_floods),
        (h2::Flood::SmallData.as_str(), &counters.http2_small_data_floods),
        (h2::Flood::WindowUpdate.as_str(), &counters.http2_window_floods),
        (h2::Flood::FieldBlock.as_str(), &counters.http2_block_floods),
    ]
    .map(read)
}

/// Those of HTTP/3, with those of handshakes.
pub fn of_http3(counters: &Counters) -> [(&'static str, u64); 6] {
    [
        ("retry", &counters.http3_retries),
        ("handshakes", &counters.http3_handshakes_ignored),
        (h3::Flood::RapidReset.as_str(), &counters.http3_rapid_resets),
        (h3::Flood::MadeReset.as_str(), &counters.http3_made_resets),
        (h3::Flood::Control.as_str(), &counters.http3_control_floods),
        (h3::Flood::SmallData.as_str(), &counters.http3_small_data_floods),
    ]
    .map(read)
}

fn read((limit, count): (&'static str, &AtomicU64)) -> (&'static str, u64) {
    (limit, count.load(Ordering::Relaxed))
}
