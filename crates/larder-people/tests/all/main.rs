//! All integration tests of the crate as one program.

mod checks;
#[path = "../../../../fuzz/mutations.rs"]
mod mutations;
mod seeds;
