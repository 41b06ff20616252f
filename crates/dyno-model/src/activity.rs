//! Interface of an engine for the observer: the connected sessions, and their waits.

use crate::Result;

/// A task of the operating system: a process's main one, or another thread of it. A session is a set of them
/// over time; numbers of tasks that have ended are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId {
    /// Process.
    pub pid: i64,
    /// Task id; equal to `pid` for the main task of a process.
    pub tid: i64,
}

impl TaskId {
    /// A process's main task.
    pub fn main(pid: i64) -> Self {
        Self { pid, tid: pid }
    }
}

/// One backend as the server describes it, at one sample.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActivityRow {
    /// Process id.
    pub pid: i64,
    /// The thread that serves it, or None if its process serves it alone.
    pub tid: Option<i64>,
    /// Our session that it serves now if the server knows, or None for the one that it served before.
    pub session: Option<i64>,
    /// Name of one of the server's own processes, or None for a client's backend.
    pub helper: Option<String>,
    /// active, idle, ...
    pub state: Option<String>,
    /// Wait event type.
    pub wait_class: Option<String>,
    /// Wait event.
    pub wait_event: Option<String>,
    /// Query id.
    pub query_id: Option<i64>,
    /// Leader of a parallel worker.
    pub leader_pid: Option<i64>,
    /// Whether it is to be observed, or None if the server was not asked.
    pub chosen: Option<bool>,
}

impl ActivityRow {
    /// Returns the task that is read for it.
    pub fn task(&self) -> TaskId {
        TaskId {
            pid: self.pid,
            tid: self.tid.unwrap_or(self.pid),
        }
    }
}

/// Figures of a task from its birth to its end, as the kernel reported at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndedTask {
    /// Process.
    pub pid: i64,
    /// Task.
    pub tid: i64,
    /// Our session that it served, or None for an unknown one of them.
    pub session: Option<i64>,
    /// Name of its program.
    pub comm: String,
    /// Birth and end, ns of the one clock.
    pub life_ns: (i64, i64),
    /// Time on a CPU.
    pub run_ns: i64,
    /// Time in the run queue.
    pub runq_ns: i64,
    /// Number of times it was put on a CPU.
    pub slices: i64,
    /// User and kernel time, by ticks.
    pub ticks_ns: (i64, i64),
    /// Waits for block I/O, or None if they are not accounted for.
    pub blkio_ns: Option<i64>,
    /// Voluntary and involuntary context switches.
    pub switches: (i64, i64),
}

/// Asks the server for its backends' activity, on a connection of its own that it leaves out of its answer.
pub trait ActivityProbe: Send {
    /// Takes one sample: clears `rows` and fills them.
    ///
    /// # Errors
    /// When the server does not answer.
    fn sample(&mut self, rows: &mut Vec<ActivityRow>) -> Result<()>;

    /// Follows tasks that end from now on. Returns None if this engine has no such source, an error with status,
    /// reason and cure if it may not.
    fn follow_ends(&mut self) -> Option<std::result::Result<(), (&'static str, String)>> {
        None
    }

    /// Clears `rows` and fills them with tasks that have ended since the last call.
    fn ended(&mut self, rows: &mut Vec<EndedTask>) {
        rows.clear();
    }

    /// Returns status and reason if the ends of some tasks were lost since they are followed.
    fn ends_lost(&self) -> Option<(&'static str, String)> {
        None
    }

    /// Returns whether a row of a sample waits for a lock whose holders can be asked for.
    fn waits_for_lock(&self, _row: &ActivityRow) -> bool {
        false
    }

    /// Clears `rows` and fills them with the sessions that wait for a lock now, and those that they wait for.
    ///
    /// # Errors
    /// When the server does not answer, or refuses.
    fn blocked(&mut self, rows: &mut Vec<BlockedRow>) -> Result<()> {
        rows.clear();
        Ok(())
    }
}

/// Whole numbers of a [`BlockedRow`]: the waiter, its leader, how long it has waited, who has the lock
/// (0: no process), and the statement of that.
pub const BLOCKED_NUMBERS: [&str; 5] = ["pid", "leader_pid", "waited_ns", "blocker", "query_id"];
/// Texts of a [`BlockedRow`]: of the waiter's lock, then of the blocker.
pub const BLOCKED_TEXTS: [&str; 13] = [
    "wait_class",
    "wait_event",
    "mode",
    "object",
    "relation",
    "blocker_mode",
    "helper",
    "state",
    "blocker_wait_class",
    "blocker_wait_event",
    "user",
    "database",
    "application",
];

/// A session that waits for a lock, with one that it waits for. Values are in the order of [`BLOCKED_NUMBERS`] and
/// [`BLOCKED_TEXTS`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockedRow {
    /// [`BLOCKED_NUMBERS`].
    pub numbers: [Option<i64>; BLOCKED_NUMBERS.len()],
    /// [`BLOCKED_TEXTS`].
    pub texts: [Option<String>; BLOCKED_TEXTS.len()],
}

impl BlockedRow {
    /// Returns the process that it waits for, if it is one.
    pub fn blocker(&self) -> Option<i64> {
        self.numbers[3].filter(|&pid| pid != 0)
    }
}
