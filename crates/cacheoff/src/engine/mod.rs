//! Worker threads: a poll loop each, with its robots and its share of the origins; and what it costs them.

pub mod poll;
pub mod timers;
