//! Interface, for a watch, of a data source that sees every switch of a task (the scheduler trace).

use std::sync::Arc;

use dyno_model::Table;

use crate::read::task::Task;

/// A data source that sees every switch of each task, and keeps its own rows.
///
/// The watch registers tasks from the thread that met them, and reads from its reader thread, never both at once.
pub trait Tracer: Send {
    /// Traces a task of the server (role session, other, helper) from now on. It is called as soon as a task is met.
    /// The same tid comes again when a number was given to a new task, and when a backend was adopted as a session
    /// (same pid and start, other role): the latest call counts. [`Task::gone`] is true from the first read after the
    /// task's end.
    fn watch(&mut self, task: &Arc<Task>);

    /// Reads the sums of all tasks and keeps them as rows: at the start, at t0, at t1, once an interval
    /// between, and at the end. `ends`: one of the reads from which differences are taken, that is, not
    /// between; the others may leave out what is long.
    fn read(&mut self, ends: bool);

    /// Makes room for further tasks if it runs short. It is called a few times a second.
    fn make_room(&mut self) {}

    /// Returns the rows of `traced`, `waits`, `wait_times` and, if system calls are counted, `syscalls` and
    /// `syscall_sizes` whose `after_ns` is at or after `since_ns`.
    fn tables(&self, since_ns: i64) -> Vec<Table>;

    /// Removes and returns the rows whose `after_ns` is before `before_ns`.
    fn take_tables(&mut self, before_ns: i64) -> Vec<Table>;

    /// Returns current status and detail of the data source "scheduler trace": ok, or the missing right or feature and
    /// the cure.
    fn status(&self) -> (String, String);

    /// Returns the same for the labels of its waits, without which the waits that tasks slept in are unknown.
    fn labels(&self) -> (String, String);

    /// Returns the same for the ids of statements.
    fn statements(&self) -> (String, String);
}
