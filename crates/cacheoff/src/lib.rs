//! Cacheoff, the referee for web caches: robots on one side, origins on the other, and whatever lies between them is
//! judged. It knows nothing of the insides of any cache.

pub mod ceiling;
pub mod chart;
pub mod cli;
pub mod contest;
pub mod distribution;
pub mod downtime;
pub mod engine;
pub mod history;
pub mod ledger;
pub mod link;
pub mod list;
pub mod msl;
pub mod object;
pub mod origin;
pub mod plan;
pub mod proc;
pub mod progress;
pub mod proof;
pub mod random;
pub mod record;
pub mod report;
pub mod robot;
pub mod run;
pub mod schedule;
pub mod simulate;
pub mod stop;
pub mod tls;
pub mod wire;
pub mod workload;
