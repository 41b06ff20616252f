//! Results of a load as tables of `model/schema/raw.toml`.

mod paced;
mod scripts;

use dyno_model::{Counter, Engine, Nullable, Table, raw};

use crate::count::probe::ProbeRow;
use crate::count::seconds::SecondCounts;
use crate::{CallLog, Outcome, Record, Tally};

/// Durations of connecting and preparing one session, and the server's process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    pub backend_pid: Option<i64>,
    pub connect_ns: i64,
    pub prepare_ns: i64,
}

/// All tables of an outcome, without probes and the engine's own.
pub fn all<E: Engine, S>(engine: &E, setups: &[Setup], outcome: &Outcome<S>) -> Vec<Table> {
    let records = &outcome.records;
    let [low_ns, high_ns, count] = outcome.latency.columns();
    let histogram = raw::Histogram {
        low_ns,
        high_ns,
        count,
    };
    let mut all = vec![
        sessions(setups, records).into(),
        histogram.into(),
        second_histogram(&outcome.seconds).into(),
        errors(records).into(),
    ];
    let paced = outcome.paced.as_ref();
    all.extend(outcome.log.as_ref().map(|log| calls(log, paced.is_some()).into()));
    all.extend(scripts::all(&engine.scripts(), records, &outcome.scripts));
    all.extend(paced.iter().flat_map(|paced| paced::all(paced, records)));
    all
}

fn sessions(setups: &[Setup], records: &[Record]) -> raw::Sessions {
    let count = |get: fn(&Tally) -> u64| records.iter().map(|r| get(&r.tally) as i64).collect();
    let maybe = |get: fn(&Tally) -> Option<i64>| records.iter().map(|r| get(&r.tally)).collect();
    raw::Sessions {
        session: (0..records.len() as i64).collect(),
        backend_pid: setups.iter().map(|s| s.backend_pid).collect(),
        connect_ns: setups.iter().map(|s| Some(s.connect_ns)).collect(),
        prepare_ns: setups.iter().map(|s| Some(s.prepare_ns)).collect(),
        began_ns: maybe(|t| t.began_ns),
        first_start_ns: maybe(|t| t.first_start_ns),
        last_end_ns: maybe(|t| t.last_end_ns),
        calls: count(|t| t.calls),
        errors: count(|t| t.errors),
        calls_total: count(Tally::calls_total),
        errors_total: count(Tally::errors_total),
        straddle_in: count(|t| t.straddle_in),
        straddle_out: count(|t| t.straddle_out),
        in_call_ns: count(|t| t.in_call_ns),
        min_ns: maybe(|t| t.min_ns.map(|n| n as i64)),
        max_ns: maybe(|t| t.max_ns.map(|n| n as i64)),
        sum_sq_ns2: records.iter().map(|r| r.tally.sum_sq_ns2 as f64).collect(),
        round_trips: records.iter().map(|r| r.round_trips.map(|n| n as i64)).collect(),
        sent_bytes: records.iter().map(|r| r.traffic.map(|t| t.sent as i64)).collect(),
        received_bytes: records
            .iter()
            .map(|r| r.traffic.map(|t| t.received as i64))
            .collect(),
        end_reason: records.iter().map(|r| r.end.reason()).collect(),
        end_detail: records.iter().map(|r| r.end.detail()).collect(),
    }
}

fn second_histogram(seconds: &SecondCounts) -> raw::SecondHistogram {
    let mut columns = [const { Vec::new() }; 5];
    for row in seconds.rows() {
        columns
            .iter_mut()
            .zip(row)
            .for_each(|(column, value)| column.push(value));
    }
    let [second, seconds, low_ns, high_ns, count] = columns;
    raw::SecondHistogram {
        second,
        seconds,
        low_ns,
        high_ns,
        count,
    }
}

fn errors(records: &[Record]) -> raw::Errors {
    let all: Vec<_> = records
        .iter()
        .enumerate()
        .flat_map(|(i, r)| r.errors.entries().iter().map(move |e| (i, e)))
        .collect();
    raw::Errors {
        session: all.iter().map(|(i, _)| *i as i64).collect(),
        sqlstate: all.iter().map(|(_, e)| e.sqlstate()).collect(),
        count: all.iter().map(|(_, e)| e.count as i64).collect(),
        message: all.iter().map(|(_, e)| &e.message).collect(),
    }
}

/// The table `calls`; `paced`: calls were due at some time.
fn calls(log: &CallLog, paced: bool) -> raw::Calls {
    let calls = log.calls();
    raw::Calls {
        session: calls.iter().map(|c| i64::from(c.session)).collect(),
        start_ns: calls.iter().map(|c| c.start_ns).collect(),
        duration_ns: calls.iter().map(|c| c.duration_ns).collect(),
        ok: calls.iter().map(|c| c.ok).collect(),
        measured: calls.iter().map(|c| c.measured).collect(),
        cpu: unless_negative(calls.iter().map(|c| c.cpu)),
        migrations: unless_negative(calls.iter().map(|c| c.migrations)),
        due_ns: calls.iter().map(|c| paced.then_some(c.due_ns)).collect(),
    }
}

/// Numbers of which those below zero are unknown.
fn unless_negative(values: impl Iterator<Item = i32>) -> Nullable<i64> {
    values.map(|v| (v >= 0).then_some(i64::from(v))).collect()
}

/// The table `counters`, of scope session.
pub fn counters(counters: &[Counter], probes: &[ProbeRow]) -> Table {
    let rows: Vec<_> = probes
        .iter()
        .flat_map(|probe| {
            counters
                .iter()
                .zip(&probe.readings)
                .map(move |(c, r)| (probe, c, r))
        })
        .collect();
    let counters = raw::Counters {
        before_ns: rows.iter().map(|r| r.0.bracket.before_ns).collect(),
        after_ns: rows.iter().map(|r| r.0.bracket.after_ns).collect(),
        phase: rows.iter().map(|r| r.0.phase.name()).collect(),
        scope: rows.iter().map(|_| "session").collect(),
        session: rows.iter().map(|r| Some(r.0.session as i64)).collect(),
        name: rows.iter().map(|r| &r.1.name).collect(),
        kind: rows.iter().map(|r| &r.1.kind).collect(),
        unit: rows.iter().map(|r| &r.1.unit).collect(),
        value: rows.iter().map(|r| r.2.value).collect(),
        status: rows.iter().map(|r| r.2.status).collect(),
    };
    counters.into()
}
