//! One watch: two threads that read, one for what the server says, one for what the system says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;

use dyno_model::{ActivityProbe, Error, Result, Table, TaskId, now_ns};

use crate::profiler::Profiler;
use crate::reader::Reader;
use crate::sample::memory::Memory;
use crate::sample::sampler::Sampler;
use crate::sample::tables::shares;
use crate::schedule::Reads;
use crate::shared::Shared;
use crate::signal::lock;
use crate::spec::Spec;
use crate::status::Granted;
use crate::tracer::Tracer;

/// How long `stop` waits for the last reads and the sample under way; then the sample is broken off, and
/// it waits once more.
const STOP_PATIENCE_NS: i64 = 1_000_000_000;
/// How long `start` waits for the first: not longer, as the barrier's time is set already.
const START_PATIENCE_NS: i64 = 50_000_000;
const START_PATIENCE_PER_SESSION_NS: i64 = 20_000;

/// Period of the live shares.
const LATEST_NS: i64 = 1_000_000_000;

/// Interval between reads of the profiler's rings, which have room for ten intervals.
const DRAIN_NS: i64 = 200_000_000;

/// A connection to the server, and a way to break a question off from another thread.
pub struct Probe {
    /// Asks.
    pub ask: Box<dyn ActivityProbe>,
    /// The server's task that answers.
    pub backend: Option<TaskId>,
    /// Makes a question under way fail soon, and all to come.
    pub break_off: Box<dyn Fn() + Send + Sync>,
}

/// The observers of one cell.
pub struct Watch {
    shared: Arc<Shared>,
    ask: Mutex<Option<Box<dyn ActivityProbe>>>,
    break_off: Option<Box<dyn Fn() + Send + Sync>>,
    threads: Mutex<Option<usize>>,
}

impl Watch {
    /// Opens the files. `probe`: `Ok(None)` for nobody to ask, an error if the server could not be reached
    /// (its samples are `lost` then, all else is read).
    ///
    /// # Errors
    /// [`Error::Spec`] for a figure out of range.
    pub fn new(spec: Spec, probe: Result<Option<Probe>>) -> Result<Self> {
        spec.check().map_err(Error::Spec)?;
        let (probe, trouble) = match probe {
            Ok(probe) => (probe, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let asked = probe.as_ref().and_then(|p| p.backend);
        let shared = Shared::new(spec, asked);
        if let Some(trouble) = trouble {
            shared.trouble(&trouble);
        }
        if probe.is_none() {
            shared.no_samples();
        }
        let (ask, break_off) = probe.map(|p| (p.ask, p.break_off)).unzip();
        Ok(Self {
            shared: Arc::new(shared),
            ask: Mutex::new(ask),
            break_off,
            threads: Mutex::new(None),
        })
    }

    /// Sets the scheduler trace, or why there is none. Call it before `start`.
    pub fn trace(&self, tracer: Granted<Box<dyn Tracer>>) {
        self.shared.set_tracer(tracer);
    }

    /// With a data source of sampled stacks by its name, or why there is none. Before `start`; not called: none was
    /// asked for.
    pub fn profile(&self, name: &'static str, profiler: Granted<Box<dyn Profiler>>) {
        self.shared.add_profiler(name, profiler);
    }

    /// Starts the threads and waits for their first reads (at most 50 ms and 20 us a session).
    ///
    /// # Errors
    /// When it was started before, or no thread can be made.
    pub fn start(&self, t0_ns: i64, t1_ns: i64) -> Result<()> {
        let mut threads = lock(&self.threads);
        if threads.is_some() {
            return Err(Error::Spec("a watch can be started only once".to_owned()));
        }
        let reads = Reads {
            t0_ns,
            t1_ns,
            interval_ns: self.shared.spec.task_interval_ns,
        };
        let reader = Reader::new(Arc::clone(&self.shared));
        let mut all = 1;
        *threads = Some(all);
        self.spawn("dbdyno-read", move || reader.run(reads))?;
        if let Some(ask) = lock(&self.ask).take() {
            let sampler = Sampler::new(Arc::clone(&self.shared), ask);
            all += 1;
            *threads = Some(all);
            self.spawn("dbdyno-sample", move || sampler.run())?;
        }
        if let Some(word) = self
            .shared
            .spec
            .word
            .as_ref()
            .filter(|_| self.shared.spec.samples_memory())
        {
            let memory = Memory::new(Arc::clone(&self.shared), word);
            all += 1;
            *threads = Some(all);
            self.spawn("dbdyno-memory", move || memory.run())?;
        }
        if self.shared.drain_profilers() {
            let shared = Arc::clone(&self.shared);
            all += 1;
            *threads = Some(all);
            self.spawn("dbdyno-profile", move || drain(&shared))?;
        }
        let sessions = self.shared.spec.sessions.len() as i64;
        let patience_ns = START_PATIENCE_NS + START_PATIENCE_PER_SESSION_NS * sessions;
        self.shared
            .signal
            .wait_until(now_ns() + patience_ns, |s| s.ready + s.ended >= all);
        Ok(())
    }

    fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let run = move || {
            let _ended = EndGuard(shared);
            work();
        };
        let spawned = thread::Builder::new().name(name.to_owned()).spawn(run);
        spawned.map(drop).map_err(|e| {
            self.shared.signal.update(|s| s.ended += 1);
            Error::Io(format!("cannot start a thread: {e}"))
        })
    }

    /// Reads everything a last time, and ends. A current sample has a second, then it is broken off. It returns in any
    /// case: a thread that hangs in the kernel is left behind, and adds no row.
    pub fn stop(&self) {
        self.shared.signal.update(|s| s.stop = true);
        let all = lock(&self.threads).unwrap_or(0);
        let ended = || {
            self.shared
                .signal
                .wait_until(now_ns() + STOP_PATIENCE_NS, |s| s.ended >= all)
        };
        if !ended() {
            self.break_off();
            ended();
        }
    }

    fn break_off(&self) {
        if let Some(break_off) = &self.break_off {
            break_off();
        }
    }

    /// Returns live shares of the last second: see `sample::tables::shares`.
    pub fn latest(&self) -> Vec<(String, f64)> {
        self.shared.samples(now_ns() - LATEST_NS, shares)
    }

    /// (status, detail) of what may be refused: "wait event word", "scheduler trace", "sampler priority"; of
    /// those that were asked for.
    pub fn source_status(&self) -> BTreeMap<&'static str, (String, String)> {
        self.shared.source_status()
    }

    /// Returns the first failure of the activity samples.
    pub fn trouble(&self) -> Option<&str> {
        self.shared.first_trouble()
    }

    /// `samples`, `blocked`, `tasks`, `cgroup`, `host`, `places`, `devices`, `sampler`, the tracer's and the profiler's, as far as they
    /// are.
    pub fn tables(&self) -> Vec<Table> {
        let mut tables = self.recent(i64::MIN);
        tables.extend(self.shared.profiled());
        tables
    }

    /// The same without the profiler's, of reads that were done at or after `since_ns`.
    pub fn recent(&self, since_ns: i64) -> Vec<Table> {
        let shared = &self.shared;
        let mut tables = shared.samples(since_ns, |s| vec![s.samples(), s.sampler()]);
        tables.push(lock(&shared.blocked).table(since_ns));
        tables.push(lock(&shared.tasks).table(since_ns));
        tables.push(lock(&shared.groups).table(since_ns));
        tables.extend(shared.host.as_ref().map(|h| lock(h).table(since_ns)));
        if let Some(places) = &shared.places {
            tables.extend([places.table(), lock(&shared.devices).table(since_ns)]);
        }
        tables.extend(shared.traced(since_ns));
        tables
    }

    /// The same of reads that were done before `before_ns`, for whoever keeps them elsewhere: they are forgotten here.
    /// Tables without rows are left out. What depends on reads to come stays, and is in [`Watch::tables`].
    pub fn take(&self, before_ns: i64) -> Vec<Table> {
        let shared = &self.shared;
        let mut tables = shared.take_samples(before_ns, |s| vec![s.samples(), s.sampler()]);
        tables.push(lock(&shared.blocked).take(before_ns));
        tables.extend(lock(&shared.tasks).take(before_ns));
        tables.push(lock(&shared.groups).take(before_ns));
        tables.extend(shared.host.as_ref().map(|h| lock(h).take(before_ns)));
        tables.push(lock(&shared.devices).take(before_ns));
        tables.extend(shared.take_traced(before_ns));
        tables.retain(|table| table.rows() > 0);
        tables
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.signal.update(|s| s.stop = true);
        self.break_off();
    }
}

/// Runs the thread of the profilers.
fn drain(shared: &Shared) {
    shared.raise_priority();
    shared.signal.update(|s| s.ready += 1);
    while !shared.signal.sleep_until(now_ns() + DRAIN_NS) {
        shared.drain_profilers();
    }
    shared.drain_profilers();
}

/// Counts a thread as ended when it is dropped, also if the thread panicked.
struct EndGuard(Arc<Shared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.signal.update(|s| s.ended += 1);
    }
}
