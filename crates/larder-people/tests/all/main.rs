//! All integration tests of the crate as one program.

mod checks;
mod seeds;
