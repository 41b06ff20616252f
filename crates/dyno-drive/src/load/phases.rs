//! What can be done with a load, whatever its engine.

use std::time::Duration;

use dyno_model::{Error, Result, Table, TaskId};

use crate::Progress;

/// What went wrong, and in which session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What.
    pub error: Error,
    /// Where it was one session's.
    pub session: Option<usize>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, session: None }
    }
}

/// A load of any engine: phases begun by `connect`, `start`, `finish`, each over when `wait` says so.
pub trait Phases: Send + Sync {
    /// Connects, prepares, warms and parks all sessions.
    ///
    /// # Errors
    /// [`Error::Spec`] out of order.
    fn connect(&self) -> Result<()>;
    /// Opens the barrier.
    ///
    /// # Errors
    /// [`Error::Spec`] out of order, or times out of order.
    fn start(&self, start_ns: i64, t0_ns: i64, t1_ns: i64) -> Result<()>;
    /// Takes the last probes and closes the sessions.
    ///
    /// # Errors
    /// [`Error::Spec`] out of order.
    fn finish(&self) -> Result<()>;
    /// True when the phase is over.
    ///
    /// # Errors
    /// What went wrong in it.
    fn wait(&self, timeout: Duration) -> std::result::Result<bool, Failure>;
    /// No further call starts.
    fn stop(&self);
    /// Breaks all connections.
    fn abort(&self);
    /// Live figures.
    fn progress(&self) -> Progress;

    /// Durations of calls so far: see [`Control::live_durations`](crate::Control::live_durations).
    fn live_durations(&self) -> Vec<(u64, u64)>;
    /// (session, task that serves it), once connected.
    fn backends(&self) -> Vec<(usize, TaskId)>;
    /// Task ids of the driver's threads, once connected.
    fn threads(&self) -> Vec<i64>;
    /// Everything, once all sessions have ended; the last probes once finished.
    ///
    /// # Errors
    /// [`Error::Spec`] before.
    fn tables(&self) -> Result<Vec<Table>>;
    /// The same of one of the windows that a measurement was cut into, from 0: without probes and the engine's own.
    ///
    /// # Errors
    /// [`Error::Spec`] before.
    fn window_tables(&self, window: usize) -> Result<Vec<Table>>;
}
