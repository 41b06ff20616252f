//! What a watch asks of a data source that sees every switch of a task (the scheduler trace).

use std::sync::Arc;

use dyno_model::Table;

use crate::read::task::Task;

/// It sees every switch of each task. It keeps its own rows.
///
/// The watch tells it of tasks from the thread that met them, and reads it from its reader thread, never
/// both at once.
pub trait Tracer: Send {
    /// A task of the server (role session, other, helper) is to be traced from now on. It is told at once
    /// when a task is met. The same tid comes again when a number was given to a new task, and when
    /// a backend was adopted as a session (same pid and start, other role): the latest counts.
    /// A task that ended says so ([`Task::gone`]) from the first read after on.
    fn watch(&mut self, task: &Arc<Task>);

    /// Reads the sums of all tasks and keeps them as rows: at the start, at t0, at t1, once an interval
    /// between, and at the end. `ends`: one of the reads from which differences are taken, that is, not
    /// between; the others may leave out what is long.
    fn read(&mut self, ends: bool);

    /// Makes room for tasks to come, where it runs short: some times a second.
    fn make_room(&mut self) {}

    /// `traced`, `waits`, `wait_times` and, where they are counted, `syscalls` and `syscall_sizes`: rows whose `after_ns`
    /// is at or after
    /// `since_ns`.
    fn tables(&self, since_ns: i64) -> Vec<Table>;

    /// The same of rows whose `after_ns` is before `before_ns`; they are forgotten.
    fn take_tables(&mut self, before_ns: i64) -> Vec<Table>;

    /// (status, detail) of the data source "scheduler trace", as of now: ok, or what is missing and the cure.
    fn status(&self) -> (String, String);

    /// The same of the labels of its waits: without them it says how long tasks slept, and not in which waits.
    fn labels(&self) -> (String, String);

    /// The same of the ids of statements.
    fn statements(&self) -> (String, String);
}
