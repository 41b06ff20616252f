//! Reading the counters of each session, before the barrier and after the last call.

use std::sync::Mutex;

use dyno_model::{Bracket, Engine, Reading, Session};

use crate::{Record, limits, thread};

/// When a probe was taken. Two in a row tell what a probe itself costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Before1,
    Before2,
    After1,
    After2,
}

impl Phase {
    /// As in the table `counters`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Before1 => "before1",
            Self::Before2 => "before2",
            Self::After1 => "after1",
            Self::After2 => "after2",
        }
    }
}

/// One probe of one session: a reading for each counter.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeRow {
    pub bracket: Bracket,
    pub phase: Phase,
    pub session: usize,
    pub readings: Vec<Reading>,
}

/// Reads the session's counters.
pub fn probe<E: Engine>(engine: &E, connection: &mut E::Session, session: usize, phase: Phase) -> ProbeRow {
    let (bracket, readings) = Bracket::around(|| engine.probe(connection));
    ProbeRow {
        bracket,
        phase,
        session,
        readings,
    }
}

/// The last two probes of all sessions; then the sessions are closed. The records come back.
pub fn finish_all<E: Engine>(engine: &E, sessions: Vec<E::Session>, records: &[Record]) -> Vec<ProbeRow> {
    let count = sessions.len();
    let rows = Mutex::new(Vec::new());
    let todo = Mutex::new(sessions.into_iter().zip(records).enumerate());
    thread::crew(limits::side_by_side(count), || {
        loop {
            let next = todo.lock().ok().and_then(|mut todo| todo.next());
            let Some((number, (session, record))) = next else {
                return;
            };
            let done = finish(engine, session, number, record);
            if let Ok(mut rows) = rows.lock() {
                rows.extend(done);
            }
        }
    });
    let mut rows = rows.into_inner().unwrap_or_default();
    rows.sort_by_key(|row: &ProbeRow| row.session);
    rows
}

fn finish<E: Engine>(engine: &E, mut session: E::Session, number: usize, record: &Record) -> Vec<ProbeRow> {
    let usable = record.end.is_usable() && session.set_blocking(true).is_ok();
    let rows = match engine.counters().len() {
        0 => Vec::new(),
        counters if usable => {
            let first = probe(engine, &mut session, number, Phase::After1);
            let answered = first.readings.iter().any(|r| r.status != "lost");
            let second = if answered {
                probe(engine, &mut session, number, Phase::After2)
            } else {
                lost(number, Phase::After2, counters) // once is enough to wait
            };
            vec![first, second]
        }
        counters => [Phase::After1, Phase::After2]
            .map(|phase| lost(number, phase, counters))
            .into(),
    };
    if usable {
        engine.close(session);
    }
    rows
}

fn lost(session: usize, phase: Phase, counters: usize) -> ProbeRow {
    let (bracket, readings) = Bracket::around(|| vec![Reading::unknown("lost"); counters]);
    ProbeRow {
        bracket,
        phase,
        session,
        readings,
    }
}
