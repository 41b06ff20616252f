//! Connecting all sessions, several at a time; one that fails fails all.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use dyno_model::{Bracket, Engine, Error, Result, Session, TaskId};

use crate::count::probe::{Phase, ProbeRow, probe};
use crate::load::phases::Failure;
use crate::{limits, thread};

/// A session that is ready, and how long that took.
pub struct Ready<S> {
    pub session: S,
    pub connect_ns: i64,
    pub prepare_ns: i64,
    pub readings: Vec<ProbeRow>,
}

/// All sessions of the engine, in the order of their numbers.
pub fn connect_all<E: Engine>(engine: &E) -> std::result::Result<Vec<Ready<E::Session>>, Failure> {
    let count = engine.sessions();
    let slots: Vec<Mutex<Option<Ready<E::Session>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let failure = Mutex::new(None);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::crew(limits::side_by_side(count), || {
        while !failed.load(Relaxed) {
            let number = next.fetch_add(1, Relaxed);
            let Some(slot) = slots.get(number) else { return };
            match make_ready(engine, number) {
                Ok(ready) => *lock(slot) = Some(ready),
                Err(error) => {
                    note(&failure, number, error);
                    failed.store(true, Relaxed);
                    // The others need not end what they are at: the load is over.
                    engine.abort();
                }
            }
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(failure) => Err(failure),
        None => Ok(slots
            .into_iter()
            .filter_map(|s| s.into_inner().unwrap_or_else(PoisonError::into_inner))
            .collect()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes a failure, unless there is one already.
fn note(place: &Mutex<Option<Failure>>, session: usize, error: Error) {
    let session = (error != Error::Aborted).then_some(session);
    lock(place).get_or_insert(Failure { error, session });
}

fn make_ready<E: Engine>(engine: &E, number: usize) -> Result<Ready<E::Session>> {
    let (connecting, session) = Bracket::around(|| engine.connect(number));
    let mut session = session?;
    let (preparing, readings) = Bracket::around(|| {
        engine.prepare(number, &mut session)?;
        Ok(first_probes(engine, number, &mut session))
    });
    let readings = readings?;
    let (connect_ns, prepare_ns) = (length_ns(connecting), length_ns(preparing));
    Ok(Ready {
        session,
        connect_ns,
        prepare_ns,
        readings,
    })
}

/// Takes three probes, of which the first only warms the server.
fn first_probes<E: Engine>(engine: &E, number: usize, session: &mut E::Session) -> Vec<ProbeRow> {
    if engine.counters().is_empty() {
        return Vec::new();
    }
    engine.probe(session);
    let before = [Phase::Before1, Phase::Before2];
    before
        .into_iter()
        .map(|phase| probe(engine, session, number, phase))
        .collect()
}

fn length_ns(bracket: Bracket) -> i64 {
    bracket.after_ns - bracket.before_ns
}

/// Sessions with the task that serves them, where the server names it.
pub fn backends<S: Session>(ready: &[Ready<S>]) -> Vec<(usize, TaskId)> {
    let all = ready.iter().enumerate();
    all.filter_map(|(i, r)| r.session.backend().map(|task| (i, task)))
        .collect()
}
