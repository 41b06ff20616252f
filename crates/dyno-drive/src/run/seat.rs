//! A session with its state, and its record afterwards.

use dyno_model::{Progress, Result, Session, SplitMix64, Start, Traffic, now_ns};

use crate::count::call_log::CpuProbe;
use crate::count::script::ScriptTally;
use crate::count::tally::{Durations, Times};
use crate::pace::pacing::Claim;
use crate::pace::think::stream;
use crate::{ErrorTally, Spec, Tally};

/// The way a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Ended by itself, at t1.
    Deadline,
    /// Ended by itself, after a stop.
    Stopped,
    /// Ended by itself, after its last call.
    Limit,
    /// The connection broke.
    Lost(String),
    /// We broke the connection.
    Aborted(String),
}

impl End {
    /// Name in the table `sessions`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Stopped => "stopped",
            Self::Limit => "limit",
            Self::Lost(_) => "lost",
            Self::Aborted(_) => "aborted",
        }
    }

    /// Details of the end.
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

/// Record of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Counts and times.
    pub tally: Tally,
    /// Counts and times by script; empty without scripts.
    pub scripts: Vec<ScriptTally>,
    /// Durations of measured calls that ended well, from the real start; only when paced.
    pub service: Durations,
    /// Errors by code.
    pub errors: ErrorTally,
    /// The way it ended.
    pub end: End,
    /// Messages that its calls sent and waited for, from the barrier on.
    pub round_trips: Option<u64>,
    /// Bytes that its calls sent and received, from the barrier on.
    pub traffic: Option<Traffic>,
    /// The last call was not waited for.
    pub given_up: bool,
}

/// Counts of a session in one window.
#[derive(Debug)]
struct Part {
    tallies: Vec<ScriptTally>,
    service: Durations,
    errors: ErrorTally,
}

/// A session, its state and its counts.
pub struct Seat<S> {
    /// The connection.
    pub session: S,
    /// Number of the session, from 0.
    pub number: usize,
    /// Start of the call under way, and when it was due.
    pub times: Times,
    /// Generator of think times.
    pub rng: SplitMix64,
    /// The arrival that the session waits for, if paced.
    pub claim: Option<Claim>,
    /// Number of calls that it may still make.
    pub calls_left: u64,
    /// The session waits until it can write.
    pub writing: bool,
    /// Counts and times by script; without scripts there is one.
    pub tallies: Vec<ScriptTally>,
    /// Durations of measured calls that ended well, from the real start; only when paced.
    pub service: Durations,
    /// Errors by code.
    pub errors: ErrorTally,
    /// Probe of the backend's CPU, if that is logged.
    pub cpu: Option<CpuProbe>,
    /// The call is not waited for any more.
    pub given_up: bool,
    /// The way it ended.
    pub end: Option<End>,
    /// Instant of the end.
    pub end_ns: i64,
    /// Counts of earlier windows.
    past: Vec<Part>,
    /// The session's round trips before the barrier.
    warm_trips: Option<u64>,
    /// The session's bytes before the barrier.
    warm_traffic: Option<Traffic>,
}

impl<S: Session> Seat<S> {
    /// A seat before the barrier.
    pub fn new(session: S, number: usize, spec: &Spec) -> Self {
        let task = if spec.log_calls && spec.log_cpu {
            session.backend()
        } else {
            None
        };
        let (warm_trips, warm_traffic) = (session.round_trips(), session.traffic());
        let tallies = vec![ScriptTally::default(); session.scripts().max(1)];
        Self {
            session,
            number,
            times: Times::default(),
            rng: stream(spec.seed, spec.first_session.wrapping_add(number as u64)),
            claim: None,
            calls_left: spec.max_calls.unwrap_or(u64::MAX),
            writing: false,
            tallies,
            service: Durations::default(),
            errors: ErrorTally::default(),
            cpu: task.and_then(CpuProbe::open),
            given_up: false,
            end: None,
            end_ns: i64::MAX,
            past: Vec::new(),
            warm_trips,
            warm_traffic,
        }
    }

    /// Begins a call.
    #[inline]
    pub fn begin(&mut self, start: Start, due_ns: i64) -> Result<Progress> {
        (self.times.due_ns, self.times.start_ns) = (due_ns, start.now_ns);
        self.session.begin(start)
    }

    /// Instant at which the call that is over ended; must be asked at once after it.
    #[inline]
    pub fn end_ns(&self) -> i64 {
        self.session.ended_ns().unwrap_or_else(now_ns)
    }

    /// Instant from which the next call may begin. A session that does more than its calls has done so since `end_ns`.
    #[inline]
    pub fn free_ns(&self, end_ns: i64) -> i64 {
        self.session.started_ns().map_or(end_ns, |_| now_ns())
    }

    /// Begins the next window.
    pub fn next_window(&mut self) {
        let part = self.part();
        self.past.push(part);
    }

    fn part(&mut self) -> Part {
        let fresh = vec![ScriptTally::default(); self.tallies.len()];
        Part {
            tallies: std::mem::replace(&mut self.tallies, fresh),
            service: std::mem::take(&mut self.service),
            errors: std::mem::take(&mut self.errors),
        }
    }

    /// The connection, and what is kept of each window; `ends_ns` of those before the last. What was done before the
    /// first is counted with it.
    pub fn into_parts(mut self, ends_ns: &[i64]) -> (S, Vec<Record>) {
        let last = self.part();
        let mut parts: Vec<_> = std::mem::take(&mut self.past).into_iter().chain([last]).collect();
        let settled = (parts.len() > ends_ns.len() + 1).then(|| parts.remove(0));
        let one = parts.len() == 1;
        let ends = ends_ns.iter().copied().chain([i64::MAX]);
        let mut records: Vec<_> = parts
            .into_iter()
            .zip(ends)
            .map(|(part, end_ns)| self.record(part, end_ns, one))
            .collect();
        if let (Some(settled), Some(first)) = (settled, records.first_mut()) {
            let before = sum(&settled.tallies);
            (first.tally.settle_calls, first.tally.settle_errors) = (before.calls, before.errors);
            // A session begins with its first call, measured or not.
            first.tally.began_ns = before.began_ns.or(first.tally.began_ns);
            for (script, before) in first.scripts.iter_mut().zip(&settled.tallies) {
                script.tally.settle_calls = before.tally.calls;
                script.tally.settle_errors = before.tally.errors;
            }
        }
        (self.session, records)
    }

    fn record(&self, part: Part, end_ns: i64, one: bool) -> Record {
        let end = if self.end_ns >= end_ns {
            End::Deadline
        } else {
            self.end.clone().unwrap_or(End::Stopped)
        };
        // The session counts them over the whole load: of one window they are not known.
        let all_trips = self.session.round_trips().filter(|_| one);
        let all_traffic = self.session.traffic().filter(|_| one);
        Record {
            tally: sum(&part.tallies),
            scripts: if self.session.scripts() > 0 {
                part.tallies
            } else {
                Vec::new()
            },
            service: part.service,
            errors: part.errors,
            end,
            round_trips: all_trips.zip(self.warm_trips).map(|(all, warm)| all - warm),
            traffic: all_traffic.zip(self.warm_traffic).map(|(all, warm)| all - warm),
            given_up: self.given_up,
        }
    }
}

fn sum(tallies: &[ScriptTally]) -> Tally {
    tallies
        .iter()
        .fold(Tally::default(), |all, t| all.merge(&t.tally))
}
