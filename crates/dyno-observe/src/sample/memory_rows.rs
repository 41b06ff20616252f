//! Rows of samples of the wait event word: many and small.

use std::sync::Arc;

use crate::read::task::Task;
use crate::sample::rows::{Taken, taken_later, taken_since};
use crate::status::Status;

/// One process in one sample.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub sample: u32,
    /// Number of the process's task, from [`MemoryRows::task_number`].
    pub task: u32,
    /// Around the read of the word.
    pub before_ns: i64,
    pub after_ns: i64,
    /// After the read of the state.
    pub task_ns: i64,
    pub code: u32,
    pub state: Result<char, Status>,
}

/// All samples.
#[derive(Debug, Default)]
pub struct MemoryRows {
    tasks: Vec<Arc<Task>>,
    rows: Vec<Row>,
    taken: Vec<Taken>,
}

impl MemoryRows {
    /// Adds a task and returns its number.
    pub fn task_number(&mut self, task: &Arc<Task>) -> u32 {
        self.tasks.push(Arc::clone(task));
        self.tasks.len() as u32 - 1
    }

    /// Takes over samples and their rows.
    pub fn append(&mut self, taken: &mut Vec<Taken>, rows: &mut Vec<Row>) {
        self.taken.append(taken);
        self.rows.append(rows);
    }

    /// Takes away what was read at or after `since_ns`, to be given back with [`MemoryRows::give_back`].
    pub fn later(&mut self, since_ns: i64) -> (Vec<Row>, Vec<Taken>) {
        let rows = self.rows.len() - self.since(since_ns).len();
        (self.rows.split_off(rows), taken_later(&mut self.taken, since_ns))
    }

    /// Replaces the rows and samples by those that [`MemoryRows::later`] took away.
    pub fn give_back(&mut self, (rows, taken): (Vec<Row>, Vec<Taken>)) {
        (self.rows, self.taken) = (rows, taken);
    }

    /// Returns the rows that were read at or after `since_ns`.
    pub fn since(&self, since_ns: i64) -> &[Row] {
        &self.rows[self.rows.partition_point(|r| r.task_ns < since_ns)..]
    }

    /// Returns the samples that ended at or after `since_ns`.
    pub fn taken_since(&self, since_ns: i64) -> &[Taken] {
        taken_since(&self.taken, since_ns)
    }

    /// Returns the task of a row.
    pub fn task(&self, row: &Row) -> &Task {
        &self.tasks[row.task as usize]
    }
}
