//! Faults that a test plants on purpose, to see that the simulation finds them (docs/simulation.md). None of this is in a build that
//! is no test.

#![cfg(test)]

use std::cell::Cell;

/// A fault that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A connection that becomes readable while it is served is not read again (`h1::slot`).
    LostWakeup,
    /// A memoised judgement leaves the key of the request before in its place (`h1::quick`).
    SwappedBody,
    /// A look for an idle connection that finds only closed ones leaves a permit taken (`upstream::permits`).
    LeakedPermit,
}

thread_local! {
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}

/// Plants a fault on this thread, or takes it away.
pub fn plant(fault: Option<Planted>) {
    PLANTED.set(fault);
}

/// Whether this fault is planted on this thread.
pub fn is(fault: Planted) -> bool {
    PLANTED.get() == Some(fault)
}
