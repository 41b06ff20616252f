//! The tables of calls by script.

use dyno_model::{Column, Table};

use crate::tables::code;
use crate::{Record, ScriptCalls, ScriptTally, Tally};

/// All tables of scripts with these names and weights; none where there are no scripts.
pub fn all(names: &[(String, u64)], records: &[Record], calls: &[ScriptCalls]) -> Vec<Table> {
    if calls.is_empty() {
        return Vec::new();
    }
    vec![scripts(names, records), histogram(calls), errors(calls)]
}

fn scripts(names: &[(String, u64)], records: &[Record]) -> Table {
    let rows: Vec<(usize, usize, &ScriptTally)> = records
        .iter()
        .enumerate()
        .flat_map(|(session, r)| {
            r.scripts
                .iter()
                .enumerate()
                .map(move |(i, tally)| (session, i, tally))
        })
        .collect();
    let each = |get: fn(&ScriptTally) -> u64| Column::known(rows.iter().map(|r| get(r.2) as i64));
    let count = |get: fn(&Tally) -> u64| Column::known(rows.iter().map(|r| get(&r.2.tally) as i64));
    let maybe = |get: fn(&Tally) -> Option<u64>| {
        Column::I64(rows.iter().map(|r| get(&r.2.tally).map(|n| n as i64)).collect())
    };
    let name = |script: usize| {
        names
            .get(script)
            .map_or_else(|| format!("script {script}"), |n| n.0.clone())
    };
    let squares = rows.iter().map(|r| Some(r.2.tally.sum_sq_ns2 as f64));
    let columns = vec![
        ("session", Column::known(rows.iter().map(|r| r.0 as i64))),
        ("script", Column::known(rows.iter().map(|r| r.1 as i64))),
        (
            "name",
            Column::Str(rows.iter().map(|r| Some(name(r.1))).collect()),
        ),
        (
            "weight",
            Column::known(rows.iter().map(|r| names.get(r.1).map_or(1, |n| n.1 as i64))),
        ),
        ("calls", count(|t| t.calls)),
        ("errors", count(|t| t.errors)),
        ("settle_calls", count(|t| t.settle_calls)),
        ("settle_errors", count(|t| t.settle_errors)),
        ("retried", each(|s| s.retried)),
        ("retries", each(|s| s.retries)),
        ("in_call_ns", count(|t| t.in_call_ns)),
        ("sum_sq_ns2", Column::F64(squares.collect())),
        ("min_ns", maybe(|t| t.min_ns)),
        ("max_ns", maybe(|t| t.max_ns)),
    ];
    Table::new("scripts", columns)
}

fn histogram(calls: &[ScriptCalls]) -> Table {
    let rows: Vec<_> = calls
        .iter()
        .enumerate()
        .flat_map(|(script, c)| c.latency.buckets().map(move |b| (script, b)))
        .collect();
    let columns = vec![
        ("script", Column::known(rows.iter().map(|r| r.0 as i64))),
        ("low_ns", Column::known(rows.iter().map(|r| r.1.0 as i64))),
        ("high_ns", Column::known(rows.iter().map(|r| r.1.1 as i64))),
        ("count", Column::known(rows.iter().map(|r| r.1.2 as i64))),
    ];
    Table::new("script_histogram", columns)
}

fn errors(calls: &[ScriptCalls]) -> Table {
    let rows: Vec<_> = calls
        .iter()
        .enumerate()
        .flat_map(|(script, c)| c.errors.entries().iter().map(move |e| (script, e)))
        .collect();
    let messages = rows.iter().map(|r| Some(r.1.message.clone()));
    let columns = vec![
        ("script", Column::known(rows.iter().map(|r| r.0 as i64))),
        (
            "sqlstate",
            Column::Str(rows.iter().map(|r| Some(code(r.1.code))).collect()),
        ),
        ("count", Column::known(rows.iter().map(|r| r.1.count as i64))),
        ("message", Column::Str(messages.collect())),
    ];
    Table::new("script_errors", columns)
}
