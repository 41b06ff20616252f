//! All sessions on their threads: parked, run, brought home.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use dyno_model::{Error, Result, Session, now_ns};

use crate::call_log::CallLog;
use crate::control::Control;
use crate::pace::Paced;
use crate::queue::Queue;
use crate::script::ScriptCalls;
use crate::seat::{Record, Seat};
use crate::worker::Worker;
use crate::{ArrivalSpec, Latency, Schedule, Spec, limits, thread};

/// Sessions parked at the barrier, on their threads.
pub struct Fleet<S> {
    control: Arc<Control>,
    workers: Vec<JoinHandle<Worker<S>>>,
    tids: Vec<i64>,
    arrivals: Option<ArrivalSpec>,
    queue: Arc<Queue>,
}

/// What came of a load. Sessions and records are in the order of their numbers.
pub struct Outcome<S> {
    /// The connections, lost ones included.
    pub sessions: Vec<S>,
    /// What is kept of each.
    pub records: Vec<Record>,
    /// Durations of all measured calls that ended well.
    pub latency: Latency,
    /// The same by script, and errors; empty where there are no scripts.
    pub scripts: Vec<ScriptCalls>,
    /// When paced.
    pub paced: Option<Paced>,
    /// Each call, if that was asked for.
    pub log: Option<CallLog>,
}

impl<S: Session + 'static> Fleet<S> {
    /// Spreads the sessions over threads; returns when all threads wait at the barrier.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn park(sessions: Vec<S>, spec: &Spec) -> Result<Self> {
        spec.check()?;
        let count = sessions.len();
        let threads = threads(spec, count);
        let descriptors = sessions.iter().map(Session::fd).collect();
        let control = Arc::new(Control::new(descriptors, threads, spec.grace_ms));
        let (tell, told) = mpsc::channel();
        let mut fleet = Self {
            control,
            workers: Vec::new(),
            tids: Vec::new(),
            arrivals: spec.arrivals.clone(),
            queue: Arc::default(),
        };
        for (number, seats) in spread(sessions, threads, spec).into_iter().enumerate() {
            let (log, control) = (log(spec, threads), fleet.control.clone());
            let worker = Worker::new(number, seats, spec, log, control, &fleet.queue);
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
        let mut workers = workers.map_err(|_| Error::Io("a driver thread panicked".to_owned()))?;
        let paced = self.paced(schedule, &mut workers);
        Ok(Outcome {
            paced,
            ..gather(workers)
        })
    }

    /// What came of all threads' parts. A load whose sessions all ended before the deadline ends now.
    fn paced(&self, schedule: Schedule, workers: &mut [Worker<S>]) -> Option<Paced> {
        let end_ns = self.control.deadline_ns().min(now_ns());
        let parts = workers.iter_mut().filter_map(|w| w.pace.take()).collect();
        let spec = self.arrivals.as_ref()?;
        Some(Paced::of(spec, &self.queue, schedule, end_ns, parts))
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
        seats[number % threads].push(Seat::new(session, number, spec));
    }
    seats
}

fn log(spec: &Spec, threads: usize) -> Option<CallLog> {
    spec.log_calls
        .then(|| CallLog::with_limit(spec.log_limit / threads))
}

fn gather<S: Session>(workers: Vec<Worker<S>>) -> Outcome<S> {
    let mut seats = Vec::new();
    let mut scripts: Vec<ScriptCalls> = Vec::new();
    let mut log: Option<CallLog> = None;
    for worker in workers {
        scripts.resize_with(worker.scripts.len(), ScriptCalls::default);
        scripts = scripts
            .into_iter()
            .zip(&worker.scripts)
            .map(|(a, b)| a.merge(b))
            .collect();
        log = crate::tally::either(log, worker.log, CallLog::merge);
        seats.extend(worker.seats);
    }
    let latency = scripts
        .iter()
        .fold(Latency::default(), |all, s| all.merge(&s.latency));
    if seats.first().is_none_or(|seat| seat.session.scripts() == 0) {
        scripts.clear();
    }
    seats.sort_by_key(|seat| seat.number);
    let (sessions, records) = seats.into_iter().map(Seat::into_parts).unzip();
    Outcome {
        sessions,
        records,
        latency,
        scripts,
        paced: None,
        log,
    }
}
