//! Clients by address: their connections and requests. A connection notes itself when it opens, when it ends and now
//! and then between, so that a request costs nothing.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// Clients that one worker remembers; further ones are counted as one, `0.0.0.0`.
const CLIENTS_MAX: usize = 4_096;

/// The counts of one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visitor {
    /// Connections that are open.
    pub open: u64,
    /// Requests so far.
    pub requests: u64,
}

/// The clients of one worker.
#[derive(Debug, Default)]
pub struct Visitors {
    by_address: RefCell<HashMap<IpAddr, Visitor>>,
}

impl Visitors {
    /// A connection opened.
    pub fn enter(&self, address: IpAddr) {
        self.with(address, |visitor| visitor.open += 1);
    }

    /// A connection ended.
    pub fn leave(&self, address: IpAddr) {
        self.with(address, |visitor| visitor.open = visitor.open.saturating_sub(1));
    }

    /// Requests came.
    pub fn requests(&self, address: IpAddr, many: u64) {
        self.with(address, |visitor| visitor.requests += many);
    }

    fn with(&self, address: IpAddr, change: impl FnOnce(&mut Visitor)) {
        let mut all = self.by_address.borrow_mut();
        let address = address.to_canonical();
        if let Some(known) = all.get_mut(&address) {
            return change(known);
        }
        let new = if all.len() < CLIENTS_MAX { address } else { IpAddr::from([0, 0, 0, 0]) };
        change(all.entry(new).or_default());
    }

    /// All of them at this moment.
    pub fn list(&self) -> Vec<(IpAddr, Visitor)> {
        self.by_address.borrow().iter().map(|(address, visitor)| (*address, *visitor)).collect()
    }
}

/// The clients of all workers together.
pub fn together<'a>(lists: impl Iterator<Item = &'a Vec<(IpAddr, Visitor)>>) -> BTreeMap<IpAddr, Visitor> {
    let mut sums: BTreeMap<IpAddr, Visitor> = BTreeMap::new();
    for (address, visitor) in lists.flatten() {
        let sum = sums.entry(*address).or_default();
        sum.open += visitor.open;
        sum.requests += visitor.requests;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_of_addresses_has_a_limit() {
        let visitors = Visitors::default();
        for number in 0..CLIENTS_MAX as u32 + 10 {
            visitors.enter(IpAddr::from((number + 1).to_be_bytes()));
        }
        let list = visitors.list();
        assert_eq!(list.len(), CLIENTS_MAX + 1);
        let sums = together([&list, &list].into_iter());
        assert_eq!(sums[&IpAddr::from([0, 0, 0, 0])].open, 20);
    }
}
