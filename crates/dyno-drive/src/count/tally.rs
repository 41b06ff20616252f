//! Exact counts. All calls = measured calls + calls of the settling time, well ended and failed alike.

use crate::Schedule;

/// Results of a session, or of several merged. Durations are of measured calls that ended well; the span from
/// first start to last end holds measured calls that failed, too. All exact: integers only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Measured calls that ended well.
    pub calls: u64,
    /// Measured calls that failed.
    pub errors: u64,
    /// Calls before t0 that ended well.
    pub settle_calls: u64,
    /// Calls before t0 that failed.
    pub settle_errors: u64,
    /// Calls in flight at t0 (not measured).
    pub straddle_in: u64,
    /// Measured calls that ended after t1.
    pub straddle_out: u64,
    /// Sum of durations.
    pub in_call_ns: u64,
    /// Sum of squared durations.
    pub sum_sq_ns2: u128,
    /// Start of the first call from the barrier on.
    pub began_ns: Option<i64>,
    /// Start of the first measured call.
    pub first_start_ns: Option<i64>,
    /// End of the last measured call.
    pub last_end_ns: Option<i64>,
    /// Shortest duration.
    pub min_ns: Option<u64>,
    /// Longest duration.
    pub max_ns: Option<u64>,
}

/// When a call was due, started and ended. Without arrivals it is due when it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The instant it was due, which decides whether it is measured.
    pub due_ns: i64,
    /// Sent.
    pub start_ns: i64,
    /// Answered.
    pub end_ns: i64,
}

impl Tally {
    /// Counts a call that ended; its duration from when it was due, if that is to go into the histogram.
    #[inline]
    pub fn count(&mut self, schedule: &Schedule, times: &Times, ok: bool) -> Option<u64> {
        if !schedule.measures(times.due_ns) {
            self.settle(schedule, times, ok);
            return None;
        }
        if self.first_start_ns.is_none() {
            self.first_start_ns = Some(times.start_ns);
            self.began_ns = self.began_ns.or(self.first_start_ns);
        }
        self.last_end_ns = Some(times.end_ns);
        self.straddle_out += u64::from(times.end_ns > schedule.t1_ns);
        if !ok {
            self.errors += 1;
            return None;
        }
        let duration = (times.end_ns - times.due_ns) as u64;
        self.calls += 1;
        self.in_call_ns += duration;
        self.sum_sq_ns2 += u128::from(duration) * u128::from(duration);
        // Most calls change neither: they write nothing.
        if self.min_ns.is_none_or(|min| duration < min) {
            self.min_ns = Some(duration);
        }
        if self.max_ns.is_none_or(|max| duration > max) {
            self.max_ns = Some(duration);
        }
        Some(duration)
    }

    fn settle(&mut self, schedule: &Schedule, times: &Times, ok: bool) {
        *(if ok {
            &mut self.settle_calls
        } else {
            &mut self.settle_errors
        }) += 1;
        self.began_ns = self.began_ns.or(Some(times.start_ns));
        self.straddle_in += u64::from(times.start_ns < schedule.t0_ns && times.end_ns > schedule.t0_ns);
    }

    /// All calls that ended well.
    pub fn calls_total(&self) -> u64 {
        self.calls + self.settle_calls
    }

    /// All calls that failed.
    pub fn errors_total(&self) -> u64 {
        self.errors + self.settle_errors
    }

    /// Adds what another session did.
    #[must_use]
    pub fn merge(self, other: &Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            errors: self.errors + other.errors,
            settle_calls: self.settle_calls + other.settle_calls,
            settle_errors: self.settle_errors + other.settle_errors,
            straddle_in: self.straddle_in + other.straddle_in,
            straddle_out: self.straddle_out + other.straddle_out,
            in_call_ns: self.in_call_ns + other.in_call_ns,
            sum_sq_ns2: self.sum_sq_ns2 + other.sum_sq_ns2,
            began_ns: either(self.began_ns, other.began_ns, i64::min),
            first_start_ns: either(self.first_start_ns, other.first_start_ns, i64::min),
            last_end_ns: either(self.last_end_ns, other.last_end_ns, i64::max),
            min_ns: either(self.min_ns, other.min_ns, u64::min),
            max_ns: either(self.max_ns, other.max_ns, u64::max),
        }
    }
}

/// A sum of durations and what else adds up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// Number of durations.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
    /// Sum of their squares.
    pub sum_sq_ns2: u128,
    /// Shortest.
    pub min_ns: Option<u64>,
    /// Longest.
    pub max_ns: Option<u64>,
}

impl Durations {
    /// Counts a duration.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.count += 1;
        self.sum_ns += ns;
        self.sum_sq_ns2 += u128::from(ns) * u128::from(ns);
        self.min_ns = Some(self.min_ns.map_or(ns, |m| m.min(ns)));
        self.max_ns = Some(self.max_ns.map_or(ns, |m| m.max(ns)));
    }

    /// Adds those of another.
    #[must_use]
    pub fn merge(self, other: &Self) -> Self {
        Self {
            count: self.count + other.count,
            sum_ns: self.sum_ns + other.sum_ns,
            sum_sq_ns2: self.sum_sq_ns2 + other.sum_sq_ns2,
            min_ns: either(self.min_ns, other.min_ns, u64::min),
            max_ns: either(self.max_ns, other.max_ns, u64::max),
        }
    }
}

/// The one that is there, or of two the `better`.
pub fn either<T>(a: Option<T>, b: Option<T>, better: impl FnOnce(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(better(a, b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SCHEDULE: Schedule = Schedule {
        start_ns: 0,
        t0_ns: 1_000,
        t1_ns: 2_000,
    };

    /// Calls of one session: one after another, none started at or after t1.
    fn calls() -> impl Strategy<Value = Vec<(i64, i64, bool)>> {
        prop::collection::vec((0_i64..400, any::<bool>()), 0..40).prop_map(|durations| {
            let mut now = 0;
            let mut calls = Vec::new();
            for (duration, ok) in durations {
                if now >= SCHEDULE.t1_ns {
                    break;
                }
                calls.push((now, now + duration, ok));
                now += duration;
            }
            calls
        })
    }

    fn tally(calls: &[(i64, i64, bool)]) -> Tally {
        let mut tally = Tally::default();
        for &(start_ns, end_ns, ok) in calls {
            let times = Times {
                due_ns: start_ns,
                start_ns,
                end_ns,
            };
            tally.count(&SCHEDULE, &times, ok);
        }
        tally
    }

    proptest! {
        #[test]
        fn all_is_measured_and_settle(calls in calls()) {
            let tally = tally(&calls);
            prop_assert_eq!(tally.calls_total() + tally.errors_total(), calls.len() as u64);
            let ok = calls.iter().filter(|c| c.2).count() as u64;
            prop_assert_eq!(tally.calls_total(), ok);
            let measured = calls.iter().filter(|c| c.0 >= 1_000).count() as u64;
            prop_assert_eq!(tally.calls + tally.errors, measured);
            prop_assert!(tally.straddle_in <= 1 && tally.straddle_out <= 1);
        }

        #[test]
        fn durations_are_those_of_the_measured_calls(calls in calls()) {
            let tally = tally(&calls);
            let durations: Vec<u64> =
                calls.iter().filter(|c| c.2 && c.0 >= 1_000).map(|c| (c.1 - c.0) as u64).collect();
            prop_assert_eq!(tally.in_call_ns, durations.iter().sum::<u64>());
            prop_assert_eq!(tally.min_ns, durations.iter().min().copied());
            prop_assert_eq!(tally.max_ns, durations.iter().max().copied());
            prop_assert_eq!(tally.sum_sq_ns2, durations.iter().map(|&d| u128::from(d).pow(2)).sum::<u128>());
        }

        #[test]
        fn merge_is_commutative_and_associative(a in calls(), b in calls(), c in calls()) {
            let (a, b, c) = (tally(&a), tally(&b), tally(&c));
            prop_assert_eq!(a.clone().merge(&b), b.clone().merge(&a));
            prop_assert_eq!(a.clone().merge(&b).merge(&c), a.clone().merge(&b.clone().merge(&c)));
            prop_assert_eq!(a.clone().merge(&Tally::default()), a);
        }
    }

    #[test]
    fn a_call_in_flight_at_t0_is_not_measured_and_one_at_t1_is() {
        let tally = tally(&[(900, 1_100, true), (1_100, 1_900, false), (1_900, 2_300, true)]);
        assert_eq!((tally.straddle_in, tally.straddle_out), (1, 1));
        assert_eq!((tally.settle_calls, tally.calls, tally.errors), (1, 1, 1));
        assert_eq!(
            (tally.began_ns, tally.first_start_ns, tally.last_end_ns),
            (Some(900), Some(1_100), Some(2_300))
        );
        assert_eq!((tally.min_ns, tally.max_ns), (Some(400), Some(400)));
    }
}
