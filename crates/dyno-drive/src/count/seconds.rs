//! Durations by the second in which calls ended, to six percent.
//!
//! A call costs nothing for it: at the change of a second the thread compares its histogram with that of the change
//! before. What has grown since belongs to the second that is over.

use std::collections::BTreeMap;

use crate::count::histogram::Coarse;
use crate::{ScriptCalls, ScriptTally, Tally};

const NS_PER_S: i64 = 1_000_000_000;
/// Most intervals that are kept; beyond, they become twice as long. So memory has a bound however long the window is.
const MOST_INTERVALS: i64 = 1024;

/// Counts by interval and bucket. All intervals are equally long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecondCounts {
    /// Length of an interval: a power of two.
    seconds: i64,
    /// By number of the interval and of the bucket.
    counts: BTreeMap<(i64, usize), u64>,
}

impl Default for SecondCounts {
    fn default() -> Self {
        Self {
            seconds: 1,
            counts: BTreeMap::new(),
        }
    }
}

impl SecondCounts {
    fn add(&mut self, second: i64, bucket: usize, count: u64) {
        while second / self.seconds >= MOST_INTERVALS {
            self.widen();
        }
        *self.counts.entry((second / self.seconds, bucket)).or_default() += count;
    }

    fn widen(&mut self) {
        self.seconds *= 2;
        let mut counts = BTreeMap::new();
        for ((interval, bucket), count) in std::mem::take(&mut self.counts) {
            *counts.entry((interval / 2, bucket)).or_default() += count;
        }
        self.counts = counts;
    }

    /// Adds those of another thread.
    #[must_use]
    pub fn merge(mut self, other: &Self) -> Self {
        while self.seconds < other.seconds {
            self.widen();
        }
        for (&(interval, bucket), &count) in &other.counts {
            self.add(interval * other.seconds, bucket, count);
        }
        self
    }

    /// Rows in order: first second, number of seconds, lowest and highest duration (ns, inclusive), count.
    pub fn rows(&self) -> impl Iterator<Item = [i64; 5]> + '_ {
        self.counts.iter().map(|(&(interval, bucket), &count)| {
            let (low_ns, high_ns) = Coarse::ends(bucket);
            [
                interval * self.seconds,
                self.seconds,
                low_ns as i64,
                high_ns as i64,
                count as i64,
            ]
        })
    }
}

/// A thread's position in the seconds of a window, and its counts by second.
#[derive(Debug)]
pub struct Seconds {
    t0_ns: i64,
    /// End of the present second.
    next_ns: i64,
    second: i64,
    /// Counts of the window at the last change, by bucket.
    before: Coarse,
    counts: SecondCounts,
}

impl Seconds {
    /// The seconds of a window that begins at `t0_ns`.
    pub fn new(t0_ns: i64) -> Self {
        Self {
            t0_ns,
            next_ns: t0_ns.saturating_add(NS_PER_S),
            second: 0,
            before: Coarse::default(),
            counts: SecondCounts::default(),
        }
    }

    /// End of the present second.
    #[inline]
    pub fn next_ns(&self) -> i64 {
        self.next_ns
    }

    /// Assigns the calls since the last change to the second that is over, and goes on to the one of `now`.
    pub fn change(&mut self, now_ns: i64, calls: &[ScriptCalls], tallies: &[Tally]) {
        self.assign(calls, tallies);
        self.second = (now_ns - self.t0_ns) / NS_PER_S;
        let ends_ns = (self.second + 1).saturating_mul(NS_PER_S);
        self.next_ns = self.t0_ns.saturating_add(ends_ns);
    }

    /// Ends the window; returns its counts.
    pub fn end(mut self, calls: &[ScriptCalls], tallies: &[Tally]) -> SecondCounts {
        self.assign(calls, tallies);
        self.counts
    }

    fn assign(&mut self, calls: &[ScriptCalls], tallies: &[Tally]) {
        let mut now = Coarse::default();
        for (calls, tally) in calls.iter().zip(tallies) {
            if let (Some(min_ns), Some(max_ns)) = (tally.min_ns, tally.max_ns) {
                now.add(&calls.latency, min_ns, max_ns);
            }
        }
        for (bucket, grown) in now.growth(&self.before) {
            self.counts.add(self.second, bucket, grown);
        }
        self.before = now;
    }
}

/// Sums of the sessions' tallies by script.
pub fn by_script<'a>(sessions: impl Iterator<Item = &'a [ScriptTally]>, scripts: usize) -> Vec<Tally> {
    let mut all = vec![Tally::default(); scripts];
    for session in sessions {
        for (sum, script) in all.iter_mut().zip(session) {
            *sum = std::mem::take(sum).merge(&script.tally);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Latency;
    use proptest::prelude::*;

    /// A call: nanoseconds since the last one of its thread, and duration.
    fn calls() -> impl Strategy<Value = Vec<(i64, u64)>> {
        let gap = prop_oneof![0..2 * NS_PER_S, 0..3_000 * NS_PER_S];
        let duration = prop_oneof![0..5_000_u64, 0..10_000_000_000_u64, Just(u64::MAX / 2)];
        prop::collection::vec((gap, duration), 0..60)
    }

    /// Counts by second as a thread takes them, in a window that began at `t0_ns`.
    fn counted(t0_ns: i64, calls: &[(i64, u64)]) -> (SecondCounts, Latency) {
        let mut seconds = Seconds::new(t0_ns);
        let mut scripts = [ScriptCalls::default()];
        let mut tally = [Tally::default()];
        let mut now = t0_ns;
        for &(gap_ns, duration_ns) in calls {
            now += gap_ns;
            if now >= seconds.next_ns() {
                seconds.change(now, &scripts, &tally);
            }
            scripts[0].latency.record(duration_ns);
            let [tally] = &mut tally;
            tally.min_ns = Some(tally.min_ns.map_or(duration_ns, |n| n.min(duration_ns)));
            tally.max_ns = Some(tally.max_ns.map_or(duration_ns, |n| n.max(duration_ns)));
        }
        let [ScriptCalls { latency, .. }] = scripts.clone();
        (seconds.end(&scripts, &tally), latency)
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "forty thousand buckets for each of its cases")]
        fn each_call_is_in_the_second_of_its_end_and_in_a_bucket_around_it(calls in calls(), t0_ns in 0..5 * NS_PER_S) {
            let (counts, _) = counted(t0_ns, &calls);
            let rows: Vec<_> = counts.rows().collect();
            prop_assert_eq!(rows.iter().map(|r| r[4]).sum::<i64>(), calls.len() as i64);
            let mut since_ns = 0;
            let mut left: Vec<_> = rows.clone();
            for (gap_ns, duration_ns) in calls {
                since_ns += gap_ns;
                let ns = if duration_ns >> 47 == 0 { duration_ns as i64 } else { 24 * 3600 * NS_PER_S };
                let holds = |r: &[i64; 5]| {
                    let at_ns = r[0] * NS_PER_S..(r[0] + r[1]) * NS_PER_S;
                    at_ns.contains(&since_ns) && r[2] <= ns && ns <= r[3]
                };
                let row = left.iter_mut().find(|r| holds(r) && r[4] > 0);
                prop_assert!(row.is_some());
                row.unwrap()[4] -= 1;
            }
            for [first, seconds, low_ns, high_ns, _] in rows {
                prop_assert!(first % seconds == 0 && first / seconds < MOST_INTERVALS);
                prop_assert!((high_ns - low_ns) as f64 <= low_ns as f64 / 16.0);
            }
        }

        #[test]
        #[cfg_attr(miri, ignore = "forty thousand buckets for each of its cases")]
        fn merged_counts_do_not_depend_on_the_order(a in calls(), b in calls(), c in calls()) {
            let [a, b, c] = [a, b, c].map(|calls| counted(0, &calls).0);
            prop_assert_eq!(a.clone().merge(&b), b.clone().merge(&a));
            prop_assert_eq!(a.clone().merge(&b).merge(&c), a.clone().merge(&b.clone().merge(&c)));
            prop_assert_eq!(a.clone().merge(&SecondCounts::default()), a);
        }
    }

    #[test]
    fn a_long_window_has_longer_intervals() {
        let mut counts = SecondCounts::default();
        counts.add(0, 5, 1);
        counts.add(1023, 5, 1);
        assert_eq!(counts.seconds, 1);
        counts.add(5000, 5, 1);
        let rows: Vec<_> = counts.rows().map(|r| (r[0], r[1], r[4])).collect();
        assert_eq!(rows, [(0, 8, 1), (1016, 8, 1), (5000, 8, 1)]);
    }
}
