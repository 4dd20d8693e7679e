//! Whom a request of the forward proxy is sent to: parents, or the origin itself, in the order in which they are tried.

use super::Config;
use super::parent::is_this_machine;
use larder_wire::{Scheme, Url};
use std::sync::Arc;

/// The word for the origin itself among the names of parents.
pub const DIRECT: &str = "direct";

/// One of those that a request may be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// The `[[parent]]` at this place, from 0.
    Parent(u8),
    /// The origin itself.
    Direct,
    /// The origin itself, where the list has no parent for the scheme of the URL.
    DirectIfNone,
}

/// The choice of rules about one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HopsByRule {
    /// The hops, in place of those of `forward.parents` and `forward.direct`.
    pub instead: Option<Arc<[NextHop]>>,
    /// Hops that are left out.
    pub without: Arc<[NextHop]>,
}

impl HopsByRule {
    /// Whether it chooses nothing.
    pub fn is_empty(&self) -> bool {
        self.instead.is_none() && self.without.is_empty()
    }

    /// This choice, and then that of a later rule.
    pub fn and(&self, later: &HopsByRule) -> HopsByRule {
        HopsByRule {
            instead: later.instead.clone().or_else(|| self.instead.clone()),
            without: self.without.iter().chain(&*later.without).copied().collect(),
        }
    }
}

/// Why the first hop is the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HopsOrder {
    /// It is the first of a list.
    #[default]
    Listed,
    /// The URL has it, by CARP.
    Carp,
    /// It has said that it has the response.
    Hit,
    /// It was the first one to say that it does not have the response.
    FirstMiss,
}

/// Those that one request may be sent to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NextHops {
    /// In the order in which they are tried. Empty: the request can go nowhere.
    pub hops: Vec<NextHop>,
    /// Why the first one is the first one.
    pub order: HopsOrder,
}

impl NextHops {
    /// With this parent first, where it is one of them.
    pub fn with_first(mut self, first: u8, order: HopsOrder) -> NextHops {
        if let Some(at) = self.hops.iter().position(|hop| *hop == NextHop::Parent(first)) {
            let hop = self.hops.remove(at);
            self.hops.insert(0, hop);
            self.order = order;
        }
        self
    }

    /// The places of the parents among them.
    pub fn parents(&self) -> impl Iterator<Item = u8> + '_ {
        self.hops.iter().filter_map(|hop| match hop {
            NextHop::Parent(place) => Some(*place),
            NextHop::Direct | NextHop::DirectIfNone => None,
        })
    }

    /// The names of the parents, and `direct` for the origin.
    pub fn words(&self, config: &Config) -> Vec<String> {
        let name = |hop: &NextHop| match hop {
            NextHop::Parent(place) => config.parents.get(usize::from(*place)).map(|parent| parent.name.clone()),
            NextHop::Direct | NextHop::DirectIfNone => Some(DIRECT.to_owned()),
        };
        self.hops.iter().filter_map(name).collect()
    }
}

impl Config {
    /// Those that a request for this URL may be sent to; `None` where the origin is asked itself, and nobody else. A tunnel is asked for by
    /// a URL of https.
    pub fn next_hops(&self, url: &Url, by_rule: Option<&HopsByRule>) -> Option<NextHops> {
        let forward = &self.forward_parents;
        if by_rule.is_none() && forward.hops.is_empty() || url.host.is_local() || is_this_machine(&url.host) {
            return None;
        }
        let without = by_rule.map_or(&[][..], |by_rule| &by_rule.without);
        let is_left = |hop: &NextHop| !without.contains(hop);
        let instead = by_rule.and_then(|by_rule| by_rule.instead.as_deref());
        let found = match instead {
            Some(hops) => self.hops_for(hops, url.scheme),
            None if forward.hops.is_empty() => vec![NextHop::Direct],
            None if forward.is_direct(&url.host) && is_left(&NextHop::Direct) => return None,
            None => self.hops_for(&forward.hops, url.scheme),
        };
        let (hops, order) = match forward.carp_order(url).filter(|_| instead.is_none()) {
            Some(order) => (sorted(found, &order), HopsOrder::Carp),
            None => (found, HopsOrder::Listed),
        };
        let hops: Vec<NextHop> = hops.into_iter().filter(is_left).collect();
        (hops != [NextHop::Direct]).then_some(NextHops { hops, order })
    }

    /// The hops for URLs of this scheme: variables of the environment name a parent for one scheme each, and where there is none for it,
    /// the origin is asked.
    fn hops_for(&self, hops: &[NextHop], scheme: Scheme) -> Vec<NextHop> {
        let is_for = |hop: &NextHop| match hop {
            NextHop::Parent(place) => {
                self.parents.get(usize::from(*place)).is_some_and(|parent| parent.schemes.has(scheme))
            }
            NextHop::Direct => true,
            NextHop::DirectIfNone => false,
        };
        let found: Vec<NextHop> = hops.iter().filter(|hop| is_for(hop)).copied().collect();
        match found.is_empty() && hops.contains(&NextHop::DirectIfNone) {
            true => vec![NextHop::Direct],
            false => found,
        }
    }
}

/// The parents in this order, and the others behind them.
fn sorted(mut hops: Vec<NextHop>, order: &[NextHop]) -> Vec<NextHop> {
    hops.sort_by_key(|hop| order.iter().position(|other| other == hop).unwrap_or(usize::MAX));
    hops
}
