//! Durations to three significant digits: buckets as an HDR histogram has them, with a single writer, merged afterwards.
//!
//! Counting is a shift and an addition. The library `hdrhistogram` needs five times as many instructions for it; it is
//! what the tests compare with.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Longer durations go into the last bucket; the exact maximum is in the session's tally.
const LONGEST_NS: u64 = 24 * 3600 * 1_000_000_000;
/// Binary digits that are kept of a duration: buckets below `1 << DIGITS` hold one value each.
const DIGITS: u32 = 11;
/// Buckets between one power of two and the next.
const HALF: usize = 1 << (DIGITS - 1);
/// The power of two above the longest duration ends the last bucket.
const HIGHEST_NS: u64 = LONGEST_NS.next_power_of_two() - 1;
const BUCKETS: usize = place(HIGHEST_NS) + 1;

/// The bucket of a duration.
#[inline]
const fn place(ns: u64) -> usize {
    let dropped = u64::BITS - DIGITS - (ns | ((1 << DIGITS) - 1)).leading_zeros();
    dropped as usize * HALF + (ns >> dropped) as usize
}

/// Lowest and highest duration of a bucket, inclusive.
const fn ends(place: usize) -> (u64, u64) {
    let dropped = (place / HALF).saturating_sub(1);
    let low = ((place - dropped * HALF) as u64) << dropped;
    (low, low + (1 << dropped) - 1)
}

/// Binary digits that are kept of durations that are read while calls are made.
const LIVE_DIGITS: u32 = 8;
const LIVE_HALF: usize = 1 << (LIVE_DIGITS - 1);

/// Durations of one thread's calls so far, to one percent: written by that thread, read by any.
#[derive(Debug)]
pub struct LiveLatency(Box<[AtomicU64]>);

impl Default for LiveLatency {
    fn default() -> Self {
        Self((0..=live_place(LONGEST_NS)).map(|_| AtomicU64::new(0)).collect())
    }
}

#[inline]
fn live_place(ns: u64) -> usize {
    let dropped = u64::BITS - LIVE_DIGITS - (ns | ((1 << LIVE_DIGITS) - 1)).leading_zeros();
    dropped as usize * LIVE_HALF + (ns >> dropped) as usize
}

impl LiveLatency {
    /// Counts a duration. There is one writer: no other addition is lost.
    pub fn record(&self, duration_ns: u64) {
        let count = &self.0[live_place(duration_ns).min(self.0.len() - 1)];
        // A load and a store in place of an atomic addition, whose locked instruction would cost more.
        count.store(count.load(Relaxed) + 1, Relaxed);
    }

    /// Returns the middle (ns) and the count of each bucket that holds anything.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let held = self
            .0
            .iter()
            .enumerate()
            .map(|(place, n)| (place, n.load(Relaxed)));
        held.filter(|(_, count)| *count > 0).map(|(place, count)| {
            let dropped = (place / LIVE_HALF).saturating_sub(1);
            let low = ((place - dropped * LIVE_HALF) as u64) << dropped;
            (low + ((1 << dropped) - 1) / 2, count)
        })
    }
}

/// A histogram of durations, 0 ns to 24 h.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency(Box<[u64]>);

impl Default for Latency {
    fn default() -> Self {
        Self(vec![0; BUCKETS].into())
    }
}

impl Latency {
    /// Counts a duration.
    #[inline]
    pub fn record(&mut self, duration_ns: u64) {
        match self.0.get_mut(place(duration_ns)) {
            Some(count) => *count += 1,
            None => self.record_longest(),
        }
    }

    #[cold]
    fn record_longest(&mut self) {
        self.0[place(LONGEST_NS)] += 1;
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds those of another thread.
    #[must_use]
    pub fn merge(mut self, other: &Self) -> Self {
        self.0
            .iter_mut()
            .zip(other.0.iter())
            .for_each(|(sum, n)| *sum += n);
        self
    }

    /// Buckets that hold anything: lowest and highest duration (ns, inclusive), count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let held = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        held.map(|(place, &count)| {
            let (low, high) = ends(place);
            (low, high, count)
        })
    }

    /// The buckets as columns `low_ns`, `high_ns` and `count`.
    pub fn columns(&self) -> [Vec<i64>; 3] {
        let mut columns = [const { Vec::new() }; 3];
        for (low_ns, high_ns, count) in self.buckets() {
            for (column, value) in columns.iter_mut().zip([low_ns, high_ns, count]) {
                column.push(value as i64);
            }
        }
        columns
    }
}

/// Binary digits that are kept of durations by second: steps of at most one part in sixteen.
const COARSE_DIGITS: u32 = 5;
const COARSE_HALF: usize = 1 << (COARSE_DIGITS - 1);
const COARSE_BUCKETS: usize = coarse_place(HIGHEST_NS) + 1;

const fn coarse_place(ns: u64) -> usize {
    let dropped = u64::BITS - COARSE_DIGITS - (ns | ((1 << COARSE_DIGITS) - 1)).leading_zeros();
    dropped as usize * COARSE_HALF + (ns >> dropped) as usize
}

/// A histogram with fewer buckets: each of [`Latency`] lies in one of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Coarse(Box<[u64]>);

impl Default for Coarse {
    fn default() -> Self {
        Self(vec![0; COARSE_BUCKETS].into())
    }
}

impl Coarse {
    /// Lowest and highest duration of a bucket, inclusive.
    pub const fn ends(bucket: usize) -> (u64, u64) {
        let dropped = (bucket / COARSE_HALF).saturating_sub(1);
        let low = ((bucket - dropped * COARSE_HALF) as u64) << dropped;
        (low, low + (1 << dropped) - 1)
    }

    /// Adds the durations of a histogram, all of which are between these two.
    pub fn add(&mut self, durations: &Latency, min_ns: u64, max_ns: u64) {
        // What is longer than the longest is in the bucket of the longest.
        let (first, last) = (
            coarse_place(min_ns.min(LONGEST_NS)),
            coarse_place(max_ns.min(HIGHEST_NS)),
        );
        for (bucket, sum) in self.0.iter_mut().enumerate().take(last + 1).skip(first) {
            let (low, high) = Self::ends(bucket);
            *sum += durations.0[place(low)..=place(high)].iter().sum::<u64>();
        }
    }

    /// The buckets that hold more than before, and how much more.
    pub fn growth<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (usize, u64)> + 'a {
        let grown = self.0.iter().zip(&before.0).map(|(now, before)| now - before);
        grown.enumerate().filter(|(_, grown)| *grown > 0)
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
            prop_oneof![
                0..5_000_u64,
                0..10_000_000_000_u64,
                LONGEST_NS / 2..LONGEST_NS * 2,
                any::<u64>()
            ],
            0..50,
        )
    }

    /// The same by the library.
    fn by_library(durations: &[u64]) -> Vec<(u64, u64, u64)> {
        let mut all = hdrhistogram::Histogram::<u64>::new_with_bounds(1, LONGEST_NS, 3).unwrap();
        for &ns in durations {
            all.saturating_record(ns);
        }
        let steps = all
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()));
        let ends = |ns| (all.lowest_equivalent(ns), all.highest_equivalent(ns));
        steps.map(|(ns, count)| (ends(ns).0, ends(ns).1, count)).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "forty thousand buckets")]
    fn the_ends_of_every_bucket_are_in_it_and_the_next_one_follows() {
        let mut next = 0;
        for bucket in 0..BUCKETS {
            let (low, high) = ends(bucket);
            assert_eq!((low, place(low), place(high)), (next, bucket, bucket));
            next = high + 1;
        }
        assert!(next > LONGEST_NS);
    }

    proptest! {
        #[test]
        fn a_live_duration_is_known_to_one_percent(ns in 0..LONGEST_NS) {
            let live = LiveLatency::default();
            live.record(ns);
            live.record(ns);
            let all: Vec<_> = live.counts().collect();
            prop_assert_eq!(all.len(), 1);
            prop_assert!(all[0].1 == 2 && all[0].0.abs_diff(ns) as f64 <= ns as f64 / 100.0, "{:?}", all);
        }

        #[test]
        #[cfg_attr(miri, ignore = "the library goes through all its buckets one by one")]
        fn buckets_are_those_of_the_library(durations in durations()) {
            let ours: Vec<_> = histogram(&durations).buckets().collect();
            prop_assert_eq!(ours, by_library(&durations));
        }

        #[test]
        #[cfg_attr(miri, ignore = "goes through all buckets for each of its cases")]
        fn every_duration_is_in_a_bucket_of_three_digits(ns in 1..LONGEST_NS) {
            let histogram = histogram(&[ns]);
            let (low, high, count) = histogram.buckets().next().unwrap();
            prop_assert!(low <= ns && ns <= high && count == 1);
            prop_assert!((high - low) as f64 <= low as f64 / 1000.0, "{low}..{high}");
        }

        #[test]
        #[cfg_attr(miri, ignore = "goes through all buckets for each of six histograms")]
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
