//! Which member of a group of origins gets a request: balancing, ejection and recovery, slow start, budgets of retries and hedges.
//!
//! Values in, decisions out: no socket, no async, no clock. Time is an argument and randomness comes from a seed, so that a
//! simulation plays hours in milliseconds and again in the same way. [`Group`] is the whole of it; a caller asks it for a
//! [`Pick`], sends the request, and tells the group what became of it by the [`Ticket`] of the pick.
//! [`Rendezvous`] says which node of a cluster is the home of a key.

mod budget;
mod carp;
mod group;
mod hash;
mod health;
mod pick;
mod rendezvous;
mod report;
mod response_time;
mod ring;
mod settings;
mod threshold;
mod ticket;
mod verdict;

pub use carp::Carp;
pub use group::Group;
pub use hash::{hash, hash_with};
pub use pick::{NoMember, PassedOver, Pick, Request, Why};
pub use rendezvous::{Homed, Load, Rendezvous, SPILL_MAX, SPILL_PARTS, Spill};
pub use report::{Counts, GroupReport, MemberReport, MemberState};
pub use settings::{Admin, Balance, Checks, Eject, Hedge, Member, Retry, Settings};
pub use ticket::{MemberId, Ticket};
pub use verdict::is_request_to_blame;
