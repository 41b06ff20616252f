//! A watch whose rows go to a spool while it reads, so that its memory does not grow with the measurement.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use dyno_model::{Error, Result, now_ns};
use dyno_observe::Watch;

use crate::reply::{Outcome, Reply};
use crate::spool::{Spool, packed};

/// Period whose rows stay in memory for live views. Rows are moved five times as often.
static LIVE_NS: AtomicI64 = AtomicI64::new(10_000_000_000);
const OFTEN: u64 = 5;

/// Sets another period than 10 s.
pub fn set_live(live: Duration) {
    LIVE_NS.store(i64::try_from(live.as_nanos()).unwrap_or(i64::MAX), Relaxed);
}

/// A watch and its spool.
pub struct Spooled {
    pub watch: Watch,
    spool: Mutex<Spool>,
}

impl Spooled {
    pub fn new(watch: Watch) -> Self {
        Self {
            watch,
            spool: Mutex::new(Spool::new()),
        }
    }

    /// Starts the watch, and the thread that empties it.
    ///
    /// # Errors
    /// As [`Watch::start`].
    pub fn start(self: &Arc<Self>, t0_ns: i64, t1_ns: i64) -> Result<()> {
        self.watch.start(t0_ns, t1_ns)?;
        let spooled = Arc::downgrade(self);
        let spawned = thread::Builder::new()
            .name("dbdyno-spool".to_owned())
            .spawn(move || empty(&spooled));
        spawned
            .map(drop)
            .map_err(|e| Error::Io(format!("cannot start a thread: {e}")))
    }

    /// Returns part `number` of all tables as the body, and the number of parts as the value. Part 0 is requested
    /// first.
    pub fn part(&self, number: usize) -> Outcome {
        let spool = self.spool();
        let parts = spool.parts() + 1;
        let body = if number < spool.parts() {
            spool.part(number)?
        } else {
            packed(&self.watch.tables())
        };
        Ok(Reply {
            value: parts.into(),
            body,
        })
    }

    /// As [`Watch::source_status`].
    pub fn source_status(&self) -> BTreeMap<&'static str, (String, String)> {
        let mut sources = self.watch.source_status();
        let (status, detail) = self.spool().status();
        sources.insert("samples on disk", (status.to_owned(), detail));
        sources
    }

    fn spool(&self) -> MutexGuard<'_, Spool> {
        self.spool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves rows that are not live any more to the spool. Returns false if it has no room for more.
    fn spill(&self) -> bool {
        let mut spool = self.spool();
        let tables = self.watch.take(now_ns().saturating_sub(LIVE_NS.load(Relaxed)));
        tables.is_empty() || spool.keep(&tables)
    }
}

/// Moves rows to the spool until the watch is dropped. If there is no more room it stops the watch, so that the rows
/// read so far stay complete.
fn empty(spooled: &Weak<Spooled>) {
    loop {
        thread::sleep(Duration::from_nanos(LIVE_NS.load(Relaxed).unsigned_abs() / OFTEN));
        let Some(spooled) = spooled.upgrade() else {
            return;
        };
        if !spooled.spill() {
            spooled.watch.stop();
            return;
        }
    }
}
