//! Times in buckets: the bounds that all histograms have in common, and quantiles out of them.

/// Upper bounds of the latency buckets, in microseconds; a longer time is in one more.
pub const BOUNDS_MICROS: [u64; 19] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000, 60_000_000,
];

/// The number of buckets.
pub const BUCKETS: usize = BOUNDS_MICROS.len() + 1;

/// The bucket of a time.
pub fn bucket_of(micros: u64) -> usize {
    BOUNDS_MICROS.iter().position(|&bound| micros <= bound).unwrap_or(BUCKETS - 1)
}

/// The time within which so many in a thousand ended, taken as evenly spread inside its bucket; 0 when there is nothing.
pub fn quantile(buckets: &[u64; BUCKETS], permille: u64) -> u64 {
    let all: u64 = buckets.iter().sum();
    let wanted = (all * permille).div_ceil(1000);
    let mut below = 0;
    for (bucket, &many) in buckets.iter().enumerate() {
        if many > 0 && below + many >= wanted {
            let low = bucket.checked_sub(1).map_or(0, |before| BOUNDS_MICROS[before]);
            let high = BOUNDS_MICROS.get(bucket).copied().unwrap_or(low);
            return low + (high - low) * (wanted - below) / many;
        }
        below += many;
    }
    0
}

/// An upper bound of the time within which this share of the counted ones lies; `None` where nothing is counted, and beyond the last
/// bound.
pub fn bound(buckets: &[u64; BUCKETS], permille: u64) -> Option<u64> {
    let all: u64 = buckets.iter().sum();
    let wanted = (all * permille).div_ceil(1000);
    let mut below = 0;
    let bucket = buckets.iter().position(|many| {
        below += many;
        *many > 0 && below >= wanted
    });
    BOUNDS_MICROS.get(bucket?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_never_below_what_was_counted() {
        let mut buckets = [0; BUCKETS];
        assert_eq!(bound(&buckets, 500), None);
        buckets[bucket_of(700)] = 99;
        assert_eq!((bound(&buckets, 500), bound(&buckets, 990)), (Some(1_000), Some(1_000)));
        buckets[BUCKETS - 1] = 2;
        assert_eq!((bound(&buckets, 500), bound(&buckets, 990)), (Some(1_000), None));
    }

    #[test]
    fn quantiles_lie_inside_their_buckets() {
        let mut buckets = [0; BUCKETS];
        assert_eq!(quantile(&buckets, 500), 0);
        buckets[6] = 100;
        assert_eq!((quantile(&buckets, 500), quantile(&buckets, 1000)), (750, 1_000));
        buckets[BUCKETS - 1] = 100;
        assert_eq!(quantile(&buckets, 990), 60_000_000, "beyond the last bound nothing more is known");
    }
}
