//! All sessions on their threads: parked, run, brought home.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use dyno_model::{Error, Result, Session};

use crate::call_log::CallLog;
use crate::control::Control;
use crate::seat::{Record, Seat};
use crate::worker::Worker;
use crate::{Latency, Schedule, Spec, limits, thread};

/// Sessions parked at the barrier, on their threads.
pub struct Fleet<S> {
    control: Arc<Control>,
    workers: Vec<JoinHandle<Worker<S>>>,
    tids: Vec<i64>,
}

/// What came of a load. Sessions and records are in the order of their numbers.
pub struct Outcome<S> {
    /// The connections, lost ones included.
    pub sessions: Vec<S>,
    /// What is kept of each.
    pub records: Vec<Record>,
    /// Durations of all measured calls that ended well.
    pub latency: Latency,
    /// Each call, if that was asked for.
    pub log: Option<CallLog>,
}

impl<S: Session + 'static> Fleet<S> {
    /// Spreads the sessions over threads; returns when all threads wait at the barrier.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn park(sessions: Vec<S>, spec: &Spec) -> Result<Self> {
        let count = sessions.len();
        let threads = threads(spec, count);
        let descriptors = sessions.iter().map(Session::fd).collect();
        let control = Arc::new(Control::new(descriptors, threads, spec.grace_ms));
        let (tell, told) = mpsc::channel();
        let mut fleet = Self {
            control,
            workers: Vec::new(),
            tids: Vec::new(),
        };
        for (number, seats) in spread(sessions, threads, spec).into_iter().enumerate() {
            let (log, control) = (log(spec, threads), fleet.control.clone());
            let worker = Worker::new(number, seats, spec, log, control);
            fleet.add(number, worker, tell.clone())?;
        }
        drop(tell);
        fleet.tids = told.iter().take(threads).collect();
        Ok(fleet)
    }

    fn add(&mut self, number: usize, mut worker: Worker<S>, tell: mpsc::Sender<i64>) -> Result<()> {
        let control = self.control.clone();
        let worker = thread::spawn(&format!("dyno-drive-{number}"), move || {
            let done = Done(control);
            // Nobody listens any more when another thread could not be started.
            let _ = tell.send(thread::tid());
            worker.run();
            drop(done);
            worker
        })?;
        self.workers.push(worker);
        Ok(())
    }

    /// Orders and live figures.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Task ids of the threads.
    pub fn threads(&self) -> &[i64] {
        &self.tids
    }

    /// Opens the barrier, and waits until every session has ended.
    ///
    /// # Errors
    /// When a thread panicked: a defect.
    pub fn run(mut self, schedule: Schedule) -> Result<Outcome<S>> {
        self.control.start(schedule);
        self.control.supervise();
        let joined = std::mem::take(&mut self.workers)
            .into_iter()
            .map(JoinHandle::join);
        let workers = joined.collect::<std::result::Result<Vec<_>, _>>();
        workers
            .map(gather)
            .map_err(|_| Error::Io("a driver thread panicked".to_owned()))
    }
}

/// Threads that never ran go home without a call.
impl<S> Drop for Fleet<S> {
    fn drop(&mut self) {
        self.control.abort();
        self.control.start(Schedule {
            start_ns: 0,
            t0_ns: 0,
            t1_ns: 0,
        });
        for worker in self.workers.drain(..) {
            // What a panic said was printed; there is nobody to hand it to.
            let _ = worker.join();
        }
    }
}

/// Tells the end of a thread, also of one that panics.
struct Done(Arc<Control>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.thread_done();
    }
}

/// Rounds are kept by one thread: it wakes as little as can be beside the calls, and needs no barrier between.
fn threads(spec: &Spec, sessions: usize) -> usize {
    let wanted = if spec.rounds { Some(1) } else { spec.threads };
    wanted.unwrap_or_else(limits::cpus).clamp(1, sessions.max(1))
}

/// Session i to thread i modulo threads.
fn spread<S: Session>(sessions: Vec<S>, threads: usize, spec: &Spec) -> Vec<Vec<Seat<S>>> {
    let mut seats: Vec<Vec<_>> = (0..threads).map(|_| Vec::new()).collect();
    for (number, session) in sessions.into_iter().enumerate() {
        let log_cpu = spec.log_calls && spec.log_cpu;
        seats[number % threads].push(Seat::new(session, number, spec.max_calls, log_cpu));
    }
    seats
}

fn log(spec: &Spec, threads: usize) -> Option<CallLog> {
    spec.log_calls
        .then(|| CallLog::with_limit(spec.log_limit / threads))
}

fn gather<S: Session>(workers: Vec<Worker<S>>) -> Outcome<S> {
    let mut seats = Vec::new();
    let mut latency = Latency::default();
    let mut log: Option<CallLog> = None;
    for worker in workers {
        latency = latency.merge(&worker.latency);
        log = crate::tally::either(log, worker.log, CallLog::merge);
        seats.extend(worker.seats);
    }
    seats.sort_by_key(|seat| seat.number);
    let (sessions, records) = seats.into_iter().map(Seat::into_parts).unzip();
    Outcome {
        sessions,
        records,
        latency,
        log,
    }
}
