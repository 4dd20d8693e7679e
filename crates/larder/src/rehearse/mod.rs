//! Rehearsals: what a configuration would do with the requests of an access log, without a socket; and requests that
//! nobody sent, for explanations.

mod line;
mod question;
mod replay;

pub use line::{Line, parse as parse_line};
pub use question::{Form, connect, request, response};
pub use replay::{Comparison, LineTrouble, Side, replay};

use larder_wire::parse::HeadLimits;

/// A rehearsal refuses no head for its size; the limits of the configuration are for peers.
const LIMITS: HeadLimits = HeadLimits { head_bytes_max: 1 << 20, target_bytes_max: 1 << 20, fields_max: 10_000 };
