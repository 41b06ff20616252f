//! The tables `executions` and `outputs` (`model/schema/data_sources/executions.py`).

use dyno_model::{Coded, Column, Table};

use crate::engine::Plan;
use crate::protocol::FIGURES;
use crate::session::{CommandSession, Execution};

/// The tables of all sessions.
pub fn all(plan: &Plan, sessions: &[CommandSession]) -> Vec<Table> {
    let stopped: Vec<_> = sessions.iter().map(CommandSession::stopped).collect();
    let rows: Vec<Row> = sessions
        .iter()
        .zip(&stopped)
        .enumerate()
        .flat_map(|(session, (of, last))| {
            let all = of.executions.iter().chain(last).zip(0..);
            all.map(move |(execution, number)| (session as i64, number, execution))
        })
        .collect();
    vec![executions(plan, &rows), outputs(&rows)]
}

/// Session, number in it, execution.
type Row<'a> = (i64, i64, &'a Execution);

fn executions(plan: &Plan, rows: &[Row]) -> Table {
    let known = |of: fn(&Row) -> i64| Column::known(rows.iter().map(of));
    let mut columns = vec![
        ("session", known(|row| row.0)),
        ("number", known(|row| row.1)),
        ("job", jobs(plan, rows)),
        ("start_ns", known(|row| row.2.report.start_ns)),
        ("end_ns", known(|row| row.2.report.end_ns)),
        (
            "measured",
            Column::Bool(rows.iter().map(|row| row.2.measured).collect()),
        ),
        ("outcome", texts(rows, |row| Some(row.2.report.outcome.word()))),
        (
            "work",
            Column::F64(rows.iter().map(|row| row.2.report.work).collect()),
        ),
        (
            "detail",
            texts(rows, |row| {
                Some(row.2.report.detail.as_str()).filter(|d| !d.is_empty())
            }),
        ),
    ];
    columns.extend(FIGURES.iter().enumerate().map(|(place, &name)| {
        let figures = rows.iter().map(|row| row.2.report.figures[place]);
        (name, Column::I64(figures.collect()))
    }));
    Table::new("executions", columns)
}

fn jobs(plan: &Plan, rows: &[Row]) -> Column {
    Column::Coded(Coded {
        codes: rows.iter().map(|row| Some(row.2.job as u32)).collect(),
        texts: plan.jobs.iter().map(|job| job.name.clone()).collect(),
    })
}

fn texts<'a>(rows: &[Row<'a>], of: fn(&Row<'a>) -> Option<&'a str>) -> Column {
    Column::Str(rows.iter().map(|row| of(row).map(str::to_owned)).collect())
}

fn outputs(rows: &[Row]) -> Table {
    let mut kept = Vec::new();
    for &(session, number, execution) in rows {
        let streams = execution.report.printed.iter().flatten().zip(["output", "error"]);
        kept.extend(streams.map(|(printed, stream)| (session, number, stream, printed)));
    }
    Table::new(
        "outputs",
        vec![
            ("session", Column::known(kept.iter().map(|k| k.0))),
            ("number", Column::known(kept.iter().map(|k| k.1))),
            (
                "stream",
                Column::Str(kept.iter().map(|k| Some(k.2.to_owned())).collect()),
            ),
            (
                "text",
                Column::Str(kept.iter().map(|k| Some(k.3.text.clone())).collect()),
            ),
            ("bytes", Column::known(kept.iter().map(|k| k.3.bytes as i64))),
        ],
    )
}
