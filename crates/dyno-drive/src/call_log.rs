//! A record of each call, into memory taken before the start.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// One call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoggedCall {
    /// Sent, ns.
    pub start_ns: i64,
    /// Sent to ready, ns.
    pub duration_ns: i64,
    /// Session number.
    pub session: u32,
    /// CPU the backend last ran on; -1: unknown.
    pub cpu: i32,
    /// False: it failed.
    pub ok: bool,
    /// Started in [t0, t1).
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

    /// What was logged.
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

/// Reads the CPU a process last ran on: field 39 of `/proc/PID/stat` (proc(5)), its descriptor kept.
#[derive(Debug)]
pub struct CpuProbe(File);

impl CpuProbe {
    /// `None` where the process cannot be seen.
    pub fn open(pid: i64) -> Option<Self> {
        File::open(format!("/proc/{pid}/stat")).ok().map(Self)
    }

    /// `None` when it has ended.
    pub fn read(&self) -> Option<i32> {
        let mut buffer = [0; 1024];
        let n = self.0.read_at(&mut buffer, 0).ok()?;
        last_cpu(&buffer[..n])
    }
}

/// Field 39; the name in field 2 may hold anything, so fields are counted from its last parenthesis.
fn last_cpu(stat: &[u8]) -> Option<i32> {
    let name_end = stat.iter().rposition(|&b| b == b')')?;
    let field = stat[name_end + 2..].split(|&b| b == b' ').nth(39 - 3)?;
    std::str::from_utf8(field).ok()?.parse().ok()
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
        let cpu = CpuProbe::open(i64::from(std::process::id())).and_then(|p| p.read());
        assert!(cpu.is_some_and(|c| c >= 0), "{cpu:?}");
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
