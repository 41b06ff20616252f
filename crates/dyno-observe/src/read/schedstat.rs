//! `/proc/PID/task/TID/schedstat`: Documentation/scheduler/sched-stats.rst, "`/proc/<pid>/schedstat`".
//! Needs `CONFIG_SCHED_INFO` only. `runq_ns` contains the time a task was throttled by a CPU quota.

use crate::read::parse::{Parsed, number};

const NAME: &str = "schedstat";

/// The three figures of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedStat {
    /// Time on a CPU, nanoseconds.
    pub run_ns: i64,
    /// Time runnable but not running, nanoseconds.
    pub runq_ns: i64,
    /// How often it was put on a CPU.
    pub slices: i64,
}

impl SchedStat {
    /// True where a task was on no CPU between this read and `other`. (It may have been woken.)
    pub fn same_runs(self, other: Self) -> bool {
        (self.run_ns, self.slices) == (other.run_ns, other.slices)
    }
}

/// Reads `run runq slices`.
///
/// # Errors
/// When a figure is missing or is not a number of 63 bits.
pub fn parse(text: &str) -> Parsed<SchedStat> {
    let mut words = text.split_ascii_whitespace();
    Ok(SchedStat {
        run_ns: number(NAME, "run", words.next())?,
        runq_ns: number(NAME, "run delay", words.next())?,
        slices: number(NAME, "slices", words.next())?,
    })
}
