//! Durations to three significant digits: an HDR histogram with a single writer, merged afterwards.

use hdrhistogram::Histogram;

/// Longer durations go into the last bucket; the exact maximum is in the session's tally.
const LONGEST_NS: u64 = 24 * 3600 * 1_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// A histogram of durations, 1 ns to 24 h.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        let made = Histogram::new_with_bounds(1, LONGEST_NS, SIGNIFICANT_DIGITS);
        Self(made.expect("the bounds are in order"))
    }
}

impl Latency {
    /// Counts a duration.
    #[inline]
    pub fn record(&mut self, duration_ns: u64) {
        self.0.saturating_record(duration_ns);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Adds those of another thread.
    ///
    /// # Panics
    /// Never: all have the same bounds.
    #[must_use]
    pub fn merge(mut self, other: &Self) -> Self {
        self.0.add(&other.0).expect("the same bounds");
        self
    }

    /// Buckets that hold anything: lowest and highest duration (ns, inclusive), count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.0.iter_recorded().map(|step| {
            let value = step.value_iterated_to();
            (
                self.0.lowest_equivalent(value),
                self.0.highest_equivalent(value),
                step.count_at_value(),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn histogram(durations: &[u64]) -> Latency {
        let mut histogram = Latency::default();
        for &duration in durations {
            histogram.record(duration);
        }
        histogram
    }

    fn durations() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(
            prop_oneof![0..5_000_u64, 0..10_000_000_000_u64, any::<u64>()],
            0..50,
        )
    }

    proptest! {
        #[test]
        fn every_duration_is_in_a_bucket_of_three_digits(ns in 1..LONGEST_NS) {
            let histogram = histogram(&[ns]);
            let (low, high, count) = histogram.buckets().next().unwrap();
            prop_assert!(low <= ns && ns <= high && count == 1);
            prop_assert!((high - low) as f64 <= low as f64 / 1000.0, "{low}..{high}");
        }

        #[test]
        fn nothing_is_lost_and_merge_is_the_histogram_of_all(a in durations(), b in durations()) {
            let merged = histogram(&a).merge(&histogram(&b));
            let all: Vec<u64> = a.iter().chain(&b).copied().collect();
            prop_assert_eq!(merged.count(), all.len() as u64);
            prop_assert_eq!(merged.buckets().map(|b| b.2).sum::<u64>(), all.len() as u64);
            prop_assert!(merged.buckets().eq(histogram(&all).buckets()));
            prop_assert!(merged.buckets().eq(histogram(&b).merge(&histogram(&a)).buckets()));
        }
    }
}
