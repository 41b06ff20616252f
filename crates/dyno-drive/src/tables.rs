//! What came of a load, as tables of `model/schema/tables.py`.

use dyno_model::{Column, Counter, Engine, Table};

use crate::probe::ProbeRow;
use crate::{CallLog, Latency, Outcome, Record, Tally, paced_tables, script_tables};

/// Connecting, of one session.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    pub backend_pid: Option<i64>,
    pub connect_ns: i64,
    pub prepare_ns: i64,
}

/// Everything but probes and what is the engine's own.
pub fn all<E: Engine, S>(engine: &E, setups: &[Setup], outcome: &Outcome<S>) -> Vec<Table> {
    let records = &outcome.records;
    let mut all = vec![
        sessions(setups, records),
        buckets("histogram", &outcome.latency),
        errors(records),
    ];
    let paced = outcome.paced.as_ref();
    all.extend(outcome.log.as_ref().map(|log| calls(log, paced.is_some())));
    all.extend(script_tables::all(&engine.scripts(), records, &outcome.scripts));
    all.extend(paced.iter().flat_map(|paced| paced_tables::all(paced, records)));
    all
}

/// The table `sessions`.
fn sessions(setups: &[Setup], records: &[Record]) -> Table {
    let count = |get: fn(&Tally) -> u64| Column::known(records.iter().map(|r| get(&r.tally) as i64));
    let maybe = |get: fn(&Tally) -> Option<i64>| Column::I64(records.iter().map(|r| get(&r.tally)).collect());
    let columns = vec![
        ("session", Column::known(0..records.len() as i64)),
        (
            "backend_pid",
            Column::I64(setups.iter().map(|s| s.backend_pid).collect()),
        ),
        ("connect_ns", Column::known(setups.iter().map(|s| s.connect_ns))),
        ("prepare_ns", Column::known(setups.iter().map(|s| s.prepare_ns))),
        ("began_ns", maybe(|t| t.began_ns)),
        ("first_start_ns", maybe(|t| t.first_start_ns)),
        ("last_end_ns", maybe(|t| t.last_end_ns)),
        ("calls", count(|t| t.calls)),
        ("errors", count(|t| t.errors)),
        ("calls_total", count(Tally::calls_total)),
        ("errors_total", count(Tally::errors_total)),
        ("straddle_in", count(|t| t.straddle_in)),
        ("straddle_out", count(|t| t.straddle_out)),
        ("in_call_ns", count(|t| t.in_call_ns)),
        ("min_ns", maybe(|t| t.min_ns.map(|n| n as i64))),
        ("max_ns", maybe(|t| t.max_ns.map(|n| n as i64))),
        (
            "sum_sq_ns2",
            Column::F64(records.iter().map(|r| Some(r.tally.sum_sq_ns2 as f64)).collect()),
        ),
        (
            "round_trips",
            Column::I64(records.iter().map(|r| r.round_trips.map(|n| n as i64)).collect()),
        ),
        (
            "end_reason",
            Column::Str(records.iter().map(|r| Some(r.end.reason().to_owned())).collect()),
        ),
        (
            "end_detail",
            Column::Str(
                records
                    .iter()
                    .map(|r| r.end.detail().map(str::to_owned))
                    .collect(),
            ),
        ),
    ];
    Table::new("sessions", columns)
}

/// A column of one row.
pub fn one(value: u64) -> Column {
    Column::known([value as i64])
}

/// A table of the buckets of a histogram.
pub fn buckets(name: &'static str, latency: &Latency) -> Table {
    let buckets: Vec<_> = latency.buckets().collect();
    let columns = vec![
        ("low_ns", Column::known(buckets.iter().map(|b| b.0 as i64))),
        ("high_ns", Column::known(buckets.iter().map(|b| b.1 as i64))),
        ("count", Column::known(buckets.iter().map(|b| b.2 as i64))),
    ];
    Table::new(name, columns)
}

/// A server's code as text.
pub fn code(code: [u8; 5]) -> String {
    String::from_utf8_lossy(&code).into_owned()
}

/// The table `errors`.
fn errors(records: &[Record]) -> Table {
    let all: Vec<_> = records
        .iter()
        .enumerate()
        .flat_map(|(i, r)| r.errors.entries().iter().map(move |e| (i, e)))
        .collect();
    let columns = vec![
        ("session", Column::known(all.iter().map(|(i, _)| *i as i64))),
        (
            "sqlstate",
            Column::Str(all.iter().map(|(_, e)| Some(code(e.code))).collect()),
        ),
        ("count", Column::known(all.iter().map(|(_, e)| e.count as i64))),
        (
            "message",
            Column::Str(all.iter().map(|(_, e)| Some(e.message.clone())).collect()),
        ),
    ];
    Table::new("errors", columns)
}

/// The table `calls`; `paced`: calls were due at some time.
fn calls(log: &CallLog, paced: bool) -> Table {
    let calls = log.calls();
    let columns = vec![
        (
            "session",
            Column::known(calls.iter().map(|c| i64::from(c.session))),
        ),
        ("start_ns", Column::known(calls.iter().map(|c| c.start_ns))),
        ("duration_ns", Column::known(calls.iter().map(|c| c.duration_ns))),
        ("ok", Column::Bool(calls.iter().map(|c| c.ok).collect())),
        (
            "measured",
            Column::Bool(calls.iter().map(|c| c.measured).collect()),
        ),
        ("cpu", unless_negative(calls.iter().map(|c| c.cpu))),
        ("migrations", unless_negative(calls.iter().map(|c| c.migrations))),
        (
            "due_ns",
            Column::I64(calls.iter().map(|c| paced.then_some(c.due_ns)).collect()),
        ),
    ];
    Table::new("calls", columns)
}

/// Below zero is unknown.
fn unless_negative(values: impl Iterator<Item = i32>) -> Column {
    Column::I64(values.map(|v| (v >= 0).then_some(i64::from(v))).collect())
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
    let columns = vec![
        (
            "before_ns",
            Column::known(rows.iter().map(|r| r.0.bracket.before_ns)),
        ),
        (
            "after_ns",
            Column::known(rows.iter().map(|r| r.0.bracket.after_ns)),
        ),
        ("phase", texts(&rows, |r| r.0.phase.name())),
        ("scope", texts(&rows, |_| "session")),
        ("session", Column::known(rows.iter().map(|r| r.0.session as i64))),
        ("name", texts(&rows, |r| &r.1.name)),
        ("kind", texts(&rows, |r| &r.1.kind)),
        ("unit", texts(&rows, |r| &r.1.unit)),
        ("value", Column::F64(rows.iter().map(|r| r.2.value).collect())),
        ("status", texts(&rows, |r| r.2.status)),
    ];
    Table::new("counters", columns)
}

fn texts<R>(rows: &[R], get: impl Fn(&R) -> &str) -> Column {
    Column::Str(rows.iter().map(|r| Some(get(r).to_owned())).collect())
}
