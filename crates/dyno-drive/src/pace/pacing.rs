//! Paced load: when a free session's next call may start, and how late calls were.

use std::sync::Arc;

use crate::count::tally::{Durations, Times, either};
use crate::pace::arrivals::ArrivalSpec;
use crate::pace::queue::{Arrival, Line, Queue};
use crate::{Latency, Schedule};

/// A start this long after it was due is late.
const LATE_NS: u64 = 1_000_000;

/// How late the calls due in [t0, t1) were that a thread (or several, merged) started. All exact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaceTally {
    /// Calls started.
    pub started: u64,
    /// Calls that were dropped: they had waited longer than the limit.
    pub dropped: u64,
    /// Calls that started late.
    pub late: u64,
    /// Calls that started late although a session was free: the driver was late.
    pub late_driver: u64,
    /// Calls that ended later than the limit after they were due.
    pub over_limit: u64,
    /// Times from due to start, ns.
    pub lag: Durations,
    /// The part of it in which a session was free, ns.
    pub driver_lag: Durations,
    /// Largest number of calls that were due and not started.
    pub backlog_max: u64,
    /// First instant at which a session was free and no call was due.
    pub idle_ns: Option<i64>,
}

impl PaceTally {
    /// Adds what another thread did.
    #[must_use]
    pub fn merge(self, other: &Self) -> Self {
        Self {
            started: self.started + other.started,
            dropped: self.dropped + other.dropped,
            late: self.late + other.late,
            late_driver: self.late_driver + other.late_driver,
            over_limit: self.over_limit + other.over_limit,
            lag: self.lag.merge(&other.lag),
            driver_lag: self.driver_lag.merge(&other.driver_lag),
            backlog_max: self.backlog_max.max(other.backlog_max),
            idle_ns: either(self.idle_ns, other.idle_ns, i64::min),
        }
    }

    fn start(&mut self, claim: Claim, now_ns: i64) -> u64 {
        let lag_ns = (now_ns - claim.arrival.due_ns) as u64;
        let driver_ns = (now_ns - claim.arrival.due_ns.max(claim.free_ns)) as u64;
        self.started += 1;
        self.late += u64::from(lag_ns > LATE_NS);
        self.late_driver += u64::from(driver_ns > LATE_NS);
        self.lag.add(lag_ns);
        self.driver_lag.add(driver_ns);
        lag_ns
    }
}

/// A free session and the arrival that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The call to come.
    pub arrival: Arrival,
    /// Since when the session is free.
    pub free_ns: i64,
}

/// The next step of a free session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Starts a call that was due at this instant.
    Start(i64),
    /// Waits until this instant.
    Wait(i64),
}

/// Pacing on one thread.
#[derive(Debug)]
pub struct Pace {
    queue: Arc<Queue>,
    line: Line,
    schedule: Schedule,
    pub(crate) limit_ns: i64,
    /// Counts of the window under way.
    pub part: PacePart,
}

/// Results of a thread, or of several merged, in one window.
#[derive(Clone, Debug, Default)]
pub struct PacePart {
    /// Counts.
    pub tally: PaceTally,
    /// Durations from the real start, of measured calls that ended well.
    pub service: Latency,
    /// Times from due to start.
    pub lag: Latency,
}

impl PacePart {
    /// Adds what another thread did.
    #[must_use]
    pub fn merge(self, other: &Self) -> Self {
        Self {
            tally: self.tally.merge(&other.tally),
            service: self.service.merge(&other.service),
            lag: self.lag.merge(&other.lag),
        }
    }
}

impl Pace {
    /// Pacing from the barrier on.
    pub fn new(spec: &ArrivalSpec, queue: Arc<Queue>, schedule: Schedule) -> Self {
        let limit_ns = spec
            .latency_limit_us
            .and_then(|us| i64::try_from(us.saturating_mul(1000)).ok());
        Self {
            queue,
            line: Line::new(spec, schedule.start_ns),
            schedule,
            limit_ns: limit_ns.unwrap_or(i64::MAX),
            part: PacePart::default(),
        }
    }

    /// For a session that is free, with the arrival it already waits for, if any. Of arrivals that have waited too long
    /// none is started.
    #[inline]
    pub fn turn(&mut self, claimed: &mut Option<Claim>, now_ns: i64) -> Turn {
        loop {
            let claim = claimed.take().unwrap_or_else(|| self.claim(now_ns));
            let due_ns = claim.arrival.due_ns;
            if due_ns > now_ns {
                *claimed = Some(claim);
                self.part.tally.idle_ns = self.part.tally.idle_ns.or(Some(now_ns));
                return Turn::Wait(due_ns);
            }
            let measured = self.schedule.measures(due_ns);
            // The session takes the next arrival at once: dropping costs it no time.
            if now_ns - due_ns > self.limit_ns {
                self.part.tally.dropped += u64::from(measured);
                continue;
            }
            if measured {
                let lag_ns = self.part.tally.start(claim, now_ns);
                self.part.lag.record(lag_ns);
            }
            return Turn::Start(due_ns);
        }
    }

    fn claim(&mut self, free_ns: i64) -> Claim {
        let arrival = self.line.take(&self.queue);
        if arrival.due_ns <= free_ns && self.schedule.measures(free_ns) {
            let waiting = self.line.waiting(arrival, free_ns);
            self.part.tally.backlog_max = self.part.tally.backlog_max.max(waiting);
        }
        Claim { arrival, free_ns }
    }

    /// Gives back the arrival of a session that ended while it waited.
    pub fn give_back(&self, claim: Claim) {
        self.queue.give_back(claim.arrival);
    }

    /// A measured call has ended; `service` is its session's.
    #[inline]
    pub fn ended(&mut self, times: &Times, ok: bool, service: &mut Durations) {
        self.part.tally.over_limit += u64::from(times.end_ns - times.due_ns > self.limit_ns);
        if ok {
            let service_ns = (times.end_ns - times.start_ns) as u64;
            self.part.service.record(service_ns);
            service.add(service_ns);
        }
    }
}

/// Result of the paced load as a whole, or of one window: `backlog_begin` + arrivals = started + dropped +
/// `backlog_end`.
#[derive(Clone, Debug)]
pub struct Paced {
    /// Due in [t0, t1), or up to the end of a load that ended before.
    pub arrivals: u64,
    /// Due before t0.
    pub settle_arrivals: u64,
    /// Due before the window and not started at its begin; where the measurement is one window, those due before t0 are
    /// in no other count.
    pub backlog_begin: Option<u64>,
    /// Not started at the end.
    pub backlog_end: u64,
    /// Counts.
    pub tally: PaceTally,
    /// True if there was a latency limit.
    pub limited: bool,
    /// Durations from the real start.
    pub service: Latency,
    /// Times from due to start.
    pub lag: Latency,
    /// Waiting times, at the end, of calls that were never started.
    pub backlog: Durations,
    /// The same waiting times as a histogram.
    pub backlog_ages: Latency,
}

impl Paced {
    /// Merges the results of all threads by window, once all have ended. `end_ns`: the instant after which no call could start.
    pub fn by_window(
        spec: &ArrivalSpec,
        queue: &Queue,
        schedules: &[Schedule],
        end_ns: i64,
        parts: Vec<PacePart>,
    ) -> Vec<Self> {
        let (settle_arrivals, arrivals) = due(spec, schedules, end_ns);
        let mut all: Vec<_> = parts
            .into_iter()
            .zip(arrivals)
            .map(|(part, arrivals)| Self {
                arrivals,
                settle_arrivals: 0,
                backlog_begin: None,
                backlog_end: 0,
                tally: part.tally,
                limited: spec.latency_limit_us.is_some(),
                service: part.service,
                lag: part.lag,
                backlog: Durations::default(),
                backlog_ages: Latency::default(),
            })
            .collect();
        all[0].settle_arrivals = settle_arrivals;
        let last = schedules.iter().rposition(|s| s.t0_ns < end_ns).unwrap_or(0);
        let several = schedules.len() > 1;
        queue.left(spec, schedules[0].start_ns, end_ns, |due_ns| {
            if several || schedules[last].measures(due_ns) {
                all[last].backlog.add((end_ns - due_ns) as u64);
                all[last].backlog_ages.record((end_ns - due_ns) as u64);
            }
        });
        all[last].backlog_end = all[last].backlog.count;
        if several {
            carry(&mut all[..=last]);
        }
        for paced in &mut all {
            let ends = paced.backlog_begin.unwrap_or(0).max(paced.backlog_end);
            paced.tally.backlog_max = paced.tally.backlog_max.max(ends);
        }
        all
    }
}

/// From the last window back: what was left at the end of each is what the next began with.
fn carry(windows: &mut [Paced]) {
    let mut end = None;
    for window in windows.iter_mut().rev() {
        window.backlog_end = end.unwrap_or(window.backlog_end);
        let gone = window.backlog_end + window.tally.started + window.tally.dropped;
        window.backlog_begin = Some(gone.saturating_sub(window.arrivals));
        end = window.backlog_begin;
    }
}

/// Number of arrivals due before the first window, and in each window before `end_ns`.
fn due(spec: &ArrivalSpec, schedules: &[Schedule], end_ns: i64) -> (u64, Vec<u64>) {
    let mut line = crate::pace::arrivals::Arrivals::new(spec, schedules[0].start_ns);
    let (mut before, mut measured, mut window) = (0, vec![0; schedules.len()], 0);
    while line.due_ns() < end_ns {
        while window + 1 < schedules.len() && line.due_ns() >= schedules[window].t1_ns {
            window += 1;
        }
        if schedules[window].measures(line.due_ns()) {
            measured[window] += 1;
        } else {
            before += 1;
        }
        line.advance();
    }
    (before, measured)
}
