//! The home of a key: rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998) with weights.
//! Each member has a score for each key, and the best one has the key. Members that have the same table choose the same homes, in
//! whatever order they know one another; one that leaves gives up its own keys alone, and one that joins takes those alone that it has
//! from then on.
//!
//! [`Carp`](crate::Carp) is the same idea with a weak hash, in which the order of the members counts: where one leaves, keys of the
//! others move. `Ring` spreads keys less evenly.
//!
//! A member that has more than its share to do hands on a part of its keys: [`Spill`] says how many, and all members know it.

use crate::hash::hash_with;

/// Parts that a member's keys are in, of which it can hand on some.
pub const SPILL_PARTS: u8 = 16;

/// The most that a member hands on: three quarters.
pub const SPILL_MAX: u8 = 12;

/// A member has more than its share to do above so many hundredths of it.
const LOAD_PERCENT_MAX: u64 = 125;

/// With fewer requests a second of all members together, a share says nothing.
const LOAD_MIN: u64 = 50;

/// Told apart from the hash that gives a member its score, so that the keys which it hands on are not its best or worst ones.
const SPILL_SEED: u64 = 0x7370_696c_6c65_6421;

/// A member as its keys see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Homed {
    /// Its name.
    pub name: String,
    /// Its share of the keys, in any unit; 0 counts as 1.
    pub weight: u64,
    /// It is near: those that are not are chosen after all of these.
    pub is_near: bool,
    /// How many of the [`SPILL_PARTS`] of its keys it hands on.
    pub spill: u8,
}

/// Members, prepared for the choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rendezvous {
    members: Vec<Prepared>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Prepared {
    hash: u64,
    weight: f64,
    is_near: bool,
    spill: u8,
}

/// Chosen in this order: the near ones, in each group those that do not hand on the key, of these the best score.
#[derive(Clone, Copy)]
struct Rank {
    is_far: bool,
    hands_on: bool,
    score: f64,
    hash: u64,
    place: usize,
}

impl Rendezvous {
    /// Prepares a table of members.
    pub fn new(members: &[Homed]) -> Rendezvous {
        let prepare = |member: &Homed| Prepared {
            hash: crate::hash(member.name.as_bytes()),
            weight: member.weight.max(1) as f64,
            is_near: member.is_near,
            spill: member.spill.min(SPILL_MAX),
        };
        Rendezvous { members: members.iter().map(prepare).collect() }
    }

    /// The places of the members for a key, its home first.
    pub fn order(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        let mut ranks: Vec<Rank> = Vec::with_capacity(self.members.len());
        for (place, member) in self.members.iter().enumerate() {
            let hands_on = member.spill > 0 && hands_on(member, key);
            let (score, hash) = (score(member, key), member.hash);
            ranks.push(Rank { is_far: !member.is_near, hands_on, score, hash, place });
        }
        // Equal scores: the order must not depend on the places.
        ranks.sort_unstable_by(|one, other| {
            let of_group = (one.is_far, one.hands_on).cmp(&(other.is_far, other.hands_on));
            of_group.then(other.score.total_cmp(&one.score)).then(one.hash.cmp(&other.hash))
        });
        ranks.into_iter().map(|rank| rank.place)
    }
}

/// Weighted rendezvous: the logarithm has each member win as often as its weight says.
fn score(member: &Prepared, key: u64) -> f64 {
    let drawn = hash_with(member.hash, &key.to_le_bytes());
    // Above 0 and below 1.
    let share = ((drawn >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -member.weight / share.ln()
}

fn hands_on(member: &Prepared, key: u64) -> bool {
    let drawn = hash_with(member.hash ^ SPILL_SEED, &key.to_le_bytes());
    (drawn % u64::from(SPILL_PARTS)) < u64::from(member.spill)
}

/// How many parts of its keys a member hands on, by the load of all: bounded load (Mirrokni, Thorup and Zadimoghaddam, 2018) for members
/// that see one another's load twice a second. A member is held below 1.25 times its share, and takes its keys back once it has less than
/// its share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spill(u8);

/// Requests a second and the weight, of one member or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests a second.
    pub requests: u64,
    /// The weight.
    pub weight: u64,
}

impl Spill {
    /// The parts that are handed on now.
    pub fn parts(self) -> u8 {
        self.0
    }

    /// Looks at the load once more: one part more or less, so that keys move a few at a time.
    pub fn look(&mut self, own: Load, all: Load) {
        let share = u128::from(all.requests) * u128::from(own.weight.max(1));
        let load = u128::from(own.requests) * u128::from(all.weight.max(1));
        let is_above = load.saturating_mul(100) > share.saturating_mul(u128::from(LOAD_PERCENT_MAX));
        if all.requests >= LOAD_MIN && is_above {
            self.0 = (self.0 + 1).min(SPILL_MAX);
        } else if load < share || all.requests < LOAD_MIN {
            self.0 = self.0.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::hash;

    const KEYS: u64 = 20_000;

    fn keys() -> impl Iterator<Item = u64> {
        (0..KEYS).map(|number| hash(format!("http://host-{}.example/{number}", number % 97).as_bytes()))
    }

    fn member(name: &str, weight: u64) -> Homed {
        Homed { name: name.to_owned(), weight, is_near: true, spill: 0 }
    }

    fn members(many: usize) -> Vec<Homed> {
        (0..many).map(|number| member(&format!("cache-{number}"), 1)).collect()
    }

    fn homes(members: &[Homed]) -> Vec<String> {
        let table = Rendezvous::new(members);
        keys().map(|key| members[table.order(key).next().unwrap()].name.clone()).collect()
    }

    fn share_of(homes: &[String], name: &str) -> f64 {
        homes.iter().filter(|home| *home == name).count() as f64 / homes.len() as f64
    }

    #[test]
    fn a_member_that_leaves_or_joins_moves_its_own_keys_alone() {
        for many in [2, 3, 10, 30] {
            let all = members(many);
            let before = homes(&all);
            for gone in [0, many / 2, many - 1] {
                let left: Vec<Homed> = all.iter().filter(|it| it.name != all[gone].name).cloned().collect();
                let after = homes(&left);
                let pairs = || before.iter().zip(&after);
                let moved = pairs().filter(|(was, is)| was != is).count() as f64 / KEYS as f64;
                assert!(moved <= 1.0 / many as f64 + 0.05, "{moved} of {many}");
                assert!(pairs().all(|(was, is)| was == is || *was == all[gone].name), "keys of others moved");
            }
        }
    }

    #[test]
    fn shares_follow_weights() {
        for weights in [[1, 1, 1, 1], [1, 2, 3, 4], [100, 1, 50, 49], [1 << 40, 1 << 40, 1 << 41, 1 << 40]] {
            let all: Vec<Homed> = ["a", "b", "c", "d"].iter().zip(weights).map(|(name, it)| member(name, it)).collect();
            let (homes, total) = (homes(&all), weights.iter().sum::<u64>() as f64);
            for each in &all {
                let (found, wanted) = (share_of(&homes, &each.name), each.weight as f64 / total);
                assert!((found - wanted).abs() < 0.02, "{}: {found}, not {wanted} ({weights:?})", each.name);
            }
        }
    }

    #[test]
    fn all_who_have_the_same_table_agree() {
        let mut all = members(7);
        all[2].spill = 5;
        let here = homes(&all);
        all.reverse();
        assert_eq!(homes(&all), here, "in whatever order they know one another");
        all.swap(1, 4);
        assert_eq!(homes(&all), here);
    }

    #[test]
    fn near_members_come_before_all_others() {
        let mut all = members(6);
        all.iter_mut().skip(2).for_each(|far| far.is_near = false);
        let table = Rendezvous::new(&all);
        for key in keys() {
            let order: Vec<usize> = table.order(key).collect();
            assert!(order[..2].iter().all(|place| *place < 2) && order.len() == 6, "{order:?}");
        }
        assert_eq!(Rendezvous::new(&[]).order(3).next(), None);
        let extreme = [member("a", 0), member("b", u64::MAX)];
        let order: Vec<usize> = Rendezvous::new(&extreme).order(3).collect();
        assert_eq!(order.len(), 2);
    }

    #[test]
    fn the_second_one_is_the_home_where_the_first_is_gone() {
        let all = members(5);
        let table = Rendezvous::new(&all);
        for key in keys().take(2_000) {
            let order: Vec<&str> = table.order(key).map(|place| &*all[place].name).collect();
            let left: Vec<Homed> = all.iter().filter(|it| it.name != order[0]).cloned().collect();
            let next = Rendezvous::new(&left).order(key).next().map(|place| &*left[place].name);
            assert_eq!(next, Some(order[1]));
        }
    }

    #[test]
    fn a_member_hands_on_that_part_of_its_keys_which_it_says() {
        let all = members(4);
        let before = homes(&all);
        for spill in [0, 4, 8, SPILL_MAX, 200] {
            let mut spilling = all.clone();
            spilling[1].spill = spill;
            let after = homes(&spilling);
            let kept = share_of(&after, "cache-1") / share_of(&before, "cache-1");
            let wanted = 1.0 - f64::from(spill.min(SPILL_MAX)) / f64::from(SPILL_PARTS);
            assert!((kept - wanted).abs() < 0.05, "{spill}: {kept}, not {wanted}");
            let moved = before.iter().zip(&after).filter(|(was, is)| was != is);
            assert!(moved.clone().all(|(was, _)| was == "cache-1"), "{spill}");
        }
    }

    /// Popular keys have most of the requests, and by chance most of these are one member's.
    fn requests_for(rank: u64) -> u64 {
        20_000 / (rank + 40)
    }

    fn loads(all: &[Homed], skew: impl Fn(usize) -> u64) -> Vec<u64> {
        // The keys' homes without any spill say whose keys are asked for more often.
        let plain: Vec<Homed> = all.iter().map(|it| Homed { spill: 0, ..it.clone() }).collect();
        let (first, table) = (Rendezvous::new(&plain), Rendezvous::new(all));
        let mut loads = vec![0; all.len()];
        for (rank, key) in keys().enumerate() {
            let more = skew(first.order(key).next().unwrap());
            loads[table.order(key).next().unwrap()] += requests_for(rank as u64) * more;
        }
        loads
    }

    #[test]
    fn load_is_bounded() {
        // One member's keys are asked for three times as often.
        for hot in 0..5 {
            let mut all = members(5);
            let mut spills = [Spill::default(); 5];
            let skew = |place: usize| if place == hot { 3 } else { 1 };
            let bound = |loads: &[u64]| loads.iter().sum::<u64>() * LOAD_PERCENT_MAX / 100 / 5;
            let first = loads(&all, skew);
            assert!(first[hot] > bound(&first), "without a spill it has too much: {first:?}");
            let mut moves = 0;
            for round in 0..40 {
                let loads = loads(&all, skew);
                let total = Load { requests: loads.iter().sum(), weight: 5 };
                for (spill, (own, member)) in spills.iter_mut().zip(loads.iter().zip(&mut all)) {
                    let before = spill.parts();
                    spill.look(Load { requests: *own, weight: 1 }, total);
                    member.spill = spill.parts();
                    moves += u32::from(round >= 20 && before != spill.parts());
                }
            }
            let last = loads(&all, skew);
            assert!(last.iter().all(|load| *load <= bound(&last)), "{hot}: {last:?}, {}", bound(&last));
            assert_eq!(moves, 0, "it settles: {spills:?}");
        }
    }

    #[test]
    fn few_requests_move_nothing() {
        let mut spill = Spill::default();
        let idle = Load { requests: LOAD_MIN - 1, weight: 3 };
        spill.look(Load { requests: LOAD_MIN - 1, weight: 1 }, idle);
        assert_eq!(spill.parts(), 0);
        let busy = Load { requests: 900, weight: 3 };
        (0..100).for_each(|_| spill.look(Load { requests: 900, weight: 1 }, busy));
        assert_eq!(spill.parts(), SPILL_MAX);
        (0..100).for_each(|_| spill.look(Load { requests: 310, weight: 1 }, busy));
        assert_eq!(spill.parts(), SPILL_MAX, "between its share and the bound it stays as it is");
        (0..100).for_each(|_| spill.look(Load { requests: 290, weight: 1 }, busy));
        assert_eq!(spill.parts(), 0);
        spill.look(Load { requests: u64::MAX, weight: u64::MAX }, Load { requests: u64::MAX, weight: u64::MAX });
        assert_eq!(spill.parts(), 0);
    }
}
