//! A load from connecting to its tables. Each phase runs on a thread of its own and is waited for.

mod connect;
mod finish;
pub mod phases;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dyno_model::{Engine, Error, Result, Session, Table, TaskId, now_ns};

use crate::count::probe::ProbeRow;
use crate::run::control::{Control, Progress};
use crate::tables::{self, Setup};
use crate::{Fleet, Outcome, Schedule, Spec, limits, thread};
use connect::{Ready, backends, connect_all};
use finish::finish_all;
use phases::{Failure, Phases};

/// Time that a dropped load waits for what it breaks off.
const END_PATIENCE: Duration = Duration::from_secs(3);

/// A load of engine `E`. Dropping it breaks what is still running.
pub struct Load<E: Engine>(Arc<Shared<E>>);

struct Shared<E: Engine> {
    engine: E,
    spec: Spec,
    state: Mutex<State<E::Session>>,
    changed: Condvar,
}

struct State<S> {
    stage: Stage<S>,
    failure: Option<Failure>,
    control: Option<Arc<Control>>,
    backends: Vec<(usize, TaskId)>,
    threads: Vec<i64>,
    setups: Vec<Setup>,
    probes: Vec<ProbeRow>,
    /// Tables of the engine's own.
    tables: Vec<Table>,
}

/// Progress of a load.
enum Stage<S> {
    New,
    /// A phase is under way.
    Busy,
    Parked(Fleet<S>),
    Ended(Outcome<S>),
    Finished(Outcome<()>),
    Failed,
}

impl<S> Stage<S> {
    fn name(&self) -> &'static str {
        match self {
            Self::New => "not connected",
            Self::Busy => "busy",
            Self::Parked(_) => "parked",
            Self::Ended(_) => "ended",
            Self::Finished(_) => "finished",
            Self::Failed => "failed",
        }
    }
}

impl<E: Engine> Load<E> {
    /// Nothing is connected yet.
    pub fn new(engine: E, spec: Spec) -> Self {
        let state = State {
            stage: Stage::New,
            failure: None,
            control: None,
            backends: Vec::new(),
            threads: Vec::new(),
            setups: Vec::new(),
            probes: Vec::new(),
            tables: Vec::new(),
        };
        Self(Arc::new(Shared {
            engine,
            spec,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }))
    }

    /// Begins a phase: `work` takes the stage and gives the next.
    fn begin(
        &self,
        phase: &str,
        fits: impl FnOnce(&Stage<E::Session>) -> bool,
        work: impl FnOnce(&Shared<E>, Stage<E::Session>) -> Step<E::Session> + Send + 'static,
    ) -> Result<()> {
        let mut state = self.0.state();
        if !fits(&state.stage) {
            return Err(Error::Spec(format!(
                "{phase}: the load is {}",
                state.stage.name()
            )));
        }
        let before = std::mem::replace(&mut state.stage, Stage::Busy);
        let shared = self.0.clone();
        let spawned = thread::spawn(&format!("dyno-{phase}"), move || {
            let guard = Panicked(&shared);
            let after = work(&shared, before);
            std::mem::forget(guard);
            shared.end_phase(after);
        });
        if let Err(error) = spawned {
            state.stage = Stage::Failed;
            return Err(error);
        }
        Ok(())
    }
}

type Step<S> = std::result::Result<Stage<S>, Failure>;

/// A phase that panics is over, too.
struct Panicked<'a, E: Engine>(&'a Shared<E>);

impl<E: Engine> Drop for Panicked<'_, E> {
    fn drop(&mut self) {
        self.0
            .end_phase(Err(Error::Io("the driver panicked".to_owned()).into()));
    }
}

impl<E: Engine> Shared<E> {
    fn state(&self) -> MutexGuard<'_, State<E::Session>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_phase(&self, step: Step<E::Session>) {
        let mut state = self.state();
        match step {
            Ok(next) => state.stage = next,
            Err(failure) => {
                state.failure = Some(failure);
                state.stage = Stage::Failed;
            }
        }
        self.changed.notify_all();
    }

    fn connect(&self) -> Step<E::Session> {
        self.spec.check()?;
        let each = if self.spec.log_calls && self.spec.log_cpu {
            3
        } else {
            1
        };
        // With the CPU logged each session has two files of /proc open besides its socket.
        limits::make_room_for_descriptors(self.engine.sessions() * each)?;
        let ready = connect_all(&self.engine)?;
        let setups = ready.iter().map(setup).collect();
        let backends = backends(&ready);
        let (mut sessions, mut probes) = (Vec::new(), Vec::new());
        for each in ready {
            sessions.push(each.session);
            probes.extend(each.readings);
        }
        let fleet = Fleet::park(sessions, &self.spec)?;
        let mut state = self.state();
        state.control = Some(fleet.control().clone());
        state.threads = fleet.threads().to_vec();
        (state.setups, state.backends, state.probes) = (setups, backends, probes);
        Ok(Stage::Parked(fleet))
    }

    /// Takes the last probes. A fleet that never started ends without a call.
    fn finish(&self, stage: Stage<E::Session>) -> Step<E::Session> {
        let outcome = match stage {
            Stage::Parked(fleet) => run_nothing(fleet)?,
            Stage::Ended(outcome) => outcome,
            _ => return Err(Error::Spec("finish: nothing ran".to_owned()).into()),
        };
        let mut outcome = outcome;
        let sessions = std::mem::take(&mut outcome.sessions);
        let probes = finish_all(&self.engine, sessions, &outcome.records);
        self.state().probes.extend(probes);
        Ok(Stage::Finished(outcome.without_sessions()))
    }
}

fn run_nothing<S: Session + 'static>(fleet: Fleet<S>) -> Result<Outcome<S>> {
    fleet.control().stop();
    let now = now_ns();
    fleet.run(Schedule {
        start_ns: now,
        t0_ns: now,
        t1_ns: i64::MAX,
    })
}

/// Sessions whose call was given up (no answer within the grace, or the load was broken off) may keep the
/// server busy for as long as that would have taken. One request that fails is enough: the server is gone.
fn cancel_given_up<E: Engine>(engine: &E, outcome: &Outcome<E::Session>) {
    let given_up = outcome.sessions.iter().zip(&outcome.records);
    let mut left = given_up.filter(|(_, record)| record.given_up);
    let _ = left.try_for_each(|(session, _)| engine.cancel(session));
}

fn setup<S: Session>(ready: &Ready<S>) -> Setup {
    let backend_pid = ready.session.backend().map(|task| task.pid);
    Setup {
        backend_pid,
        connect_ns: ready.connect_ns,
        prepare_ns: ready.prepare_ns,
    }
}

impl<E: Engine> Phases for Load<E> {
    fn connect(&self) -> Result<()> {
        self.begin(
            "connect",
            |stage| matches!(stage, Stage::New),
            |shared, _| shared.connect(),
        )
    }

    fn start(&self, start_ns: i64, t0_ns: i64, t1_ns: i64) -> Result<()> {
        let schedule = Schedule::new(start_ns, t0_ns, t1_ns)?;
        let arrivals = self.0.spec.arrivals.as_ref();
        arrivals.map_or(Ok(()), |arrivals| arrivals.check_start(start_ns, now_ns()))?;
        let parked = |stage: &Stage<_>| matches!(stage, Stage::Parked(_));
        self.begin("start", parked, move |shared, stage| match stage {
            Stage::Parked(fleet) => {
                let outcome = fleet.run(schedule)?;
                cancel_given_up(&shared.engine, &outcome);
                shared.state().tables = shared.engine.tables(&outcome.sessions);
                Ok(Stage::Ended(outcome))
            }
            other => Ok(other),
        })
    }

    fn finish(&self) -> Result<()> {
        let ran = |stage: &Stage<_>| matches!(stage, Stage::Parked(_) | Stage::Ended(_));
        self.begin("finish", ran, Shared::finish)
    }

    fn wait(&self, timeout: Duration) -> std::result::Result<bool, Failure> {
        let state = self.0.state();
        let busy = |state: &mut State<_>| matches!(state.stage, Stage::Busy);
        let waited = self.0.changed.wait_timeout_while(state, timeout, busy);
        let (state, result) = waited.unwrap_or_else(PoisonError::into_inner);
        match &state.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(!result.timed_out()),
        }
    }

    fn stop(&self) {
        if let Some(control) = &self.0.state().control {
            control.stop();
        }
    }

    fn abort(&self) {
        let control = self.0.state().control.clone();
        if let Some(control) = control {
            control.abort();
        }
        self.0.engine.abort();
    }

    fn progress(&self) -> Progress {
        self.0
            .state()
            .control
            .as_ref()
            .map(|c| c.progress())
            .unwrap_or_default()
    }

    fn live_durations(&self) -> Vec<(u64, u64)> {
        let control = self.0.state().control.clone();
        control.map(|c| c.live_durations()).unwrap_or_default()
    }

    fn backends(&self) -> Vec<(usize, TaskId)> {
        self.0.state().backends.clone()
    }

    fn threads(&self) -> Vec<i64> {
        self.0.state().threads.clone()
    }

    fn tables(&self) -> Result<Vec<Table>> {
        let mut all = self.window_tables(0)?;
        let state = self.0.state();
        all.push(tables::counters(self.0.engine.counters(), &state.probes));
        all.extend(state.tables.iter().cloned());
        Ok(all)
    }

    fn window_tables(&self, window: usize) -> Result<Vec<Table>> {
        let state = self.0.state();
        let engine = &self.0.engine;
        let from_later = |later: &[Outcome<()>]| {
            let one = later.get(window.wrapping_sub(1));
            one.map(|outcome| tables::all(engine, &state.setups, outcome))
        };
        let all = match &state.stage {
            Stage::Ended(outcome) if window == 0 => Some(tables::all(engine, &state.setups, outcome)),
            Stage::Finished(outcome) if window == 0 => Some(tables::all(engine, &state.setups, outcome)),
            Stage::Ended(outcome) => from_later(&outcome.later),
            Stage::Finished(outcome) => from_later(&outcome.later),
            other => return Err(Error::Spec(format!("tables: the load is {}", other.name()))),
        };
        all.ok_or_else(|| Error::Spec(format!("tables: there is no window {window}")))
    }
}

impl<E: Engine> Drop for Load<E> {
    fn drop(&mut self) {
        self.abort();
        // The phase's thread ends soon: nothing answers any more. If it does not, it is left behind with what it needs.
        let busy = |state: &mut State<_>| matches!(state.stage, Stage::Busy);
        let waited = self
            .0
            .changed
            .wait_timeout_while(self.0.state(), END_PATIENCE, busy);
        let (mut state, late) = waited.unwrap_or_else(PoisonError::into_inner);
        if !late.timed_out() {
            // A fleet that is still parked goes home.
            state.stage = Stage::Failed;
        }
    }
}
