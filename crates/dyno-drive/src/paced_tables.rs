//! The tables of paced load.

use dyno_model::{Column, Table};

use crate::tables::{buckets, one};
use crate::{Durations, Paced, Record};

/// All of them.
pub fn all(paced: &Paced, records: &[Record]) -> Vec<Table> {
    vec![
        pace(paced),
        service(records),
        buckets("service_histogram", &paced.service),
        buckets("lag_histogram", &paced.lag),
        buckets("backlog_histogram", &paced.backlog_ages),
    ]
}

fn pace(paced: &Paced) -> Table {
    let tally = &paced.tally;
    let longest = |durations: &Durations| one(durations.max_ns.unwrap_or(0));
    let over_limit = Column::I64(vec![paced.limited.then_some(tally.over_limit as i64)]);
    let columns = vec![
        ("arrivals", one(paced.arrivals)),
        ("begun", one(tally.started)),
        ("dropped", one(tally.dropped)),
        (
            "backlog_begin",
            Column::I64(vec![paced.backlog_begin.map(|n| n as i64)]),
        ),
        ("backlog_end", one(paced.backlog_end)),
        ("idle_ns", Column::I64(vec![tally.idle_ns])),
        ("backlog_max", one(tally.backlog_max)),
        ("late", one(tally.late)),
        ("late_driver", one(tally.late_driver)),
        ("over_limit", over_limit),
        ("lag_sum_ns", one(tally.lag.sum_ns)),
        ("lag_max_ns", longest(&tally.lag)),
        ("driver_lag_sum_ns", one(tally.driver_lag.sum_ns)),
        ("driver_lag_max_ns", longest(&tally.driver_lag)),
        ("backlog_age_sum_ns", one(paced.backlog.sum_ns)),
        ("backlog_age_max_ns", longest(&paced.backlog)),
        ("settle_arrivals", one(paced.settle_arrivals)),
    ];
    Table::new("pace", columns)
}

fn service(records: &[Record]) -> Table {
    let each = |get: fn(&Durations) -> Option<u64>| {
        Column::I64(
            records
                .iter()
                .map(|r| get(&r.service).map(|n| n as i64))
                .collect(),
        )
    };
    let squares = records.iter().map(|r| Some(r.service.sum_sq_ns2 as f64));
    let columns = vec![
        ("session", Column::known(0..records.len() as i64)),
        ("in_call_ns", each(|d| Some(d.sum_ns))),
        ("sum_sq_ns2", Column::F64(squares.collect())),
        ("min_ns", each(|d| d.min_ns)),
        ("max_ns", each(|d| d.max_ns)),
    ];
    Table::new("service", columns)
}
