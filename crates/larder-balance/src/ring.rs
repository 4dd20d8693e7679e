//! A ring of hashes: a key leads to the first member behind it, and where a member comes or goes only its own keys move.

use crate::hash::{hash, hash_with};
use crate::settings::Member;

/// Points on the ring for a member of the least weight. More points spread keys more evenly: with 128 the shares of equal
/// members differ by some 9 % (one standard deviation).
const POINTS_PER_WEIGHT: u32 = 128;
/// Points of all members together.
const POINTS_MAX: u32 = 1 << 17;

/// Members on a ring, by their places in the group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ring {
    points: Vec<(u64, usize)>,
}

impl Ring {
    pub fn new(members: &[Member]) -> Ring {
        let unit = members.iter().map(|member| member.weight).fold(0, greatest_common_divisor).max(1);
        let total: u64 = members.iter().map(|member| u64::from(member.weight / unit)).sum();
        let fits = u64::from(POINTS_MAX) / total.max(1);
        let each = u64::from(POINTS_PER_WEIGHT).min(fits).max(1);
        let mut points = Vec::new();
        for (at, member) in members.iter().enumerate() {
            let name = hash(member.name.as_bytes());
            let many = (u64::from(member.weight / unit) * each).clamp(1, u64::from(POINTS_MAX));
            points.extend((0..many).map(|number| (hash_with(name, &number.to_le_bytes()), at)));
        }
        points.sort_unstable();
        Ring { points }
    }

    /// The first member behind a key that is wanted.
    pub fn find(&self, key: u64, mut is_wanted: impl FnMut(usize) -> bool) -> Option<usize> {
        let start = self.points.partition_point(|(hash, _)| *hash < key);
        let (before, behind) = self.points.split_at(start);
        behind.iter().chain(before).map(|(_, at)| *at).find(|at| is_wanted(*at))
    }
}

fn greatest_common_divisor(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(names: &[(&str, u32)]) -> Vec<Member> {
        let member = |(name, weight): &(&str, u32)| Member {
            name: (*name).into(),
            weight: *weight,
            is_backup: false,
            requests_max: 1,
        };
        names.iter().map(member).collect()
    }

    fn owner(ring: &Ring, members: &[Member], key: u64) -> String {
        members[ring.find(hash(&key.to_le_bytes()), |_| true).unwrap()].name.clone()
    }

    #[test]
    fn shares_follow_weights() {
        let members = members(&[("a", 300), ("b", 100), ("c", 100)]);
        let ring = Ring::new(&members);
        let of_a = (0..10_000).filter(|key| owner(&ring, &members, *key) == "a").count();
        assert!((5_000..7_000).contains(&of_a), "{of_a}");
    }

    #[test]
    fn only_the_keys_of_a_member_that_goes_move() {
        let (all, fewer) = (members(&[("a", 1), ("b", 1), ("c", 1)]), members(&[("a", 1), ("c", 1)]));
        let (before, after) = (Ring::new(&all), Ring::new(&fewer));
        for key in 0..10_000 {
            let was = owner(&before, &all, key);
            assert!(was == "b" || was == owner(&after, &fewer, key), "{key}");
        }
        // Where it may not be asked, its keys go where they would go without it.
        for key in 0..10_000 {
            let found = before.find(hash(&u64::to_le_bytes(key)), |at| at != 1).map(|at| all[at].name.clone());
            assert_eq!(found, Some(owner(&after, &fewer, key)));
        }
    }

    #[test]
    fn an_empty_ring_and_extreme_weights_are_bounded() {
        assert_eq!(Ring::new(&[]).find(3, |_| true), None);
        let members = members(&[("a", u32::MAX), ("b", 1)]);
        assert!(Ring::new(&members).points.len() <= 2 * POINTS_MAX as usize);
    }
}
