//! The Cache Array Routing Protocol (draft-vinod-carp-v1-03): which parents a URL is asked through, best first. All caches that have the same
//! list of parents choose the same ones, so that each object is stored once, and a parent that fails leaves the URLs of the others where they
//! were.
//!
//! The choice is that of Squid (5 and later), bit for bit, so that both can stand before the same parents. It differs from the draft in one
//! point: the hash of the URL is not begun anew for each parent but goes on, so that the choice depends on the order of the parents too.

/// The parents of an array, prepared for the choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Carp {
    members: Vec<CarpMember>,
}

#[derive(Clone, Debug, PartialEq)]
struct CarpMember {
    place: usize,
    hash: u32,
    multiplier: f64,
}

/// The draft's number by which hashes are spread.
const SPREAD: u32 = 0x6253_1965;

impl Carp {
    /// An array of parents by their names and weights, in the order of the configuration. Those of weight 0 get no URL.
    pub fn new(parents: &[(&str, u32)]) -> Carp {
        let total: f64 = parents.iter().map(|(_, weight)| f64::from(*weight)).sum();
        let mut shares: Vec<(usize, u32, f64)> = Vec::with_capacity(parents.len());
        for (place, (name, weight)) in parents.iter().enumerate().filter(|(_, (_, weight))| *weight > 0) {
            let share = f64::from(*weight) / total;
            shares.push((place, spread(hash_on(0, name)), if share < 0.001 { 0.0 } else { share }));
        }
        // Section 3.3: the multipliers follow from the shares, the smallest first. Equal ones stay in their order.
        shares.sort_by(|one, other| one.2.total_cmp(&other.2));
        let (mut members, mut product) = (Vec::with_capacity(shares.len()), 1.0);
        let (mut last_multiplier, mut last_share): (f64, f64) = (0.0, 0.0);
        for (at, (place, hash, share)) in shares.iter().enumerate() {
            let left = (shares.len() - at) as f64;
            let base = left * (share - last_share) / product + last_multiplier.powf(left);
            let multiplier = base.powf(left.recip());
            members.push(CarpMember { place: *place, hash: *hash, multiplier });
            product *= if multiplier > 0.0 { multiplier } else { 1.0 };
            (last_multiplier, last_share) = (multiplier, *share);
        }
        Carp { members }
    }

    /// The places of the parents for a URL, the best one first.
    pub fn order(&self, url: &str) -> Vec<usize> {
        let mut hash = 0;
        let mut scores: Vec<(usize, f64)> = Vec::with_capacity(self.members.len());
        for member in &self.members {
            hash = hash_on(hash, url);
            scores.push((member.place, f64::from(spread(hash ^ member.hash)) * member.multiplier));
        }
        // Equal scores stay in the order of the members.
        scores.sort_by(|one, other| other.1.total_cmp(&one.1));
        scores.retain(|(_, score)| *score > 0.0);
        scores.into_iter().map(|(place, _)| place).collect()
    }
}

/// Section 3.1: the hash of a text, from one before it on. Octets above 127 count as negative ones.
fn hash_on(before: u32, text: &str) -> u32 {
    text.bytes().fold(before, |hash, octet| {
        let signed = i32::from(octet.cast_signed()).cast_unsigned();
        hash.wrapping_add(hash.rotate_left(19)).wrapping_add(signed)
    })
}

/// Sections 3.2 and 3.3: the last steps of the hash of a parent, and of a URL with a parent.
fn spread(hash: u32) -> u32 {
    hash.wrapping_add(hash.wrapping_mul(SPREAD)).rotate_left(21)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls() -> Vec<String> {
        (0..6_000).map(|number| format!("http://host-{}.example/{number}", number % 97)).collect()
    }

    #[test]
    fn urls_are_shared_out_by_the_weights() {
        let counts = |weights: [u32; 3]| {
            let carp = Carp::new(&[("one.example", weights[0]), ("two.example", weights[1]), ("third", weights[2])]);
            let mut counts = [0_u32; 3];
            for url in urls() {
                counts[carp.order(&url)[0]] += 1;
            }
            counts
        };
        // The hash of the draft is a weak one, so the shares of URLs that are alike are about those of the weights, and no more than that.
        assert!(counts([1, 1, 1]).iter().all(|count| *count > 1_000), "{:?}", counts([1, 1, 1]));
        for heavy in 0..3 {
            let mut weights = [1; 3];
            weights[heavy] = 20;
            assert!(counts(weights)[heavy] > 4_000, "{weights:?}: {:?}", counts(weights));
        }
        assert_eq!(counts([0, 1, 1])[0], 0);
    }

    #[test]
    fn each_parent_has_its_place_in_the_order_of_a_url_once() {
        let carp = Carp::new(&[("one.example", 1), ("two.example", 4), ("third", 2)]);
        for url in urls() {
            let mut order = carp.order(&url);
            assert_eq!(order, carp.order(&url), "{url}");
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2], "{url}");
        }
    }

    #[test]
    fn an_array_of_none_has_no_order() {
        assert!(Carp::new(&[]).order("http://a/").is_empty());
        assert!(Carp::new(&[("a", 0)]).order("http://a/").is_empty());
        assert_eq!(Carp::new(&[("a", u32::MAX)]).order(""), [0]);
    }
}
