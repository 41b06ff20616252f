//! All sessions on their threads, from the barrier to their results.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use dyno_model::{Error, Result, Session, now_ns};

use crate::count::call_log::CallLog;
use crate::count::script::ScriptCalls;
use crate::count::seconds::SecondCounts;
use crate::pace::pacing::{PacePart, Paced};
use crate::pace::queue::{Lookout, Queue};
use crate::run::control::Control;
use crate::run::seat::{Record, Seat};
use crate::run::windows::schedules;
use crate::run::worker::Worker;
use crate::{ArrivalSpec, Latency, Schedule, Spec, limits, thread};

/// Sessions parked at the barrier, on their threads.
pub struct Fleet<S> {
    control: Arc<Control>,
    workers: Vec<JoinHandle<Worker<S>>>,
    tids: Vec<i64>,
    arrivals: Option<ArrivalSpec>,
    queue: Arc<Queue>,
    windows_ns: Vec<i64>,
}

/// Result of a load, indexed by session number.
pub struct Outcome<S> {
    /// The connections, lost ones included.
    pub sessions: Vec<S>,
    /// Record of each session.
    pub records: Vec<Record>,
    /// Durations of all measured calls that ended well.
    pub latency: Latency,
    /// The same by second.
    pub seconds: SecondCounts,
    /// Durations and errors by script; empty without scripts.
    pub scripts: Vec<ScriptCalls>,
    /// Result of pacing, if the load is paced.
    pub paced: Option<Paced>,
    /// Log of calls, if there is one.
    pub log: Option<CallLog>,
    /// Windows after the first, if the measurement was cut into windows.
    pub later: Vec<Outcome<()>>,
}

impl<S> Default for Outcome<S> {
    fn default() -> Self {
        Self {
            sessions: Vec::new(),
            records: Vec::new(),
            latency: Latency::default(),
            seconds: SecondCounts::default(),
            scripts: Vec::new(),
            paced: None,
            log: None,
            later: Vec::new(),
        }
    }
}

impl<S> Outcome<S> {
    /// The outcome without its sessions.
    pub fn without_sessions(mut self) -> Outcome<()> {
        let (later, log) = (std::mem::take(&mut self.later), self.log.take());
        self.with(Vec::new(), later, log)
    }

    fn with<T>(self, sessions: Vec<T>, later: Vec<Outcome<()>>, log: Option<CallLog>) -> Outcome<T> {
        Outcome {
            sessions,
            records: self.records,
            latency: self.latency,
            seconds: self.seconds,
            scripts: self.scripts,
            paced: self.paced,
            log,
            later,
        }
    }
}

impl<S: Session + 'static> Fleet<S> {
    /// Spreads the sessions over threads; returns when all threads wait at the barrier.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn park(sessions: Vec<S>, spec: &Spec) -> Result<Self> {
        spec.check()?;
        let count = sessions.len();
        let threads = threads(spec, count);
        let breakers = sessions.iter().map(Session::breaker).collect();
        let control = Arc::new(Control::new(breakers, threads, spec));
        let (sender, tids) = mpsc::channel();
        let mut fleet = Self {
            control,
            workers: Vec::new(),
            tids: Vec::new(),
            arrivals: spec.arrivals.clone(),
            queue: Arc::default(),
            windows_ns: spec.windows_ns.clone(),
        };
        for (number, seats) in spread(sessions, threads, spec).into_iter().enumerate() {
            let (log, control) = (log(spec, threads), fleet.control.clone());
            let worker = Worker::new(number, seats, spec, log, control, &fleet.queue);
            fleet.add(number, worker, sender.clone())?;
        }
        drop(sender);
        fleet.tids = tids.iter().take(threads).collect();
        Ok(fleet)
    }

    fn add(&mut self, number: usize, mut worker: Worker<S>, tids: mpsc::Sender<i64>) -> Result<()> {
        let control = self.control.clone();
        let worker = thread::spawn(&format!("dyno-drive-{number}"), move || {
            let done = Done(control);
            // Nobody listens any more when another thread could not be started.
            let _ = tids.send(thread::tid());
            worker.run();
            drop(done);
            worker
        })?;
        self.workers.push(worker);
        Ok(())
    }

    /// Commands and live progress.
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
        if let Some(spec) = &self.arrivals {
            let lookout = Lookout::new(spec, schedule.start_ns, self.queue.clone());
            self.control.watch(lookout);
        }
        // Before the barrier: a progress that is asked for at once has the backlog, too.
        self.control.start(schedule);
        self.control.supervise();
        let joined = std::mem::take(&mut self.workers)
            .into_iter()
            .map(JoinHandle::join);
        let workers = joined.collect::<std::result::Result<Vec<_>, _>>();
        let mut workers = workers.map_err(|_| Error::Io("a driver thread panicked".to_owned()))?;
        let windows = schedules(&self.windows_ns, schedule);
        let paced = self.paced(&windows, &mut workers);
        Ok(gather(workers, &windows, paced))
    }

    /// Returns the threads' parts put together, by window. A load whose sessions all ended before the deadline ends now.
    fn paced(&self, windows: &[Schedule], workers: &mut [Worker<S>]) -> Vec<Paced> {
        let end_ns = self.control.deadline_ns().min(now_ns());
        let Some(spec) = self.arrivals.as_ref() else {
            return Vec::new();
        };
        let mut parts = vec![PacePart::default(); windows.len()];
        for worker in workers {
            let last = worker.pace.take().map(|pace| pace.part);
            let past = worker.past.iter_mut().map(|past| past.pace.take());
            let of_thread: Vec<_> = past.chain([last]).flatten().collect();
            // What was done before the first of several windows is not measured.
            for (part, sum) in of_thread.iter().rev().zip(parts.iter_mut().rev()) {
                *sum = std::mem::take(sum).merge(part);
            }
        }
        Paced::by_window(spec, &self.queue, windows, end_ns, parts)
    }
}

/// Ends threads that never ran, without a call.
impl<S> Drop for Fleet<S> {
    fn drop(&mut self) {
        self.control.abort();
        self.control.start(Schedule {
            start_ns: 0,
            t0_ns: 0,
            t1_ns: 0,
        });
        for worker in self.workers.drain(..) {
            // The panic's message was printed; there is nobody to hand it to.
            let _ = worker.join();
        }
    }
}

/// Reports the end of a thread, also of one that panics.
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

fn gather<S: Session>(workers: Vec<Worker<S>>, windows: &[Schedule], paced: Vec<Paced>) -> Outcome<S> {
    let mut seats = Vec::new();
    let mut scripts: Vec<Vec<ScriptCalls>> = vec![Vec::new(); windows.len()];
    let mut seconds = vec![SecondCounts::default(); windows.len()];
    let mut log: Option<CallLog> = None;
    for worker in workers {
        let past = worker.past.into_iter().map(|past| past.scripts);
        let of_thread: Vec<_> = past.chain([worker.scripts]).collect();
        // From the last one back: a thread that settled before the first of several windows has one part more.
        for (part, sum) in of_thread.iter().rev().zip(scripts.iter_mut().rev()) {
            sum.resize_with(part.len(), ScriptCalls::default);
            *sum = sum.iter().zip(part).map(|(a, b)| a.clone().merge(b)).collect();
        }
        for (part, sum) in worker.seconds.iter().rev().zip(seconds.iter_mut().rev()) {
            *sum = std::mem::take(sum).merge(part);
        }
        log = crate::count::tally::either(log, worker.log, CallLog::merge);
        seats.extend(worker.seats);
    }
    let has_scripts = seats.first().is_some_and(|seat| seat.session.scripts() > 0);
    seats.sort_by_key(|seat| seat.number);
    let ends: Vec<_> = windows[..windows.len() - 1].iter().map(|w| w.t1_ns).collect();
    let (sessions, records): (Vec<_>, Vec<_>) = seats.into_iter().map(|s| s.into_parts(&ends)).unzip();
    let mut records: Vec<_> = records.into_iter().map(Vec::into_iter).collect();
    let (mut paced, mut seconds) = (paced.into_iter(), seconds.into_iter());
    let mut all = scripts.into_iter().map(|calls| Outcome {
        sessions: Vec::new(),
        records: records.iter_mut().filter_map(Iterator::next).collect(),
        latency: calls
            .iter()
            .fold(Latency::default(), |all, s| all.merge(&s.latency)),
        seconds: seconds.next().unwrap_or_default(),
        scripts: if has_scripts { calls } else { Vec::new() },
        paced: paced.next(),
        log: None,
        later: Vec::new(),
    });
    let first: Option<Outcome<()>> = all.next();
    let later = all.collect();
    first.unwrap_or_default().with(sessions, later, log)
}
