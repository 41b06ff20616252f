//! Loads tables over several connections: steps one after the other, a step's jobs side by side.

mod binary;
mod column;
mod copy;
mod expression;
mod hash;
mod table;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dyno_model::{Error, Result};
use serde::Deserialize;

use crate::target::TargetSpec;
pub use column::{ColumnSpec, Content};
pub use table::{Sum, TableSpec};
use work::Work;

/// What is to be done.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoaderSpec {
    /// The server.
    pub target: TargetSpec,
    /// Connections.
    pub workers: usize,
    /// Seed of all random content.
    pub seed: u64,
    /// Statements that each connection begins with.
    #[serde(default)]
    pub setup: Vec<String>,
    /// One after the other.
    pub steps: Vec<StepSpec>,
}

/// Jobs that may be done at the same time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    /// In progress and errors.
    pub name: String,
    /// Tables to be filled.
    #[serde(default)]
    pub tables: Vec<TableSpec>,
    /// Statements; those of an entry run on one connection, in order.
    #[serde(default)]
    pub statements: Vec<Vec<String>>,
    /// By name of a table that is filled: what follows when all of it is there, while others are still filled.
    /// The first entry, then the others beside each other.
    #[serde(default)]
    pub after: BTreeMap<String, Vec<Vec<String>>>,
}

/// What has been done up to now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadProgress {
    /// The step under way, from 0.
    pub step: usize,
    /// Rows sent.
    pub rows: u64,
    /// Bytes of COPY data sent.
    pub bytes: u64,
}

/// A load under way; dropped, it is broken off.
pub struct Loader {
    work: Arc<Work>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Loader {
    /// Checks the specification, and begins.
    ///
    /// # Errors
    /// [`Error::Spec`], [`Error::Tls`], [`Error::Io`] where no thread can be started.
    pub fn start(spec: LoaderSpec) -> Result<Self> {
        if spec.workers == 0 {
            return Err(Error::Spec("no workers".to_owned()));
        }
        let workers = spec.workers;
        let work = Arc::new(Work::new(spec)?);
        let mut loader = Self {
            work,
            threads: Vec::new(),
        };
        for number in 0..workers {
            let work = loader.work.clone();
            let thread = std::thread::Builder::new()
                .name(format!("loader {number}"))
                .spawn(move || work.run(number));
            loader.threads.push(thread.map_err(|e| Error::Io(e.to_string()))?);
        }
        Ok(loader)
    }

    /// True when all is done, false after `limit`.
    ///
    /// # Errors
    /// The first that a connection met; the others were broken off then.
    pub fn wait(&self, limit: Duration) -> Result<bool> {
        self.work.wait(limit)
    }

    /// Rows of all tables, as they will be.
    pub fn total_rows(&self) -> u64 {
        self.work.total_rows
    }

    /// What has been done.
    pub fn progress(&self) -> LoadProgress {
        self.work.progress()
    }

    /// By table: rows, bytes and checksum, as far as they are loaded.
    pub fn sums(&self) -> Vec<(String, Sum)> {
        self.work.sums()
    }

    /// Cancels all statements and ends all connections. Returns when their threads have ended.
    pub fn abort(&mut self) {
        self.work.abort();
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.abort();
    }
}
