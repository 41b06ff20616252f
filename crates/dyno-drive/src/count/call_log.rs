//! A record of each call, into memory taken before the start.

use std::fs::File;
use std::os::unix::fs::FileExt;

use dyno_model::TaskId;
use dyno_model::proc::stat_fields;

/// A logged call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoggedCall {
    /// Sent, ns.
    pub start_ns: i64,
    /// Sent to ready, ns.
    pub duration_ns: i64,
    /// Instant it was due; without arrivals, its start.
    pub due_ns: i64,
    /// Session number.
    pub session: u32,
    /// CPU the backend last ran on; -1: unknown.
    pub cpu: i32,
    /// Migrations between CPUs: in rounds during the call, else since the call before; -1: unknown.
    pub migrations: i32,
    /// True if it ended well.
    pub ok: bool,
    /// Started (paced: due) in [t0, t1).
    pub measured: bool,
}

/// The first calls of a thread, up to a limit.
#[derive(Clone, Debug, Default)]
pub struct CallLog {
    calls: Vec<LoggedCall>,
    limit: usize,
}

impl CallLog {
    /// Takes the memory, and touches it so that no page fault falls into the measurement.
    pub fn with_limit(limit: usize) -> Self {
        let mut calls = vec![
            LoggedCall {
                // Not all zero: such memory would be had without being touched.
                cpu: -1,
                ..LoggedCall::default()
            };
            limit
        ];
        calls.clear();
        Self { calls, limit }
    }

    /// Adds a call, if there is room.
    #[inline]
    pub fn push(&mut self, call: LoggedCall) {
        if self.calls.len() < self.limit {
            self.calls.push(call);
        }
    }

    /// Logged calls.
    pub fn calls(&self) -> &[LoggedCall] {
        &self.calls
    }

    /// Adds another thread's.
    #[must_use]
    pub fn merge(mut self, mut other: Self) -> Self {
        self.limit += other.limit;
        self.calls.append(&mut other.calls);
        self
    }
}

/// CPU and migrations of a process during a call; -1: unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// CPU at its end.
    pub cpu: i32,
    /// Moves since the mark or the reading before.
    pub migrations: i32,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            cpu: -1,
            migrations: -1,
        }
    }
}

/// Reads where a process runs: field 39 of `/proc/PID/stat` (proc(5)), and `se.nr_migrations` of
/// `/proc/PID/sched` (kernel/sched/debug.c; needs `CONFIG_SCHED_DEBUG`). Descriptors are kept.
#[derive(Debug)]
pub struct CpuProbe {
    stat: File,
    sched: Option<File>,
    moves: Option<i64>,
}

impl CpuProbe {
    /// Opens the files of a task. `None` if it cannot be seen.
    pub fn open(TaskId { pid, tid }: TaskId) -> Option<Self> {
        let stat = File::open(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
        let sched = File::open(format!("/proc/{pid}/task/{tid}/sched")).ok();
        let mut probe = Self {
            stat,
            sched,
            moves: None,
        };
        probe.moves = probe.moves_so_far();
        Some(probe)
    }

    /// Forgets migrations up to now.
    pub fn mark(&mut self) {
        self.moves = self.moves_so_far();
    }

    /// Returns the present CPU, and migrations since the mark or the reading before.
    pub fn read(&mut self) -> Place {
        let mut buffer = [0; 1024];
        let n = self.stat.read_at(&mut buffer, 0).unwrap_or(0);
        let moves = self.moves_so_far();
        let new = moves.zip(self.moves).map(|(now, before)| now - before);
        self.moves = moves;
        Place {
            cpu: last_cpu(&buffer[..n]).unwrap_or(-1),
            migrations: new.and_then(|n| i32::try_from(n).ok()).unwrap_or(-1),
        }
    }

    fn moves_so_far(&self) -> Option<i64> {
        let mut buffer = [0; 1024];
        let n = self.sched.as_ref()?.read_at(&mut buffer, 0).ok()?;
        migrations(&buffer[..n])
    }
}

/// `se.nr_migrations   :   3`; the name in the first line may hold anything but a line's end.
fn migrations(sched: &[u8]) -> Option<i64> {
    let text = String::from_utf8_lossy(sched);
    let line = text.lines().skip(1).find(|l| l.starts_with("se.nr_migrations"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// Field 39; the name in field 2 may hold anything, so fields are counted from its last parenthesis.
fn last_cpu(stat: &[u8]) -> Option<i32> {
    stat_fields(stat)?.nth(39 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of a Debian 12 machine (kernel 6.1), its name made awkward.
    const STAT: &[u8] = b"4711 (post) gres (1) S 4700 4711 4711 0 -1 4194304 1036 0 0 0 12 7 0 0 20 0 1 0 \
        104297 219709440 1795 18446744073709551615 94213391060992 94213399146213 140732 0 0 0 4194304 19935232 \
        536871424 0 0 0 17 3 0 0 0 0 0 94213401294592 94213401513296 94213427150848 140732 140732 140732 140732 0\n";

    #[test]
    fn field_39_is_the_cpu_whatever_the_name_is() {
        assert_eq!(last_cpu(STAT), Some(3));
        assert_eq!(last_cpu(b""), None);
        assert_eq!(last_cpu(b"1 (x) S 2"), None);
    }

    #[test]
    fn our_own_cpu_can_be_read() {
        let place = CpuProbe::open(TaskId::main(i64::from(std::process::id()))).map(|mut p| p.read());
        assert!(place.is_some_and(|p| p.cpu >= 0), "{place:?}");
    }

    /// The beginning of the file as Linux 6.18 prints it, its name made awkward.
    const SCHED: &[u8] = b"a se.nr_migrations : 9 (19502, #threads: 1)\n\
        -------------------------------------------------------------------\n\
        se.exec_start                                :      51075292.475199\n\
        se.vruntime                                  :          1181.050219\n\
        se.sum_exec_runtime                          :             0.000000\n\
        se.nr_migrations                             :                   17\n\
        nr_switches                                  :                    4\n";

    #[test]
    fn migrations_are_those_of_the_process_whatever_its_name_is() {
        assert_eq!(migrations(SCHED), Some(17));
        assert_eq!(migrations(b"x (1, #threads: 1)\nse.exec_start : 1.0\n"), None);
        assert_eq!(migrations(b""), None);
    }

    #[test]
    fn a_log_keeps_the_first_calls() {
        let mut log = CallLog::with_limit(2);
        for start_ns in 0..5 {
            log.push(LoggedCall {
                start_ns,
                ..LoggedCall::default()
            });
        }
        assert_eq!(log.calls().iter().map(|c| c.start_ns).collect::<Vec<_>>(), [0, 1]);
    }
}
