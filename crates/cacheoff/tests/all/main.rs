//! All integration tests of the crate as one program: linking is what takes the time.

mod entries;
mod guides;
mod hold;
mod lies;
mod official;
mod pages;
mod power_cut;
mod streams;
mod traces;
mod trouble;
