//! Interface of an engine for the driver outside the hot path: connecting, preparing, probing.

use crate::{Error, Result, Session, Table};

/// Upper bound of the sessions of a load: more than any server takes.
const MOST_SESSIONS: usize = 1_000_000;

/// The number of a load's sessions, from those of its groups.
///
/// # Errors
/// [`Error::Spec`] where there are none, or too many to keep.
pub fn count_sessions(groups: impl IntoIterator<Item = usize>) -> Result<usize> {
    let sum = groups.into_iter().fold(0, usize::saturating_add);
    if (1..=MOST_SESSIONS).contains(&sum) {
        return Ok(sum);
    }
    let words = format!("a load has between 1 and {MOST_SESSIONS} sessions, not {sum}");
    Err(Error::Spec(words))
}

/// A counter that can be read of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// Name in the engine's counters.toml.
    pub name: String,
    /// `counter` (monotonic) or `gauge`.
    pub kind: String,
    /// blocks, bytes, rows, ns, count.
    pub unit: String,
}

/// One value of a counter, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// None if it is unknown; `status` says why.
    pub value: Option<f64>,
    /// A status of `model/sources/source.py`.
    pub status: &'static str,
}

impl Reading {
    /// No value.
    pub fn unknown(status: &'static str) -> Self {
        Self { value: None, status }
    }
}

/// Makes sessions. Called from several threads at once, for different sessions.
pub trait Engine: Send + Sync + 'static {
    /// Its sessions.
    type Session: Session + 'static;

    /// How many sessions the load has.
    fn sessions(&self) -> usize;

    /// Connects and authenticates session `session`; it is in blocking mode.
    ///
    /// # Errors
    /// When there is no connection.
    fn connect(&self, session: usize) -> Result<Self::Session>;

    /// Sets the session up, prepares its statements and warms it.
    ///
    /// # Errors
    /// When the server refuses a statement.
    fn prepare(&self, session: usize, connection: &mut Self::Session) -> Result<()>;

    /// Returns the counters that a probe reads; none without a probe.
    fn counters(&self) -> &[Counter];

    /// Reads the session's counters, one reading for each of [`counters`](Self::counters), in blocking mode.
    fn probe(&self, connection: &mut Self::Session) -> Vec<Reading>;

    /// Name and weight of each script that calls are of, in the order of [`Session::script`]; empty: there are none.
    fn scripts(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// The engine's own tables of what its sessions did, once all have ended.
    fn tables(&self, _sessions: &[Self::Session]) -> Vec<Table> {
        Vec::new()
    }

    /// Ends the session in good order.
    fn close(&self, connection: Self::Session);

    /// Asks the server to end the call of a session that was given up; does not wait for that.
    ///
    /// # Errors
    /// When the server does not take the request.
    fn cancel(&self, _connection: &Self::Session) -> Result<()> {
        Ok(())
    }

    /// Breaks all connections at once, those being made included.
    fn abort(&self);
}
