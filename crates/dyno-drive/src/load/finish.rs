//! The end of all sessions: their last probes, and good-bye.

use std::sync::Mutex;

use dyno_model::{Engine, Session};

use crate::count::probe::{Phase, ProbeRow, lost, probe};
use crate::{Record, limits, thread};

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
    // Sessions end in any order; the table has them by number.
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
