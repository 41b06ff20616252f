//! The queue of jobs, and what its workers have done.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dyno_model::{Breaker, Error, Result};

use super::copy::copy;
use super::spec::{LoadProgress, LoaderSpec, StepSpec};
use super::table::{Chunk, MOST_ROWS, Sum, Table, TableSpec};
use crate::client::Client;
use crate::startup;
use crate::target::TargetSpec;
use crate::tls::TlsSetup;

/// Rows of one COPY: a few seconds at most, so that the last ones end together.
const CHUNK_ROWS: i64 = 100_000;
/// For the requests to cancel, all together.
const CANCELLING: Duration = Duration::from_secs(2);

enum Job {
    Copy(Arc<Filling>, Chunk),
    /// These, then jobs of their own for the others.
    Statements(Vec<String>, Vec<Vec<String>>),
}

struct Filling {
    /// Where its sum is.
    number: usize,
    table: Table,
    sql: String,
    freeze: Option<String>,
}

struct State {
    steps: VecDeque<VecDeque<Job>>,
    step: usize,
    /// Jobs of the step that are under way.
    busy: usize,
    workers: usize,
    failure: Option<Error>,
    stopped: bool,
    sums: Vec<(String, Sum)>,
    /// By the number of a table: its jobs that are left, and what follows them.
    left: Vec<(usize, Vec<Vec<String>>)>,
    /// The key of each connection, for a request to cancel.
    keys: Vec<Option<Vec<u8>>>,
}

impl State {
    /// After a job that went well: what follows it is next, while the table is still in memory.
    fn done(&mut self, job: Job, sum: Sum) {
        let follow = match job {
            Job::Statements(_, then) => then.into_iter().map(|s| Job::Statements(s, Vec::new())).collect(),
            Job::Copy(filling, _) => {
                self.sums[filling.number].1.add(sum);
                let (left, after) = &mut self.left[filling.number];
                *left -= 1;
                if *left > 0 || after.is_empty() {
                    return;
                }
                let first = after.remove(0);
                vec![Job::Statements(first, std::mem::take(after))]
            }
        };
        for job in follow.into_iter().rev() {
            self.steps[0].push_front(job);
        }
    }
}

/// Shared by all workers.
pub struct Work {
    target: TargetSpec,
    tls: Option<TlsSetup>,
    breaker: Breaker,
    setup: Vec<String>,
    state: Mutex<State>,
    changed: Condvar,
    /// Rows of all tables, once loaded.
    pub total_rows: u64,
    rows: AtomicU64,
    bytes: AtomicU64,
}

impl Work {
    /// # Errors
    /// [`Error::Spec`]; [`Error::Aborted`] once `stop` is set.
    pub fn new(spec: LoaderSpec, stop: &AtomicBool) -> Result<Self> {
        let tls = spec.target.tls.as_ref().map(TlsSetup::new).transpose()?;
        let (mut sums, mut left, mut total_rows) = (Vec::new(), Vec::new(), 0);
        let steps: Result<_> = spec
            .steps
            .into_iter()
            .map(|s| jobs(s, spec.seed, &mut sums, &mut left, &mut total_rows, stop))
            .collect();
        let state = State {
            steps: steps?,
            step: 0,
            busy: 0,
            workers: spec.workers,
            failure: None,
            stopped: false,
            sums,
            left,
            keys: vec![None; spec.workers],
        };
        Ok(Self {
            target: spec.target,
            tls,
            breaker: Breaker::default(),
            setup: spec.setup,
            state: Mutex::new(state),
            changed: Condvar::new(),
            total_rows,
            rows: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        })
    }

    fn work(&self, number: usize) -> Result<()> {
        let mut client = Client::connect(&self.target, self.tls.as_ref(), &self.breaker)?;
        self.state().keys[number] = Some(client.key.clone());
        self.setup.iter().try_for_each(|sql| client.execute(sql))?;
        while let Some(job) = self.next() {
            let done = match &job {
                Job::Copy(filling, chunk) => self.fill(&mut client, filling, chunk),
                Job::Statements(all, _) => all
                    .iter()
                    .try_for_each(|sql| client.execute(sql))
                    .map(|()| Sum::default()),
            };
            let mut state = self.state();
            state.busy -= 1;
            if let Ok(sum) = done {
                state.done(job, sum);
            }
            drop(state);
            self.changed.notify_all();
            done?;
        }
        client.close();
        Ok(())
    }

    fn fill(&self, client: &mut Client, filling: &Filling, chunk: &Chunk) -> Result<Sum> {
        if let Some(truncate) = &filling.freeze {
            client.execute("begin")?;
            client.execute(truncate)?;
        }
        let sum = copy(client, &filling.sql, &filling.table, chunk, |rows, bytes| {
            self.rows.fetch_add(rows, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        })?;
        if filling.freeze.is_some() {
            client.execute("commit")?;
        }
        Ok(sum)
    }

    /// The next job; one of the next step when all of this one have been done.
    fn next(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if state.stopped || state.steps.is_empty() {
                return None;
            }
            if let Some(job) = state.steps[0].pop_front() {
                state.busy += 1;
                return Some(job);
            }
            if state.busy == 0 {
                state.steps.pop_front();
                state.step += 1;
                self.changed.notify_all();
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    pub fn has_ended(&self, limit: Duration) -> bool {
        let working = |state: &mut State| state.workers > 0;
        let waited = self.changed.wait_timeout_while(self.state(), limit, working);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    pub fn wait(&self, limit: Duration) -> Result<bool> {
        if !self.has_ended(limit) {
            return Ok(false);
        }
        let mut state = self.state();
        match state.failure.take() {
            Some(error) => Err(error),
            None if state.stopped => Err(Error::Aborted),
            None => Ok(true),
        }
    }

    pub fn progress(&self) -> LoadProgress {
        LoadProgress {
            step: self.state().step,
            rows: self.rows.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    pub fn sums(&self) -> Vec<(String, Sum)> {
        self.state().sums.clone()
    }

    /// A server that is at a statement does not look at its socket: it is cancelled first.
    pub fn abort(&self) {
        let mut state = self.state();
        state.stopped = true;
        let keys: Vec<_> = state.keys.iter_mut().filter_map(Option::take).collect();
        drop(state);
        let until = Instant::now() + CANCELLING;
        // A server that does not take one request has nothing to cancel, or takes no other either.
        let _ = keys
            .iter()
            .take_while(|_| Instant::now() < until)
            .try_for_each(|key| startup::cancel(&self.target, self.tls.as_ref(), key));
        self.breaker.abort();
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread's part: counted until it is dropped, so that one that panics has ended, too.
pub struct Worker(Arc<Work>);

impl Worker {
    /// One of those that [`Work`] counts.
    pub fn new(work: Arc<Work>) -> Self {
        Self(work)
    }

    /// Runs a worker, from its connection to the last job.
    pub fn run(self, number: usize) {
        let done = self.0.work(number);
        let mut state = self.0.state();
        state.keys[number] = None;
        let Err(error) = done else { return };
        if state.failure.is_none() && !state.stopped {
            state.failure = Some(error);
        }
        drop(state);
        self.0.abort();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.workers -= 1;
        if std::thread::panicking() && state.failure.is_none() {
            state.failure = Some(Error::Io("the loader panicked".to_owned()));
        }
        drop(state);
        self.0.changed.notify_all();
    }
}

fn jobs(
    step: StepSpec,
    seed: u64,
    sums: &mut Vec<(String, Sum)>,
    left: &mut Vec<(usize, Vec<Vec<String>>)>,
    total_rows: &mut u64,
    unwanted: &AtomicBool,
) -> Result<VecDeque<Job>> {
    let StepSpec {
        statements,
        tables,
        mut after,
        ..
    } = step;
    let plain = |all| Job::Statements(all, Vec::new());
    let mut jobs: VecDeque<_> = statements.into_iter().map(plain).collect();
    for spec in tables {
        let table = Table::new(&spec, seed)?;
        let size = if spec.freeze { i64::MAX } else { CHUNK_ROWS };
        let chunks = table.chunks(spec.rows, size, unwanted)?;
        *total_rows += chunks.iter().map(|chunk| chunk.rows as u64).sum::<u64>();
        if *total_rows > MOST_ROWS as u64 {
            let words = format!("{}: all tables have at most {MOST_ROWS} rows", spec.name);
            return Err(Error::Spec(words));
        }
        let number = sum_of(&spec.name, sums);
        left.resize(sums.len(), (0, Vec::new()));
        left[number].0 += chunks.len();
        left[number]
            .1
            .extend(after.remove(&spec.name).into_iter().flatten());
        let filling = Arc::new(Filling {
            number,
            table,
            sql: statement(&spec),
            freeze: spec.freeze.then(|| format!("truncate only {}", spec.sql)),
        });
        jobs.extend(chunks.into_iter().map(|chunk| Job::Copy(filling.clone(), chunk)));
    }
    Ok(jobs)
}

/// Partitions of a table are summed up together.
fn sum_of(name: &str, sums: &mut Vec<(String, Sum)>) -> usize {
    sums.iter()
        .position(|(known, _)| known == name)
        .unwrap_or_else(|| {
            sums.push((name.to_owned(), Sum::default()));
            sums.len() - 1
        })
}

fn statement(spec: &TableSpec) -> String {
    let quoted = |name: &String| format!("\"{}\"", name.replace('"', "\"\""));
    let columns: Vec<_> = spec
        .columns
        .iter()
        .filter(|c| c.sent)
        .map(|c| quoted(&c.name))
        .collect();
    let freeze = if spec.freeze { ", freeze" } else { "" };
    format!(
        "copy {} ({}) from stdin with (format binary{freeze})",
        spec.sql,
        columns.join(", ")
    )
}
