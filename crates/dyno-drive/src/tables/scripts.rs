//! The tables of calls by script.

use dyno_model::{Table, raw};

use crate::{Record, ScriptCalls, ScriptTally, Tally};

/// All tables of scripts with these names and weights; none where there are no scripts.
pub fn all(names: &[(String, u64)], records: &[Record], calls: &[ScriptCalls]) -> Vec<Table> {
    if calls.is_empty() {
        return Vec::new();
    }
    vec![
        scripts(names, records).into(),
        histogram(calls).into(),
        errors(calls).into(),
    ]
}

fn scripts(names: &[(String, u64)], records: &[Record]) -> raw::Scripts {
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
    let each = |get: fn(&ScriptTally) -> u64| rows.iter().map(|r| get(r.2) as i64).collect();
    let count = |get: fn(&Tally) -> u64| rows.iter().map(|r| get(&r.2.tally) as i64).collect();
    let maybe =
        |get: fn(&Tally) -> Option<u64>| rows.iter().map(|r| get(&r.2.tally).map(|n| n as i64)).collect();
    let name = |script: usize| {
        names
            .get(script)
            .map_or_else(|| format!("script {script}"), |n| n.0.clone())
    };
    raw::Scripts {
        session: rows.iter().map(|r| r.0 as i64).collect(),
        script: rows.iter().map(|r| r.1 as i64).collect(),
        name: rows.iter().map(|r| name(r.1)).collect(),
        weight: rows
            .iter()
            .map(|r| names.get(r.1).map_or(1, |n| n.1 as i64))
            .collect(),
        calls: count(|t| t.calls),
        errors: count(|t| t.errors),
        settle_calls: count(|t| t.settle_calls),
        settle_errors: count(|t| t.settle_errors),
        retried: each(|s| s.retried),
        retries: each(|s| s.retries),
        in_call_ns: count(|t| t.in_call_ns),
        sum_sq_ns2: rows.iter().map(|r| r.2.tally.sum_sq_ns2 as f64).collect(),
        min_ns: maybe(|t| t.min_ns),
        max_ns: maybe(|t| t.max_ns),
    }
}

fn histogram(calls: &[ScriptCalls]) -> raw::ScriptHistogram {
    let rows: Vec<_> = calls
        .iter()
        .enumerate()
        .flat_map(|(script, c)| c.latency.buckets().map(move |b| (script, b)))
        .collect();
    raw::ScriptHistogram {
        script: rows.iter().map(|r| r.0 as i64).collect(),
        low_ns: rows.iter().map(|r| r.1.0 as i64).collect(),
        high_ns: rows.iter().map(|r| r.1.1 as i64).collect(),
        count: rows.iter().map(|r| r.1.2 as i64).collect(),
    }
}

fn errors(calls: &[ScriptCalls]) -> raw::ScriptErrors {
    let rows: Vec<_> = calls
        .iter()
        .enumerate()
        .flat_map(|(script, c)| c.errors.entries().iter().map(move |e| (script, e)))
        .collect();
    raw::ScriptErrors {
        script: rows.iter().map(|r| r.0 as i64).collect(),
        sqlstate: rows.iter().map(|r| r.1.sqlstate()).collect(),
        count: rows.iter().map(|r| r.1.count as i64).collect(),
        message: rows.iter().map(|r| &r.1.message).collect(),
    }
}
