//! Addresses: single ones, networks and ranges, as sorted ranges that do not touch.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses from the first to the last, both included, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressRange {
    /// IPv4.
    V4(u32, u32),
    /// IPv6.
    V6(u128, u128),
}

impl AddressRange {
    /// `10.0.0.1`, `10.0.0.0/8`, `10.0.0.1-10.0.0.9`, and IPv6 alike, also in brackets. Bits behind the prefix do not count.
    pub fn parse(text: &str) -> Option<AddressRange> {
        if let Some((first, last)) = text.split_once('-') {
            let (first, last) = (address(first.trim())?, address(last.trim())?);
            return match (first, last) {
                (IpAddr::V4(first), IpAddr::V4(last)) if first <= last => {
                    Some(AddressRange::V4(first.into(), last.into()))
                }
                (IpAddr::V6(first), IpAddr::V6(last)) if first <= last => {
                    Some(AddressRange::V6(first.into(), last.into()))
                }
                _ => None,
            };
        }
        let (text, bits) = text.split_once('/').map_or((text, None), |(text, bits)| (text, Some(bits)));
        match (address(text)?, bits) {
            (IpAddr::V4(address), None) => Some(AddressRange::V4(address.into(), address.into())),
            (IpAddr::V6(address), None) => Some(AddressRange::V6(address.into(), address.into())),
            (IpAddr::V4(address), Some(bits)) => {
                let bits = prefix(bits, u32::BITS)?;
                let host = u32::MAX.checked_shr(bits).unwrap_or(0);
                let first = u32::from(address) & !host;
                Some(AddressRange::V4(first, first | host))
            }
            (IpAddr::V6(address), Some(bits)) => {
                let bits = prefix(bits, u128::BITS)?;
                let host = u128::MAX.checked_shr(bits).unwrap_or(0);
                let first = u128::from(address) & !host;
                Some(AddressRange::V6(first, first | host))
            }
        }
    }

    /// The first address.
    pub fn first(self) -> IpAddr {
        match self {
            AddressRange::V4(first, _) => Ipv4Addr::from(first).into(),
            AddressRange::V6(first, _) => Ipv6Addr::from(first).into(),
        }
    }

    /// The last address.
    pub fn last(self) -> IpAddr {
        match self {
            AddressRange::V4(_, last) => Ipv4Addr::from(last).into(),
            AddressRange::V6(_, last) => Ipv6Addr::from(last).into(),
        }
    }
}

fn prefix(text: &str, bits_max: u32) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&bits| is_number && bits <= bits_max)
}

/// An address, as a host of a URL too. An IPv4 address inside an IPv6 one is meant as the IPv4 address.
pub fn address(text: &str) -> Option<IpAddr> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    inner.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// Ranges while they are gathered, and then in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    pub v4: Vec<(u32, u32)>,
    pub v6: Vec<(u128, u128)>,
}

impl Ranges {
    /// Sorts them, and joins those that overlap or touch.
    pub fn settle(&mut self) {
        settle(&mut self.v4, |last, first| last.checked_add(1).is_none_or(|next| next >= first));
        settle(&mut self.v6, |last, first| last.checked_add(1).is_none_or(|next| next >= first));
    }

    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// The range that has this address, once they are settled.
    pub fn find(&self, address: IpAddr) -> Option<AddressRange> {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                find(&self.v4, u32::from(address)).map(|(first, last)| AddressRange::V4(first, last))
            }
            IpAddr::V6(address) => {
                find(&self.v6, u128::from(address)).map(|(first, last)| AddressRange::V6(first, last))
            }
        }
    }
}

fn settle<T: Ord + Copy>(ranges: &mut Vec<(T, T)>, touches: impl Fn(T, T) -> bool) {
    ranges.sort_unstable();
    ranges.dedup_by(|later, earlier| {
        let joins = touches(earlier.1, later.0);
        if joins {
            earlier.1 = earlier.1.max(later.1);
        }
        joins
    });
    ranges.shrink_to_fit();
}

fn find<T: Ord + Copy>(ranges: &[(T, T)], number: T) -> Option<(T, T)> {
    let after = ranges.partition_point(|(first, _)| *first <= number);
    let found = ranges.get(after.checked_sub(1)?)?;
    (number <= found.1).then_some(*found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms() {
        for (text, wanted) in [
            ("10.0.0.1", Some(("10.0.0.1", "10.0.0.1"))),
            ("10.1.2.3/8", Some(("10.0.0.0", "10.255.255.255"))),
            ("0.0.0.0/0", Some(("0.0.0.0", "255.255.255.255"))),
            ("10.0.0.1 - 10.0.0.9", Some(("10.0.0.1", "10.0.0.9"))),
            ("2001:db8::/32", Some(("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"))),
            ("[::1]", Some(("::1", "::1"))),
            ("::ffff:10.0.0.1", Some(("10.0.0.1", "10.0.0.1"))),
            ("::/0", Some(("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"))),
            ("10.0.0.9-10.0.0.1", None),
            ("10.0.0.1-::1", None),
            ("10.0.0.0/33", None),
            ("10.0.0.0/+8", None),
            ("10.0.0/8", None),
            ("10.0.0.0/", None),
            ("example.com", None),
            ("", None),
        ] {
            let wanted = wanted.map(|(first, last)| (first.parse().unwrap(), last.parse().unwrap()));
            assert_eq!(AddressRange::parse(text).map(|range| (range.first(), range.last())), wanted, "{text}");
        }
    }

    proptest! {
        #[test]
        fn settled_ranges_have_what_one_of_them_has(
            ranges in prop::collection::vec((0u32..300, 0u32..40), 0..30),
            at_the_end in any::<bool>(),
        ) {
            let shift = if at_the_end { u32::MAX - 340 } else { 0 };
            let ranges: Vec<(u32, u32)> = ranges.iter().map(|(first, more)| (first + shift, first + more + shift)).collect();
            let mut all = Ranges::default();
            ranges.iter().for_each(|&(first, last)| {
                all.v4.push((first, last));
                all.v6.push((first.into(), last.into()));
            });
            all.settle();
            prop_assert!(all.v4.windows(2).all(|pair| pair[0].1 < pair[1].0 && pair[0].1 + 1 < pair[1].0));
            for number in 0..=340 {
                let number = number + shift;
                let wanted = ranges.iter().any(|(first, last)| (*first..=*last).contains(&number));
                prop_assert_eq!(all.find(Ipv4Addr::from(number).into()).is_some(), wanted);
                // Below 2^96 but for `::ffff:a.b.c.d`, so these stay IPv6 addresses.
                prop_assert_eq!(all.find(Ipv6Addr::from(u128::from(number)).into()).is_some(), wanted);
            }
        }
    }
}
