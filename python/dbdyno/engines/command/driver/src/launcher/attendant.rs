//! What the main thread looks after: processes that are nobody's any more, and commands that start too many.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use dyno_model::now_ns;

use super::tree;
use crate::contain::{Containment, Watch};

/// When commands were killed because they had too many tasks.
#[derive(Debug, Default)]
pub struct TaskLimit {
    /// 0: never.
    killed_ns: AtomicI64,
    /// How many they may have.
    limit: AtomicU64,
}

impl TaskLimit {
    /// Why a command that was started then was killed; `None`: not because of that.
    pub fn kill_reason(&self, start_ns: i64) -> Option<String> {
        let limit = self.limit.load(Relaxed);
        (self.killed_ns.load(Relaxed) >= start_ns).then(|| {
            format!("killed with all commands: together they wanted more than {limit} tasks (processes and threads)")
        })
    }
}

/// See the module.
pub struct Attendant {
    containment: Containment,
    watch: Watch,
    task_limit: Arc<TaskLimit>,
}

impl Attendant {
    /// Before dbdyno has arranged anything: descendants are found.
    pub fn new(task_limit: Arc<TaskLimit>) -> Self {
        Self {
            containment: Containment::default(),
            watch: Watch::default(),
            task_limit,
        }
    }

    /// What dbdyno has arranged, as JSON. A text that is none changes nothing.
    pub fn arrange(&mut self, text: &[u8]) {
        if let Ok(containment) = serde_json::from_slice::<Containment>(text) {
            self.task_limit
                .limit
                .store(containment.tasks.unwrap_or_default(), Relaxed);
            (self.containment, self.watch) = (containment, Watch::default());
        }
    }

    /// Now and then. `alone`: there are no sessions, so no process may be there.
    pub fn look(&mut self, alone: bool) {
        tree::reap_orphans();
        if self.containment.too_many(&mut self.watch) {
            self.task_limit.killed_ns.store(now_ns(), Relaxed);
            self.containment.kill();
        } else if alone && !tree::orphans().is_empty() {
            self.containment.kill();
        }
    }

    /// Nothing is left when this returns.
    pub fn end(&self) {
        self.containment.end();
    }
}
