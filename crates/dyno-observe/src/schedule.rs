//! When to read and when to sample. Pure.

use dyno_model::SplitMix64;

/// Instants at which all tasks are read.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_field_names)] // units belong to names
pub struct Reads {
    pub t0_ns: i64,
    pub t1_ns: i64,
    pub interval_ns: i64,
}

impl Reads {
    /// Returns the first instant after `last_ns` that is due: t0, t1, or a whole number of intervals from t0. t0 and
    /// t1 are never left out. Other instants are left out if they lie well before `now_ns`, or so close before t1 that
    /// they could delay it.
    pub fn next(self, last_ns: i64, now_ns: i64) -> i64 {
        let after =
            |ns: i64| self.t0_ns + ((ns - self.t0_ns).div_euclid(self.interval_ns) + 1) * self.interval_ns;
        let mut tick = after(last_ns.max(now_ns - self.interval_ns));
        if tick < self.t1_ns && tick > self.t1_ns - self.interval_ns / 2 {
            tick = self.t1_ns;
        }
        [self.t0_ns, self.t1_ns]
            .into_iter()
            .filter(|&t| t > last_ns)
            .fold(tick, i64::min)
    }
}

/// Instants of sampling: one uniformly random instant in each interval, so that samples cannot beat with
/// anything periodic in the load.
#[derive(Debug, Clone)]
pub struct Instants {
    start_ns: i64,
    interval_ns: i64,
    rng: SplitMix64,
}

impl Instants {
    pub fn new(start_ns: i64, interval_ns: i64, seed: u64) -> Self {
        Self {
            start_ns,
            interval_ns,
            rng: SplitMix64::new(seed),
        }
    }

    /// Returns the instant in the next interval, which is `stretch` times as long as planned. It may have passed.
    pub fn next(&mut self, stretch: i64) -> i64 {
        let length_ns = self.interval_ns * stretch;
        let due_ns = self.start_ns + (self.rng.unit() * length_ns as f64) as i64;
        self.start_ns += length_ns;
        due_ns
    }
}

/// Keeps the cost of sampling below a share of the CPUs: with many sessions on few CPUs it makes the
/// intervals longer, as each sample then brings the more rows.
#[derive(Debug, Clone)]
pub struct Budget {
    /// CPU time that an interval of the planned length may cost.
    per_interval_ns: f64,
    /// CPU time a sample costs, smoothed.
    cost_ns: f64,
}

const SMOOTHING: f64 = 0.25;
/// Longest interval, in planned intervals.
const LONGEST: f64 = 1000.0;

impl Budget {
    pub fn new(share: f64, cpus: usize, interval_ns: i64) -> Self {
        Self {
            per_interval_ns: share * cpus as f64 * interval_ns as f64,
            cost_ns: 0.0,
        }
    }

    /// Returns the length of the next interval, in planned intervals, after a sample that cost `cost_ns`.
    pub fn stretch(&mut self, cost_ns: i64) -> i64 {
        self.cost_ns += SMOOTHING * (cost_ns.max(0) as f64 - self.cost_ns);
        (self.cost_ns / self.per_interval_ns).ceil().clamp(1.0, LONGEST) as i64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: i64 = 1_000_000_000;

    fn all(reads: Reads, from: i64, until: i64) -> Vec<i64> {
        std::iter::successors(Some(reads.next(from, from)), |&at| Some(reads.next(at, at)))
            .take_while(|&at| at <= until)
            .collect()
    }

    #[test]
    fn t0_t1_and_whole_intervals_between_and_around() {
        let reads = Reads {
            t0_ns: 10 * S,
            t1_ns: 13 * S,
            interval_ns: S,
        };
        assert_eq!(
            all(reads, 8 * S + 1, 14 * S),
            [9, 10, 11, 12, 13, 14].map(|s| s * S)
        );
    }

    #[test]
    fn no_tick_just_before_t1() {
        let reads = Reads {
            t0_ns: 0,
            t1_ns: 2 * S + 5,
            interval_ns: S,
        };
        assert_eq!(all(reads, 1, 3 * S), [S, 2 * S + 5, 3 * S]);
    }

    #[test]
    fn a_late_reader_skips_ticks_but_neither_t0_nor_t1() {
        let reads = Reads {
            t0_ns: 10 * S,
            t1_ns: 20 * S,
            interval_ns: S,
        };
        assert_eq!(reads.next(8 * S, 15 * S + 7), 10 * S);
        assert_eq!(reads.next(10 * S, 15 * S + 7), 15 * S);
        assert_eq!(reads.next(15 * S, 40 * S), 20 * S);
    }

    proptest! {
        #[test]
        fn goes_on_for_ever_and_never_misses_the_ends(
            t0 in 0..100 * S, wall in 1..100 * S, interval in S / 100..10 * S, lateness in 0..3 * S
        ) {
            let reads = Reads { t0_ns: t0, t1_ns: t0 + wall, interval_ns: interval };
            let (mut last, mut seen) = (t0 - 1, vec![]);
            while last < t0 + wall {
                let next = reads.next(last, last + lateness);
                prop_assert!(next > last);
                seen.push(next);
                last = next;
            }
            prop_assert_eq!(seen[0], t0);
            prop_assert!(seen.contains(&(t0 + wall)));
        }

        #[test]
        fn one_instant_in_each_interval(
            seed: u64, interval in 1_000_000..S, stretches in proptest::collection::vec(1_i64..9, 50)
        ) {
            let mut instants = Instants::new(5, interval, seed);
            let mut start = 5;
            for stretch in stretches {
                let at = instants.next(stretch);
                prop_assert!(start <= at && at < start + stretch * interval);
                start += stretch * interval;
            }
        }

        #[test]
        fn the_cost_of_sampling_settles_below_its_budget(cost in 1_i64..S / 10, cpus in 1_usize..200) {
            let interval = S / 10;
            let mut budget = Budget::new(0.005, cpus, interval);
            let stretch = (0..100).map(|_| budget.stretch(cost)).last().unwrap();
            let share = cost as f64 / (stretch * interval) as f64 / cpus as f64;
            prop_assert!(share <= 0.005 * 1.000_001 || stretch == LONGEST as i64, "{share}");
            let planned = cost as f64 / interval as f64 / cpus as f64;
            prop_assert!(stretch == 1 || planned > 0.005 * 0.999_999, "stretched without need");
        }
    }
}
