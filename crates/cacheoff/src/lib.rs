//! Cacheoff, the referee for web caches: robots on one side, origins on the other, and whatever lies between them is
//! judged. It knows nothing of the insides of any cache.
//!
//! Public is what `main.rs` and the tests in `tests/` use; everything else stays within the crate.

mod board;
mod bundle;
mod ceiling;
mod chart;
pub mod cli;
pub mod contest;
mod control;
pub mod distribution;
pub mod engine;
mod gzip;
mod history;
mod journal;
pub mod kill;
pub mod ledger;
mod link;
mod list;
mod merge;
mod msl;
pub mod object;
mod official;
pub mod origin;
pub mod pages;
mod plan;
mod power_cut;
pub mod proc;
mod progress;
mod proof;
mod random;
mod record;
mod report;
pub mod robot;
pub mod run;
pub mod schedule;
mod simulate;
mod stop;
mod tls;
mod wire;
mod workload;
