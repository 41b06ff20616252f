//! Stacks of sleeps: what their reader asks of the program that takes them.

use dyno_observe::{Names, Status};

use crate::layout::{Asleep, Woken};

/// Begin or end of a sleep whose stack was taken.
pub enum SleepEvent {
    /// It began.
    Asleep(Box<Asleep>),
    /// It ended.
    Woken(Box<Woken>),
}

/// Stacks of sleeps as they come.
pub trait SleepStacks: Send {
    /// Returns the next event, or None if there is none yet.
    fn take(&mut self) -> Option<SleepEvent>;

    /// Sets the time asleep that a stack stands for from now on, in 2^10 ns.
    fn pace(&self, every: f64);

    /// Returns the number of stacks and ends that found no room so far, and about how many nanoseconds asleep they
    /// stood for.
    fn lost(&self) -> (u64, u64);

    /// Returns the number of records of an unknown length so far.
    fn malformed(&self) -> u64;

    /// Returns whether the sleep of task `tid` that began at `began_ns` goes on. `own` is the number of its slot.
    fn under_way(&self, own: u32, tid: u32, began_ns: u64) -> bool;

    /// Returns the names of labels.
    fn names(&self) -> &Names;

    /// Returns why a label that could not be read was not.
    fn unread(&self) -> Status;

    /// Returns the status of ids of statements.
    fn statements(&self) -> &str;
}
