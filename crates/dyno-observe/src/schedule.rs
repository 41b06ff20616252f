//! When to read and when to sample. Pure.

use crate::rng::SplitMix64;

/// Instants at which all tasks are read.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_field_names)] // units belong to names
pub struct Reads {
    pub t0_ns: i64,
    pub t1_ns: i64,
    pub interval_ns: i64,
}

impl Reads {
    /// The first instant after `last_ns` that is due: t0, t1, or a whole number of intervals from t0. t0 and
    /// t1 are never left out; other instants are, where they lie before `now_ns` but not just before it, or
    /// so close before t1 that they could delay it.
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
    base_ns: i64,
    interval_ns: i64,
    next: i64,
    rng: SplitMix64,
}

impl Instants {
    pub fn new(base_ns: i64, interval_ns: i64, seed: u64) -> Self {
        Self {
            base_ns,
            interval_ns,
            next: 0,
            rng: SplitMix64::new(seed),
        }
    }

    /// The instant of the next interval, whether or not it has passed.
    pub fn next(&mut self) -> i64 {
        let start = self.base_ns + self.next * self.interval_ns;
        self.next += 1;
        start + (self.rng.unit() * self.interval_ns as f64) as i64
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
        fn one_instant_in_each_interval(seed: u64, interval in 1_000_000..S) {
            let mut instants = Instants::new(5, interval, seed);
            for k in 0..50 {
                let at = instants.next() - 5;
                prop_assert!(k * interval <= at && at < (k + 1) * interval);
            }
        }
    }
}
