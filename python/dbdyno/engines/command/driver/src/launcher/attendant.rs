//! Duties of the main thread: reaping orphans, and stopping commands that start too many tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use dyno_model::now_ns;

use super::tree;
use crate::contain::{Containment, Watch};

/// The limit of commands' tasks, and when commands were killed for it.
#[derive(Debug, Default)]
pub struct TaskLimit {
    /// Instant of the last kill; 0 if there was none.
    killed_ns: AtomicI64,
    /// Number of tasks that commands may have together.
    limit: AtomicU64,
}

impl TaskLimit {
    /// Returns the reason if a command that was started at `start_ns` was killed for the limit.
    pub fn kill_reason(&self, start_ns: i64) -> Option<String> {
        let limit = self.limit.load(Relaxed);
        (self.killed_ns.load(Relaxed) >= start_ns).then(|| {
            format!("killed with all commands: together they wanted more than {limit} tasks (processes and threads)")
        })
    }
}

/// The main thread's state.
pub struct Attendant {
    containment: Containment,
    watch: Watch,
    task_limit: Arc<TaskLimit>,
}

impl Attendant {
    /// An attendant without control groups: descendants are found by their parents.
    pub fn new(task_limit: Arc<TaskLimit>) -> Self {
        Self {
            containment: Containment::default(),
            watch: Watch::default(),
            task_limit,
        }
    }

    /// Takes the groups and limits that dbdyno arranged, as JSON. Another text changes nothing.
    pub fn arrange(&mut self, text: &[u8]) {
        if let Ok(containment) = serde_json::from_slice::<Containment>(text) {
            self.task_limit
                .limit
                .store(containment.tasks.unwrap_or_default(), Relaxed);
            (self.containment, self.watch) = (containment, Watch::default());
        }
    }

    /// Reaps and checks; to be called now and then. `alone`: there are no sessions, so no process may be left.
    pub fn look(&mut self, alone: bool) {
        tree::reap_orphans();
        if self.containment.too_many(&mut self.watch) {
            self.task_limit.killed_ns.store(now_ns(), Relaxed);
            self.containment.kill();
        } else if alone && !tree::orphans().is_empty() {
            self.containment.kill();
        }
    }

    /// Ends all processes; nothing is left when this returns.
    pub fn end(&self) {
        self.containment.end();
    }
}
