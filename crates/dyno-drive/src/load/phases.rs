//! Operations on a load of any engine.

use std::time::Duration;

use dyno_model::{Error, Result, Table, TaskId};

use crate::Progress;

/// An error, and the session it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error.
    pub error: Error,
    /// The session, if the error belongs to one.
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
    /// Waits for the end of the phase; true if it is over.
    ///
    /// # Errors
    /// The phase's failure.
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
    /// Tables of one window of the measurement, from 0; without probes and the engine's own.
    ///
    /// # Errors
    /// [`Error::Spec`] before.
    fn window_tables(&self, window: usize) -> Result<Vec<Table>>;
}
