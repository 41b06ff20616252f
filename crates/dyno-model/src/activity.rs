//! What the observer asks of an engine: who is connected and what each waits for.

use crate::Result;

/// A task of the operating system: a process's main one, or another thread of it. A session is a set of them
/// over time; numbers of tasks that have ended are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId {
    /// Process.
    pub pid: i64,
    /// Task; a process's main one has its number.
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
    /// The thread that serves it; `None`: the process has one, and serves nobody else.
    pub tid: Option<i64>,
    /// Which of our sessions it works for now, where the server knows; `None`: the one it worked for before.
    pub session: Option<i64>,
    /// `None`: a client's backend; a name: one of the server's own processes.
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
    /// Whether it is one of those that are to be observed; `None`: the server was not asked that.
    pub chosen: Option<bool>,
}

impl ActivityRow {
    /// The task that is read for it.
    pub fn task(&self) -> TaskId {
        TaskId {
            pid: self.pid,
            tid: self.tid.unwrap_or(self.pid),
        }
    }
}

/// Asks the server who does what. One connection of its own, which it leaves out of its answer.
pub trait ActivityProbe: Send {
    /// One sample: clears `rows` and fills them.
    ///
    /// # Errors
    /// When the server does not answer.
    fn sample(&mut self, rows: &mut Vec<ActivityRow>) -> Result<()>;
}
