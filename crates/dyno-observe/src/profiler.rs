//! Interface, for a watch, of a data source that samples the stacks of the server's tasks.

use std::sync::Arc;

use dyno_model::Table;

use crate::read::task::Task;

/// A data source that samples all tasks of the server from when it was opened, and keeps its own rows.
pub trait Profiler: Send {
    /// Registers a task of the server, as [`crate::Tracer::watch`] does. Its rows have no other tasks.
    fn watch(&mut self, task: &Arc<Task>);

    /// Reads the samples taken since the last call. It is called often enough that none is lost.
    fn drain(&mut self);

    /// Returns the tables of all samples read.
    fn tables(&self) -> Vec<Table>;

    /// Returns current status and detail of the data source: ok, or the missing right or feature and the cure.
    fn status(&self) -> (String, String);
}
