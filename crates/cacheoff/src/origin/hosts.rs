//! Addresses as ranges: those of the visible servers, and those that robots ask from.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::sync::Arc;

/// Addresses in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AddressRange {
    first: u32,
    last: u32,
}

/// Addresses that one range may hold.
const ADDRESSES_MAX: u32 = 1 << 20;

impl AddressRange {
    /// How many they are.
    pub fn count(&self) -> u32 {
        self.last - self.first + 1
    }

    /// The first one.
    pub fn first(&self) -> Ipv4Addr {
        self.first.into()
    }

    /// Whether an address is one of them.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&u32::from(address))
    }

    /// Whether an address is in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let address = |text: &str| {
            let parsed = text.trim().parse::<Ipv4Addr>();
            parsed
                .map(u32::from)
                .map_err(|_| format!("{text:?} is no IPv4 address: write 10.0.0.1 or 10.0.0.1-10.0.0.9"))
        };
        let (first, last) = (address(first)?, address(last)?);
        if last < first || last - first >= ADDRESSES_MAX {
            return Err(format!("{text}: a range goes upwards and has at most {ADDRESSES_MAX} addresses"));
        }
        Ok(Self { first, last })
    }
}

impl TryFrom<String> for AddressRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<AddressRange> for String {
    fn from(range: AddressRange) -> Self {
        range.to_string()
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => self.first().fmt(f),
            false => write!(f, "{}-{}", self.first(), Ipv4Addr::from(self.last)),
        }
    }
}

/// The addresses that were given for something; none where loopback has them all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Arc<[AddressRange]>);

impl Hosts {
    /// These.
    pub fn new(ranges: &[AddressRange]) -> Self {
        Self(ranges.into())
    }

    /// Whether none was given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is one of them.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        self.0.iter().any(|range| range.contains(address))
    }

    /// The address if there is one alone.
    pub fn only(&self) -> Option<Ipv4Addr> {
        match &self.0[..] {
            [range] if range.count() == 1 => Some(range.first()),
            _ => None,
        }
    }

    /// The address that a number has: they are counted through, and begin again.
    pub fn at(&self, number: u32) -> Option<Ipv4Addr> {
        let total: u64 = self.0.iter().map(|range| u64::from(range.count())).sum();
        let mut rest = u64::from(number).checked_rem(total)? as u32;
        for range in self.0.iter() {
            if rest < range.count() {
                return Some(Ipv4Addr::from(range.first + rest));
            }
            rest -= range.count();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_written() {
        for text in ["10.0.0.1", "10.0.0.1-10.0.1.0"] {
            assert_eq!(text.parse::<AddressRange>().unwrap().to_string(), text);
        }
        for wrong in ["", "10.0.0", "10.0.0.9-10.0.0.1", "0.0.0.0-255.255.255.255", "::1", "10.0.0.1-"] {
            assert!(wrong.parse::<AddressRange>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_go_through_all_addresses_and_begin_again() {
        let hosts = Hosts::new(&["10.0.0.1-10.0.0.2", "10.9.0.7"].map(|text| text.parse().unwrap()));
        let found: Vec<String> = (0..4).map(|number| hosts.at(number).unwrap().to_string()).collect();
        assert_eq!(found, ["10.0.0.1", "10.0.0.2", "10.9.0.7", "10.0.0.1"]);
        assert!(hosts.contains(Ipv4Addr::new(10, 9, 0, 7)) && !hosts.contains(Ipv4Addr::new(10, 0, 0, 3)));
        assert_eq!((Hosts::default().at(3), hosts.only()), (None, None));
    }
}
