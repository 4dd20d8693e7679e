//! Notes of the way to an origin where it leads through parents, to a sibling, or to a node of the cluster: which was taken, and which led
//! nowhere.

use crate::config::next_hop::{DIRECT, HopsOrder};
use crate::config::parent::{Parent, Sibling};
use std::fmt;
use std::sync::Arc;

/// The way of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WayNote {
    /// The way that was taken; `None` where all led nowhere.
    pub taken: Option<TakenWay>,
    /// The parents that were tried before it in vain, and why.
    pub failed: Vec<(Arc<Parent>, Box<str>)>,
    /// The parents that were passed over at first, because they had failed of late.
    pub left_out: Vec<Arc<Parent>>,
    /// The nodes of the cluster that were asked in vain, and why.
    pub homes_failed: Vec<(Arc<str>, &'static str)>,
}

/// A way that was taken.
#[derive(Clone, Debug, PartialEq)]
pub enum TakenWay {
    /// Through a parent, chosen in this order.
    Parent(Arc<Parent>, ParentOrder),
    /// To a sibling, which has the response.
    Sibling(Arc<Sibling>),
    /// To the node of the cluster that is the home of the key, or stands in for it.
    Home(Arc<str>),
    /// To the origin itself, for no parent led there, or no node answered.
    Direct,
}

/// Why a parent was asked before others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentOrder {
    /// By the order of those that can be connected to.
    By(HopsOrder),
    /// No other led to the origin, so those were tried that had failed of late.
    AllDead,
}

/// Longer reasons are cut: thousands of notes are kept.
const REASON_BYTES_MAX: usize = 200;
/// Parents of each kind that are kept in a note.
const PARENTS_MAX: usize = 4;

impl WayNote {
    /// A parent led nowhere.
    pub fn failed(&mut self, parent: &Arc<Parent>, why: &str) {
        if self.failed.len() < PARENTS_MAX {
            self.failed.push((Arc::clone(parent), super::ring::beginning(why, REASON_BYTES_MAX).into()));
        }
    }

    /// A parent was not tried.
    pub fn left_out(&mut self, parent: &Arc<Parent>) {
        if self.left_out.len() < PARENTS_MAX {
            self.left_out.push(Arc::clone(parent));
        }
    }
}

impl TakenWay {
    /// Squid's word for it, and the host that was asked; `None`: the origin.
    pub fn in_squid(&self) -> (&'static str, Option<&str>) {
        match self {
            TakenWay::Direct => ("HIER_DIRECT", None),
            TakenWay::Sibling(sibling) => ("SIBLING_HIT", Some(sibling.url.host.as_str())),
            TakenWay::Home(name) => ("SIBLING_HIT", Some(name)),
            TakenWay::Parent(parent, order) => {
                let word = match order {
                    ParentOrder::By(HopsOrder::Listed) => "FIRSTUP_PARENT",
                    ParentOrder::By(HopsOrder::Carp) => "CARP",
                    ParentOrder::By(HopsOrder::Hit) => "PARENT_HIT",
                    ParentOrder::By(HopsOrder::FirstMiss) => "FIRST_PARENT_MISS",
                    ParentOrder::AllDead => "ANY_OLD_PARENT",
                };
                (word, Some(parent.url.host.as_str()))
            }
        }
    }
}

/// The words of the log and of explanations: `parent office`, `sibling second`, `node cache-2`, `direct`.
impl fmt::Display for TakenWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TakenWay::Parent(parent, _) => write!(f, "parent {}", parent.name),
            TakenWay::Sibling(sibling) => write!(f, "sibling {}", sibling.name),
            TakenWay::Home(name) => write!(f, "node {name}"),
            TakenWay::Direct => f.write_str(DIRECT),
        }
    }
}
