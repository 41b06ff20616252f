//! A session in the driver's hands, and what is kept of it afterwards.

use dyno_model::{Progress, Result, Session, SplitMix64, Start, now_ns};

use crate::call_log::CpuProbe;
use crate::control::Control;
use crate::pace::Claim;
use crate::script::ScriptTally;
use crate::tally::{Durations, Times};
use crate::think::stream;
use crate::{ErrorTally, Spec, Tally};

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, at t1.
    Deadline,
    /// By itself, after a stop.
    Stopped,
    /// By itself, after its last call.
    Limit,
    /// The connection broke.
    Lost(String),
    /// We broke the connection.
    Aborted(String),
}

impl End {
    /// As in the table `sessions`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Stopped => "stopped",
            Self::Limit => "limit",
            Self::Lost(_) => "lost",
            Self::Aborted(_) => "aborted",
        }
    }

    /// More of it.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::Lost(detail) | Self::Aborted(detail) => Some(detail),
            _ => None,
        }
    }

    /// True while the connection can be used.
    pub fn is_usable(&self) -> bool {
        self.detail().is_none()
    }
}

/// What is kept of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Counts and times.
    pub tally: Tally,
    /// The same by script, where there are scripts.
    pub scripts: Vec<ScriptTally>,
    /// Durations of measured calls that ended well, from the real start; only when paced.
    pub service: Durations,
    /// Errors by code.
    pub errors: ErrorTally,
    /// How it ended.
    pub end: End,
    /// Messages that its calls sent and waited for, from the barrier on.
    pub round_trips: Option<u64>,
    /// Its last call was not waited for.
    pub given_up: bool,
}

/// A session, its state and its counts.
pub struct Seat<S> {
    /// The connection. It stays open until all threads are done, so that it can be shut down from outside.
    pub session: S,
    /// 0..N-1
    pub number: usize,
    /// Start of the call under way, and when it was due.
    pub times: Times,
    /// For its think times.
    pub rng: SplitMix64,
    /// The arrival it waits for, when paced.
    pub claim: Option<Claim>,
    /// Calls it may still make.
    pub calls_left: u64,
    /// It waits until it can write.
    pub writing: bool,
    /// Counts and times by script; without scripts there is one.
    pub tallies: Vec<ScriptTally>,
    /// Durations of measured calls that ended well, from the real start; only when paced.
    pub service: Durations,
    /// Errors by code.
    pub errors: ErrorTally,
    /// Where the backend runs, if that is logged.
    pub cpu: Option<CpuProbe>,
    /// Its call is not waited for any more.
    pub given_up: bool,
    /// Set when it has ended.
    pub end: Option<End>,
    /// The session's round trips before the barrier.
    warm_trips: Option<u64>,
}

impl<S: Session> Seat<S> {
    /// Before the barrier.
    pub fn new(session: S, number: usize, spec: &Spec) -> Self {
        let task = if spec.log_calls && spec.log_cpu {
            session.backend()
        } else {
            None
        };
        let warm_trips = session.round_trips();
        let tallies = vec![ScriptTally::default(); session.scripts().max(1)];
        Self {
            session,
            number,
            times: Times::default(),
            rng: stream(spec.seed, number as u64),
            claim: None,
            calls_left: spec.max_calls.unwrap_or(u64::MAX),
            writing: false,
            tallies,
            service: Durations::default(),
            errors: ErrorTally::default(),
            cpu: task.and_then(CpuProbe::open),
            given_up: false,
            end: None,
            warm_trips,
        }
    }

    /// Begins a call.
    #[inline]
    pub fn begin(&mut self, start: Start, due_ns: i64) -> Result<Progress> {
        (self.times.due_ns, self.times.start_ns) = (due_ns, start.now_ns);
        self.session.begin(start)
    }

    /// When the call that is over ended; next to nothing has been done since then.
    #[inline]
    pub fn end_ns(&self) -> i64 {
        self.session.ended_ns().unwrap_or_else(now_ns)
    }

    /// True if the session has a new descriptor, which then may be shut down from outside in place of the old one.
    #[inline]
    pub fn watch_descriptor(&mut self, control: &Control) -> bool {
        let changed = self.session.fd_changed();
        if changed {
            control.replace_descriptor(self.number, self.session.fd());
        }
        changed
    }

    /// The connection, and what is kept.
    pub fn into_parts(self) -> (S, Record) {
        let given_up = self.given_up;
        let scripts = if self.session.scripts() > 0 {
            self.tallies.clone()
        } else {
            Vec::new()
        };
        let end = self.end.unwrap_or(End::Stopped);
        let all_trips = self.session.round_trips();
        let round_trips = all_trips.zip(self.warm_trips).map(|(all, warm)| all - warm);
        (
            self.session,
            Record {
                tally: self
                    .tallies
                    .iter()
                    .fold(Tally::default(), |all, t| all.merge(&t.tally)),
                scripts,
                service: self.service,
                errors: self.errors,
                end,
                round_trips,
                given_up,
            },
        )
    }
}
