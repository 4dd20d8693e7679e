//! Networks of many rules, as one row of ranges: a lookup is one binary search.

use crate::Networks;
use crate::bits::{RuleList, RuleSet};
use std::net::IpAddr;

/// Networks, with the rules that have each.
#[derive(Clone, Debug, Default)]
pub(crate) struct NetworkIndex {
    v4: Vec<Range>,
    v6: Vec<Range>,
}

/// The rules that hold from this address on, up to the next range.
#[derive(Clone, Debug)]
struct Range {
    first: u128,
    rules: RuleList,
}

impl NetworkIndex {
    /// Of the networks of each rule.
    pub(crate) fn new<'a>(all: impl Iterator<Item = (u16, &'a Networks)>) -> NetworkIndex {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (rule, networks) in all {
            for net in networks.iter() {
                let ranges = if net.addr().is_ipv4() { &mut v4 } else { &mut v6 };
                ranges.push((number(net.network()), number(net.broadcast()), rule));
            }
        }
        NetworkIndex { v4: row(&v4), v6: row(&v6) }
    }

    /// Adds the rules that have a network with this address. An IPv4 client on a dual-stack listener comes as `::ffff:a.b.c.d` and is
    /// meant by the IPv4 networks.
    pub(crate) fn select(&self, address: IpAddr, into: &mut RuleSet) {
        let address = address.to_canonical();
        let row = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        let after = row.partition_point(|range| range.first <= number(address));
        if let Some(range) = after.checked_sub(1).and_then(|at| row.get(at)) {
            into.add_all(&range.rules);
        }
    }
}

/// Walks over the ends of all ranges in order, and keeps the rules that are open.
fn row(ranges: &[(u128, u128, u16)]) -> Vec<Range> {
    let mut ends: Vec<(u128, u16, i32)> = Vec::new();
    for (first, last, rule) in ranges {
        ends.push((*first, *rule, 1));
        if let Some(behind) = last.checked_add(1) {
            ends.push((behind, *rule, -1));
        }
    }
    ends.sort_unstable_by_key(|(at, rule, _)| (*at, *rule));
    let mut open: std::collections::BTreeMap<u16, i32> = std::collections::BTreeMap::new();
    let mut row: Vec<Range> = Vec::new();
    for (at, rule, change) in ends {
        *open.entry(rule).or_default() += change;
        open.retain(|_, count| *count > 0);
        let rules: RuleList = open.keys().copied().collect();
        match row.last_mut() {
            Some(last) if last.first == at => last.rules = rules,
            _ => row.push(Range { first: at, rules }),
        }
    }
    row
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}
