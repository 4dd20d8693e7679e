//! One ordered table of rules about requests, as a pure engine: facts go in, the numbers of the rules that hold come out.
//!
//! Rules are tried in order. A rule whose `do` has a verdict ends the table; a rule with effects alone adds them, and the next one is
//! tried. There is no socket, no async and no clock here: the time is a fact like the client's address, and a fact that has to be found
//! out first stops the judgement ([`Stop`]), which begins anew with it.
//!
//! Read in this order: [`rule`] (a rule as it is written), [`facts`] (the questions that a rule may ask), [`table`] (rules compiled into
//! one table), [`memo`] (verdicts that are remembered by path), [`rate`] and
//! [`bandwidth`] (limits of both), [`template`] (texts with placeholders).

// `println!` and its kin panic where nobody reads them.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod bandwidth;
mod bits;
pub mod facts;
mod glob_index;
mod host_index;
mod host_pattern;
mod interned;
pub mod media_type;
pub mod memo;
pub mod model;
mod moments;
mod name_pattern;
mod network_index;
mod networks;
pub mod never;
mod once_decoded;
mod path_pattern;
mod prefixes;
pub mod rate;
pub mod rule;
pub mod table;
pub mod template;
mod text_finder;
mod text_index;
pub mod values;
pub mod week;

pub use facts::{Facts, Slot, Slots, Stop};
pub use host_pattern::HostPattern;
pub use name_pattern::NamePattern;
pub use networks::{Networks, UNIX_CLIENTS, network};
pub use path_pattern::PathPattern;
pub use rule::{Do, Place, Rule, Verdict, When};
pub use table::{Matched, Table};
