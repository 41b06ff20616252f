//! Paced load: when a free session's next call may start, and how late calls were.

use std::sync::Arc;

use crate::arrivals::ArrivalSpec;
use crate::queue::{Arrival, Line, Queue};
use crate::tally::{Durations, Times};
use crate::{Latency, Schedule};

/// A start this long after it was due is late.
const LATE_NS: u64 = 1_000_000;

/// How late the calls due in [t0, t1) were that a thread (or several, merged) started. All exact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaceTally {
    /// Calls started.
    pub started: u64,
    /// Never started: they had waited longer than the limit.
    pub dropped: u64,
    /// Started late.
    pub late: u64,
    /// Started late although a session was free: the driver was.
    pub late_driver: u64,
    /// Ended later than the limit after they were due.
    pub over_limit: u64,
    /// From due to start, ns.
    pub lag: Durations,
    /// The part of it in which a session was free, ns.
    pub driver_lag: Durations,
    /// Most that were due and not started at once.
    pub backlog_max: u64,
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

/// What a free session does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Starts a call that was due at this instant.
    Start(i64),
    /// Waits until then.
    Wait(i64),
}

/// One thread's part of the paced load.
#[derive(Debug)]
pub struct Pace {
    queue: Arc<Queue>,
    line: Line,
    schedule: Schedule,
    limit_ns: i64,
    /// Counts.
    pub tally: PaceTally,
    /// Durations from the real start, of measured calls that ended well.
    pub service: Latency,
    /// From due to start.
    pub lag: Latency,
}

impl Pace {
    /// From the barrier on.
    pub fn new(spec: &ArrivalSpec, queue: Arc<Queue>, schedule: Schedule) -> Self {
        let limit_ns = spec
            .latency_limit_us
            .and_then(|us| i64::try_from(us.saturating_mul(1000)).ok());
        Self {
            queue,
            line: Line::new(spec, schedule.start_ns),
            schedule,
            limit_ns: limit_ns.unwrap_or(i64::MAX),
            tally: PaceTally::default(),
            service: Latency::default(),
            lag: Latency::default(),
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
                return Turn::Wait(due_ns);
            }
            let measured = self.schedule.measures(due_ns);
            if now_ns - due_ns > self.limit_ns {
                self.tally.dropped += u64::from(measured);
                continue;
            }
            if measured {
                let lag_ns = self.tally.start(claim, now_ns);
                self.lag.record(lag_ns);
            }
            return Turn::Start(due_ns);
        }
    }

    fn claim(&mut self, free_ns: i64) -> Claim {
        let arrival = self.line.take(&self.queue);
        if arrival.due_ns <= free_ns && self.schedule.measures(free_ns) {
            let waiting = self.line.waiting(arrival, free_ns);
            self.tally.backlog_max = self.tally.backlog_max.max(waiting);
        }
        Claim { arrival, free_ns }
    }

    /// A session has ended that waited for this.
    pub fn give_back(&self, claim: Claim) {
        self.queue.give_back(claim.arrival);
    }

    /// A measured call has ended; `service` is its session's.
    #[inline]
    pub fn ended(&mut self, times: &Times, ok: bool, service: &mut Durations) {
        self.tally.over_limit += u64::from(times.end_ns - times.due_ns > self.limit_ns);
        if ok {
            let service_ns = (times.end_ns - times.start_ns) as u64;
            self.service.record(service_ns);
            service.add(service_ns);
        }
    }
}

/// What came of the paced load as a whole. arrivals = started + dropped + `backlog`.
#[derive(Clone, Debug)]
pub struct Paced {
    /// Due in [t0, t1), or up to the end of a load that ended before.
    pub arrivals: u64,
    /// Due before t0.
    pub settle_arrivals: u64,
    /// Counts.
    pub tally: PaceTally,
    /// True if there was a latency limit.
    pub limited: bool,
    /// Durations from the real start.
    pub service: Latency,
    /// From due to start.
    pub lag: Latency,
    /// How long calls had waited at the end that were not started.
    pub backlog: Durations,
    /// The same, as a histogram.
    pub backlog_ages: Latency,
}

impl Paced {
    /// Puts the threads' parts together when all have ended; `end_ns`: from when on no call could start.
    pub fn of(spec: &ArrivalSpec, queue: &Queue, schedule: Schedule, end_ns: i64, parts: Vec<Pace>) -> Self {
        let (settle_arrivals, arrivals) = due(spec, schedule, end_ns);
        let mut paced = Self {
            arrivals,
            settle_arrivals,
            tally: PaceTally::default(),
            limited: spec.latency_limit_us.is_some(),
            service: Latency::default(),
            lag: Latency::default(),
            backlog: Durations::default(),
            backlog_ages: Latency::default(),
        };
        for part in parts {
            paced.tally = paced.tally.merge(&part.tally);
            paced.service = paced.service.merge(&part.service);
            paced.lag = paced.lag.merge(&part.lag);
        }
        for due_ns in queue.left(spec, schedule.start_ns, end_ns) {
            if schedule.measures(due_ns) {
                paced.backlog.add((end_ns - due_ns) as u64);
                paced.backlog_ages.record((end_ns - due_ns) as u64);
            }
        }
        paced.tally.backlog_max = paced.tally.backlog_max.max(paced.backlog.count);
        paced
    }
}

/// How many arrivals are due before t0, and from then on before `end_ns`.
fn due(spec: &ArrivalSpec, schedule: Schedule, end_ns: i64) -> (u64, u64) {
    let mut line = crate::arrivals::Arrivals::new(spec, schedule.start_ns);
    let (mut before, mut measured) = (0, 0);
    while line.due_ns() < end_ns {
        if schedule.measures(line.due_ns()) {
            measured += 1;
        } else {
            before += 1;
        }
        line.advance();
    }
    (before, measured)
}
