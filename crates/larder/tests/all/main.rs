//! The integration tests of the crate as one program, for linking is what takes the time; beside it the scenarios, and
//! the signals, which reach a whole process.

mod acme;
mod cluster;
mod config_files;
mod doors;
mod first_minutes;
mod http2;
mod http3;
mod icap;
mod import_sources;
mod no_intercept;
mod run_command;
mod seen;
mod tls_round_trips;
mod transparent;
