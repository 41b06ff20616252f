//! Loads tables over several connections: steps one after the other, a step's jobs side by side.

mod binary;
mod column;
mod copy;
mod expression;
mod hash;
mod spec;
mod table;
mod work;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use dyno_model::{Error, Result, spawn};

pub use column::{ColumnSpec, Content};
pub use spec::{LoadProgress, LoaderSpec, StepSpec};
pub use table::{Sum, TableSpec};
use work::{Work, Worker};

/// A load under way; dropped, it is broken off.
pub struct Loader(Arc<Work>);

/// More connections than any server takes.
const MOST_WORKERS: usize = 10_000;
/// Time that a dropped loader waits for its connections to end.
const END_PATIENCE: Duration = Duration::from_secs(3);

impl Loader {
    /// Checks the specification, counts the rows, and begins.
    ///
    /// # Errors
    /// [`Error::Spec`], [`Error::Tls`], [`Error::Io`] where no thread can be started; [`Error::Aborted`] once `stop` is
    /// set, before it began.
    pub fn start(spec: LoaderSpec, stop: &AtomicBool) -> Result<Self> {
        if !(1..=MOST_WORKERS).contains(&spec.workers) {
            return Err(Error::Spec(format!(
                "workers must be between 1 and {MOST_WORKERS}"
            )));
        }
        let workers = spec.workers;
        let loader = Self(Arc::new(Work::new(spec, stop)?));
        let workers: Vec<_> = (0..workers).map(|_| Worker::new(loader.0.clone())).collect();
        for (number, worker) in workers.into_iter().enumerate() {
            spawn(&format!("loader {number}"), move || worker.run(number))?;
        }
        Ok(loader)
    }

    /// True when all is done, false after `limit`.
    ///
    /// # Errors
    /// The first that a connection met; the others were broken off then.
    pub fn wait(&self, limit: Duration) -> Result<bool> {
        self.0.wait(limit)
    }

    /// Rows of all tables, as they will be.
    pub fn total_rows(&self) -> u64 {
        self.0.total_rows
    }

    /// Progress so far.
    pub fn progress(&self) -> LoadProgress {
        self.0.progress()
    }

    /// Returns rows, bytes and checksum by table, as far as they are loaded.
    pub fn sums(&self) -> Vec<(String, Sum)> {
        self.0.sums()
    }

    /// Begins to cancel all statements and to end all connections.
    pub fn abort(&self) {
        let work = self.0.clone();
        // Without another thread this one waits for the server.
        if spawn("loader abort", move || work.abort()).is_err() {
            self.0.abort();
        }
    }

    /// True when all connections have ended, false after `limit`.
    pub fn has_ended(&self, limit: Duration) -> bool {
        self.0.has_ended(limit)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.abort();
        self.has_ended(END_PATIENCE);
    }
}
