//! The only place that reads the clock.

use larder_wire::date::Stamp;
use std::time::{Duration, SystemTime};

/// The wall clock in whole seconds. A clock before 1970 reads as 0.
pub fn now() -> Stamp {
    Stamp(wall().as_secs())
}

/// The wall clock as time since 1970, for log lines.
pub fn wall() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
