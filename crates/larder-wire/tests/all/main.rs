//! All integration tests of the crate as one program: linking is what takes the time.

mod bodies;
mod checks;
mod framing;
mod heads;
#[path = "../../../../fuzz/mutations.rs"]
mod mutations;
mod properties;
mod seeds;
mod urls;
