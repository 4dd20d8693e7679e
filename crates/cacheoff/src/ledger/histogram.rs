//! Distributions of times (microseconds) and sizes (bytes), kept to one part in 1,024.
//!
//! The buckets are those of an HDR histogram of three digits: below 2,048 every value has its own, above that
//! each doubling has 1,024. [`Tally`] is the dense form a worker counts into; [`Histogram`] is the sparse form that
//! travels, merges, is written and is asked for quantiles. Count, sum, minimum and maximum are exact.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const SUB_BUCKETS: u64 = 1_024;
const SUB_BITS: u32 = 10;
/// Doublings of the buckets of a thinned histogram have two to the power of this.
const THIN_BITS: u32 = 5;
/// Values above are counted as this one: 2^40 microseconds are twelve days, 2^40 bytes a terabyte.
const VALUE_MAX: u64 = 1 << 40;

/// Counts per bucket, sparse and sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<(u32, u64)>,
    sum: u64,
    min: u64,
    max: u64,
}

/// The bucket of a value; the same for response times and sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket(u32);

impl Bucket {
    /// The bucket that counts `value`.
    pub fn of(value: u64) -> Self {
        let value = value.min(VALUE_MAX);
        let doublings = (63 - (value | 1).leading_zeros()).saturating_sub(SUB_BITS);
        Self(doublings * SUB_BUCKETS as u32 + (value >> doublings) as u32)
    }

    /// The smallest and the largest value that this bucket counts.
    pub fn range(self) -> (u64, u64) {
        let doublings = (u64::from(self.0) / SUB_BUCKETS).saturating_sub(1);
        let low = (u64::from(self.0) - doublings * SUB_BUCKETS) << doublings;
        (low, low + (1 << doublings) - 1)
    }
}

impl Histogram {
    /// One without values.
    pub const NONE: Self = Self { buckets: Vec::new(), sum: 0, min: 0, max: 0 };

    /// How many values were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, &(_, count)| sum.saturating_add(count))
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Exact sum of the recorded values.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Exact smallest value, if there is one.
    pub fn min(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.min)
    }

    /// Exact largest value, if there is one.
    pub fn max(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.max)
    }

    /// Exact mean, if there is one.
    pub fn mean(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.sum as f64 / self.count() as f64)
    }

    /// Standard deviation, from the middles of the buckets.
    pub fn deviation(&self) -> Option<f64> {
        let mean = self.mean()?;
        let squares: f64 =
            self.buckets().map(|(low, high, count)| count as f64 * ((low + high) as f64 / 2.0 - mean).powi(2)).sum();
        Some((squares / self.count() as f64).sqrt())
    }

    /// The value that a share `part` (0 to 1) of the values does not exceed: the upper end of its bucket, so that it is
    /// never understated, and never above the maximum.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let rank = ((part.clamp(0.0, 1.0) * self.count() as f64).ceil() as u64).max(1);
        let mut seen = 0_u64;
        for &(bucket, count) in &self.buckets {
            seen = seen.saturating_add(count);
            if seen >= rank {
                return Some(Bucket(bucket).range().1.clamp(self.min, self.max));
            }
        }
        self.max()
    }

    /// The share of values that are at most `value`.
    pub fn share_up_to(&self, value: u64) -> f64 {
        let limit = Bucket::of(value).0;
        let below: u64 = self
            .buckets
            .iter()
            .filter(|&&(bucket, _)| bucket <= limit)
            .fold(0, |sum, &(_, count)| sum.saturating_add(count));
        if self.is_empty() { 0.0 } else { below as f64 / self.count() as f64 }
    }

    /// Buckets in order: smallest value, largest value, count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.buckets.iter().map(|&(bucket, count)| {
            let (low, high) = Bucket(bucket).range();
            (low, high, count)
        })
    }

    /// The same values to one part in 32: 32 buckets for each doubling, of which the upper end is kept, so that no value is
    /// understated. Count, sum, minimum and maximum stay exact.
    pub fn thinned(&self) -> Self {
        let mut buckets: Vec<(u32, u64)> = Vec::new();
        for &(bucket, count) in &self.buckets {
            let low = Bucket(bucket).range().0;
            let width = 1_u64 << (63 - (low | 1).leading_zeros()).saturating_sub(THIN_BITS);
            let upper = Bucket::of((low / width + 1) * width - 1).0.max(bucket);
            match buckets.last_mut() {
                Some((last, known)) if *last == upper => *known = known.saturating_add(count),
                _ => buckets.push((upper, count)),
            }
        }
        Self { buckets, ..*self }
    }

    /// Takes in what another histogram counted.
    pub fn merge(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        (self.min, self.max) = match self.is_empty() {
            true => (other.min, other.max),
            false => (self.min.min(other.min), self.max.max(other.max)),
        };
        self.sum = self.sum.saturating_add(other.sum);
        self.buckets = merged(&self.buckets, &other.buckets);
    }
}

fn merged(left: &[(u32, u64)], right: &[(u32, u64)]) -> Vec<(u32, u64)> {
    let mut all = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.iter().copied().peekable(), right.iter().copied().peekable());
    while let (Some(&a), Some(&b)) = (left.peek(), right.peek()) {
        all.push(match a.0.cmp(&b.0) {
            std::cmp::Ordering::Less => a,
            std::cmp::Ordering::Greater => b,
            std::cmp::Ordering::Equal => (a.0, a.1.saturating_add(b.1)),
        });
        if a.0 <= b.0 {
            left.next();
        }
        if b.0 <= a.0 {
            right.next();
        }
    }
    all.extend(left);
    all.extend(right);
    all
}

impl FromIterator<u64> for Histogram {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Self {
        let mut tally = Tally::default();
        values.into_iter().for_each(|value| tally.add(value));
        tally.take()
    }
}

/// The dense form: one counter per bucket up to the largest value so far.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    counts: Vec<u32>,
    sum: u64,
    min: u64,
    max: u64,
    used: bool,
}

impl Tally {
    /// Counts one value.
    pub fn add(&mut self, value: u64) {
        self.add_at(Bucket::of(value), value);
    }

    /// Counts one value whose bucket is known already.
    pub fn add_at(&mut self, bucket: Bucket, value: u64) {
        let index = bucket.0 as usize;
        if index >= self.counts.len() {
            self.counts.resize((index + 1).next_multiple_of(256), 0);
        }
        self.counts[index] = self.counts[index].saturating_add(1);
        (self.min, self.max) = match self.used {
            true => (self.min.min(value), self.max.max(value)),
            false => (value, value),
        };
        self.used = true;
        self.sum = self.sum.saturating_add(value);
    }

    /// Hands over what was counted and starts from nothing; the memory is kept.
    pub fn take(&mut self) -> Histogram {
        if !self.used {
            return Histogram::default();
        }
        let mut buckets = Vec::new();
        let (from, to) = (Bucket::of(self.min).0 as usize, Bucket::of(self.max).0 as usize);
        for (index, count) in self.counts.iter_mut().enumerate().take(to + 1).skip(from) {
            if *count > 0 {
                buckets.push((index as u32, u64::from(std::mem::take(count))));
            }
        }
        let taken = Histogram { buckets, sum: self.sum, min: self.min, max: self.max };
        (self.sum, self.min, self.max, self.used) = (0, 0, 0, false);
        taken
    }
}

// In a file a histogram is the text `SUM:MIN:MAX:PAIRS`. PAIRS are (gap to the bucket before, count) without spaces,
// each number in groups of five bits, lowest group first, one printable character a group: '0' + group, and 32 more
// when another group follows. The characters run from '0' (48) to 'o' (111); a backslash (92) is written as 'p'.

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = format!("{}:{}:{}:", self.sum, self.min, self.max);
        let mut previous = 0;
        for &(bucket, count) in &self.buckets {
            pack(u64::from(bucket - previous), &mut text);
            pack(count, &mut text);
            previous = bucket;
        }
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        unpacked(&text).ok_or_else(|| D::Error::custom("a histogram is not of the form SUM:MIN:MAX:PAIRS"))
    }
}

fn pack(mut number: u64, text: &mut String) {
    loop {
        let more = if number >= 32 { 32 } else { 0 };
        text.push(match b'0' + (number & 31) as u8 + more {
            b'\\' => 'p',
            byte => char::from(byte),
        });
        number >>= 5;
        if more == 0 {
            return;
        }
    }
}

fn unpacked(text: &str) -> Option<Histogram> {
    let mut parts = text.splitn(4, ':');
    let (sum, min, max) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let mut bytes = parts.next()?.bytes();
    let (mut buckets, mut bucket) = (Vec::new(), 0_u32);
    while bytes.len() > 0 {
        bucket = bucket.checked_add(u32::try_from(unpack(&mut bytes)?).ok()?)?;
        buckets.push((bucket, unpack(&mut bytes)?));
        if bucket > Bucket::of(VALUE_MAX).0 {
            return None;
        }
    }
    (min <= max).then_some(Histogram { buckets, sum, min, max })
}

fn unpack(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let (mut number, mut shift) = (0_u64, 0);
    loop {
        let byte = match bytes.next()? {
            b'p' => b'\\',
            byte => byte,
        };
        let group = byte.checked_sub(b'0').filter(|&group| group < 64)?;
        number |= u64::from(group & 31).checked_shl(shift)?;
        if group < 32 {
            return Some(number);
        }
        shift += 5;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_values_have_a_bucket_each_and_large_ones_one_in_1024() {
        for (value, range) in [
            (0, (0, 0)),
            (1, (1, 1)),
            (2_047, (2_047, 2_047)),
            (2_048, (2_048, 2_049)),
            (4_095, (4_094, 4_095)),
            (4_096, (4_096, 4_099)),
            (1_000_000, (999_936, 1_000_447)),
            (u64::MAX, (1 << 40, (1 << 40) + (1 << 30) - 1)),
        ] {
            assert_eq!(Bucket::of(value).range(), range, "{value}");
        }
    }

    #[test]
    fn quantiles_of_a_known_list() {
        let histogram: Histogram = (1..=1_000).collect();
        for (part, value) in [(0.0, 1), (0.5, 500), (0.99, 990), (0.999, 999), (1.0, 1_000)] {
            assert_eq!(histogram.quantile(part), Some(value), "{part}");
        }
        assert_eq!(histogram.mean(), Some(500.5));
        assert_eq!(histogram.share_up_to(250), 0.25);
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    proptest! {
        #[test]
        fn a_quantile_is_at_most_a_thousandth_above_the_exact_one(
            mut values in prop::collection::vec(0..5_000_000_000_u64, 1..300), part in 0.0..1.0_f64
        ) {
            let histogram: Histogram = values.iter().copied().collect();
            values.sort_unstable();
            let exact = values[(((part * values.len() as f64).ceil() as usize).max(1)) - 1];
            let found = histogram.quantile(part).unwrap();
            prop_assert!(found >= exact && found <= exact + exact / 1_024 + 1, "{found} for {exact}");
            prop_assert_eq!(histogram.sum(), values.iter().sum::<u64>());
        }

        #[test]
        fn merging_counts_as_one_list_does(
            left in prop::collection::vec(0..100_000_u64, 0..60), right in prop::collection::vec(0..100_000_u64, 0..60)
        ) {
            let mut merged: Histogram = left.iter().copied().collect();
            merged.merge(&right.iter().copied().collect());
            prop_assert_eq!(merged, left.into_iter().chain(right).collect::<Histogram>());
        }

        #[test]
        fn a_file_gives_back_what_was_written(values in prop::collection::vec(any::<u64>(), 0..100)) {
            let histogram: Histogram = values.into_iter().map(|value| value >> 20).collect();
            let text = serde_json::to_string(&histogram).unwrap();
            prop_assert!(!text.contains('\\'), "{}", text);
            prop_assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), histogram);
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[0-9]{1,3}:[0-9]{1,3}:[0-9]{1,3}:[ -~]{0,40}") {
            let _ = unpacked(&text);
        }
    }
}
