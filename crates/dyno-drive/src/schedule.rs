//! Instants of the barrier and the measured window, in nanoseconds of `CLOCK_MONOTONIC`.

use dyno_model::{Error, Result};

/// Barrier at `start_ns`; calls started in `[t0_ns, t1_ns)` are measured; none starts at or after `t1_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Instant at which all sessions start.
    pub start_ns: i64,
    /// Beginning of the measured window.
    pub t0_ns: i64,
    /// End of the measured window.
    pub t1_ns: i64,
}

impl Schedule {
    /// A schedule whose instants are in this order.
    ///
    /// # Errors
    /// [`Error::Spec`] when they are not.
    pub fn new(start_ns: i64, t0_ns: i64, t1_ns: i64) -> Result<Self> {
        if 0 <= start_ns && start_ns <= t0_ns && t0_ns <= t1_ns {
            return Ok(Self {
                start_ns,
                t0_ns,
                t1_ns,
            });
        }
        Err(Error::Spec(format!(
            "0 <= start {start_ns} <= t0 {t0_ns} <= t1 {t1_ns} does not hold"
        )))
    }

    /// True if a call started at `start_ns` is measured.
    #[inline]
    pub fn measures(&self, start_ns: i64) -> bool {
        self.t0_ns <= start_ns && start_ns < self.t1_ns
    }
}
