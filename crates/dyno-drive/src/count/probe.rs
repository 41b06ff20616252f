//! Reading the counters of each session, before the barrier and after the last call.

use dyno_model::{Bracket, Engine, Reading};

/// Moment of a probe. Two in a row show what a probe itself costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Before1,
    Before2,
    After1,
    After2,
}

impl Phase {
    /// Name in the table `counters`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Before1 => "before1",
            Self::Before2 => "before2",
            Self::After1 => "after1",
            Self::After2 => "after2",
        }
    }
}

/// A probe of one session: one reading for each counter.
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

/// A probe of a session that cannot be asked any more.
pub fn lost(session: usize, phase: Phase, counters: usize) -> ProbeRow {
    let (bracket, readings) = Bracket::around(|| vec![Reading::unknown("lost"); counters]);
    ProbeRow {
        bracket,
        phase,
        session,
        readings,
    }
}
