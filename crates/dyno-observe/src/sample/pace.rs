//! The loop of a sampler: one random instant in each interval, within a budget.

use std::num::NonZero;
use std::thread::available_parallelism;

use dyno_model::now_ns;

use crate::schedule::{Budget, Instants};
use crate::signal::Signal;

/// Rate and budget of a sampler.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Length of an interval.
    pub interval_ns: i64,
    /// Share of the CPUs that samples may cost.
    pub budget: f64,
    /// Seed of the instants.
    pub seed: u64,
}

/// A sampler's work at each instant.
pub trait Sampling {
    /// Takes sample `number`.
    fn sample(&mut self, number: i64, due_ns: i64);
    /// Notes that the interval of sample `number` passed before it could be taken.
    fn skip(&mut self, number: i64, due_ns: i64);
    /// Returns the CPU time of sampling up to now.
    fn cost_ns(&mut self) -> i64;
    /// Returns the least length of the next interval, in planned intervals.
    fn patience(&self) -> i64 {
        1
    }
    /// Returns whether sampling has ended.
    fn over(&self) -> bool {
        false
    }
}

impl Pace {
    /// Takes sample 0 at once, then one in each interval until the end.
    pub fn run(self, signal: &Signal, sampling: &mut impl Sampling) {
        let base_ns = now_ns();
        let interval_ns = self.interval_ns;
        let cpus = available_parallelism().map_or(1, NonZero::get);
        let mut budget = Budget::new(self.budget, cpus, interval_ns);
        let mut instants = Instants::new(base_ns + interval_ns, interval_ns, self.seed);
        sampling.sample(0, base_ns);
        signal.update(|s| s.ready += 1);
        let mut stretch = 1; // the first sample is a cold one: it says little of the cost
        for number in 1.. {
            let due_ns = instants.next(stretch.max(sampling.patience()));
            if signal.sleep_until(due_ns) || sampling.over() {
                return;
            }
            if now_ns() - due_ns > interval_ns {
                sampling.skip(number, due_ns);
            } else {
                let cost_ns = sampling.cost_ns();
                sampling.sample(number, due_ns);
                stretch = budget.stretch(sampling.cost_ns() - cost_ns);
            }
        }
    }
}
