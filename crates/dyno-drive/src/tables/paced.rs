//! The tables of paced load.

use dyno_model::{Nullable, Table, raw};

use crate::{Durations, Paced, Record};

/// All of them.
pub fn all(paced: &Paced, records: &[Record]) -> Vec<Table> {
    let [low_ns, high_ns, count] = paced.service.columns();
    let service_histogram = raw::ServiceHistogram {
        low_ns,
        high_ns,
        count,
    };
    let [low_ns, high_ns, count] = paced.lag.columns();
    let lag_histogram = raw::LagHistogram {
        low_ns,
        high_ns,
        count,
    };
    let [low_ns, high_ns, count] = paced.backlog_ages.columns();
    let backlog_histogram = raw::BacklogHistogram {
        low_ns,
        high_ns,
        count,
    };
    vec![
        pace(paced).into(),
        service(records).into(),
        service_histogram.into(),
        lag_histogram.into(),
        backlog_histogram.into(),
    ]
}

fn pace(paced: &Paced) -> raw::Pace {
    let tally = &paced.tally;
    let one = |value: u64| vec![value as i64];
    let maybe = |value: Option<i64>| -> Nullable<i64> { [value].into_iter().collect() };
    let longest = |durations: &Durations| one(durations.max_ns.unwrap_or(0));
    raw::Pace {
        arrivals: one(paced.arrivals),
        begun: one(tally.started),
        dropped: one(tally.dropped),
        backlog_end: one(paced.backlog_end),
        backlog_begin: maybe(paced.backlog_begin.map(|n| n as i64)),
        idle_ns: maybe(tally.idle_ns),
        backlog_max: one(tally.backlog_max),
        late: one(tally.late),
        late_driver: one(tally.late_driver),
        over_limit: maybe(paced.limited.then_some(tally.over_limit as i64)),
        lag_sum_ns: one(tally.lag.sum_ns),
        lag_max_ns: longest(&tally.lag),
        driver_lag_sum_ns: one(tally.driver_lag.sum_ns),
        driver_lag_max_ns: longest(&tally.driver_lag),
        backlog_age_sum_ns: one(paced.backlog.sum_ns),
        backlog_age_max_ns: longest(&paced.backlog),
        settle_arrivals: one(paced.settle_arrivals),
    }
}

fn service(records: &[Record]) -> raw::Service {
    let services = || records.iter().map(|r| &r.service);
    raw::Service {
        session: (0..records.len() as i64).collect(),
        in_call_ns: services().map(|d| d.sum_ns as i64).collect(),
        sum_sq_ns2: services().map(|d| d.sum_sq_ns2 as f64).collect(),
        min_ns: services().map(|d| d.min_ns.map(|n| n as i64)).collect(),
        max_ns: services().map(|d| d.max_ns.map(|n| n as i64)).collect(),
    }
}
