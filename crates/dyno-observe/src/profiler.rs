//! What a watch asks of a data source that samples the stacks of the server's tasks.

use std::sync::Arc;

use dyno_model::Table;

use crate::read::task::Task;

/// It samples all tasks of the server from when it was opened, and keeps its own rows.
pub trait Profiler: Send {
    /// A task of the server, as [`crate::Tracer::watch`] is told of it. Others are never in its rows.
    fn watch(&mut self, task: &Arc<Task>);

    /// Takes in what was sampled. It is called often enough that nothing is lost.
    fn drain(&mut self);

    /// Its tables, of all samples taken in.
    fn tables(&self) -> Vec<Table>;

    /// (status, detail) of the data source, as of now: ok, or what is missing and the cure.
    fn status(&self) -> (String, String);
}
