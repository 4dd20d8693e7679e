//! Networks as sources write them.

use ipnet::{IpNet, Ipv4Net, Ipv4Subnets, Ipv6Subnets};
use std::net::IpAddr;

/// `10.0.0.0/8`, `10.0.0.0/255.0.0.0`, `10.0.0.1-10.0.0.9`, `10.0.0.1`.
pub fn parse(text: &str) -> Option<Vec<IpNet>> {
    if let Some((first, last)) = text.split_once('-') {
        let (last, mask) = last.split_once('/').map_or((last, None), |(last, mask)| (last, Some(mask)));
        // With a mask every network counts of which an address is between them.
        let whole = |address: &str| match mask {
            Some(mask) => parse(&format!("{address}/{mask}"))?.first().copied(),
            None => address.parse::<IpAddr>().ok().map(IpNet::from),
        };
        return match (whole(first)?.network(), whole(last)?.broadcast()) {
            (IpAddr::V4(first), IpAddr::V4(last)) if first <= last => {
                Some(Ipv4Subnets::new(first, last, 0).map(IpNet::V4).collect())
            }
            (IpAddr::V6(first), IpAddr::V6(last)) if first <= last => {
                Some(Ipv6Subnets::new(first, last, 0).map(IpNet::V6).collect())
            }
            _ => None,
        };
    }
    if let Some((address, mask)) = text.split_once('/') {
        let address: IpAddr = address.trim_matches(['[', ']']).parse().ok().or_else(|| short(address))?;
        let net = match (address, mask.parse::<u8>().ok(), mask.parse::<IpAddr>().ok()) {
            (_, Some(length), _) => IpNet::new(address, length).ok()?,
            (IpAddr::V4(address), _, Some(IpAddr::V4(mask))) => IpNet::V4(Ipv4Net::with_netmask(address, mask).ok()?),
            _ => return None,
        };
        return Some(vec![net.trunc()]);
    }
    text.trim_matches(['[', ']']).parse::<IpAddr>().ok().map(|address| vec![IpNet::from(address)])
}

/// `10.0` for 10.0.0.0, as old configurations have it before a mask.
fn short(text: &str) -> Option<IpAddr> {
    let parts: Vec<&str> = text.split('.').filter(|part| !part.is_empty()).collect();
    let missing = 4_usize.checked_sub(parts.len()).filter(|missing| *missing > 0)?;
    format!("{}{}", parts.join("."), ".0".repeat(missing)).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_networks() {
        for (text, wanted) in [
            ("10.1.2.3", Some("10.1.2.3/32")),
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("10.1.2.3/255.255.0.0", Some("10.1.0.0/16")),
            ("10/8", Some("10.0.0.0/8")),
            ("10.0.0.4-10.0.0.7", Some("10.0.0.4/30")),
            ("10.0.0.4-10.0.0.7/24", Some("10.0.0.0/24")),
            ("10.0.4.1-10.0.5.9/255.255.255.0", Some("10.0.4.0/23")),
            ("[::1]", Some("::1/128")),
            ("fe80::/10", Some("fe80::/10")),
            ("10.0.0.9-10.0.0.1", None),
            ("10.0.0.0/255.0.255.0", None),
            ("10.0.0.0/40", None),
            ("a.test", None),
        ] {
            let found = parse(text).map(|nets| nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
            assert_eq!(found.as_deref(), wanted, "{text}");
        }
    }
}
