//! Calls by script. A session counts only so; what it did in all is the sum, so that nothing is counted twice.

use crate::count::tally::{Tally, Times};
use crate::{ErrorTally, Latency, Schedule};

/// Counts of one session's calls of one script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptTally {
    /// Counts and times.
    pub tally: Tally,
    /// Measured calls that were tried more than once.
    pub retried: u64,
    /// Their tries beyond the first.
    pub retries: u64,
}

impl ScriptTally {
    /// Counts a call that ended; its duration, if that is to go into the histogram.
    #[inline]
    pub fn count(&mut self, schedule: &Schedule, times: &Times, ok: bool, retries: u64) -> Option<u64> {
        if retries > 0 && schedule.measures(times.due_ns) {
            self.retried += 1;
            self.retries += retries;
        }
        self.tally.count(schedule, times, ok)
    }
}

/// Durations and errors of all sessions' calls of one script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScriptCalls {
    /// Durations of measured calls that ended well.
    pub latency: Latency,
    /// Errors by code; empty where there are no scripts.
    pub errors: ErrorTally,
}

impl ScriptCalls {
    /// Adds those of another thread.
    #[must_use]
    pub fn merge(self, other: &Self) -> Self {
        Self {
            latency: self.latency.merge(&other.latency),
            errors: self.errors.merge(&other.errors),
        }
    }
}
