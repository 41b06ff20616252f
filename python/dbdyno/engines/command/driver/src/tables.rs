//! The tables `executions` and `outputs` (`model/schema/raw.toml`).

use std::array::from_fn;

use dyno_model::{Nullable, Table, raw};

use crate::plan::Plan;
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
    vec![executions(plan, &rows).into(), outputs(&rows).into()]
}

/// Session, number in it, execution.
type Row<'a> = (i64, i64, &'a Execution);

#[allow(clippy::similar_names)] // run_ns and runq_ns, as the columns are called
fn executions(plan: &Plan, rows: &[Row]) -> raw::Executions {
    let reports = || rows.iter().map(|row| &row.2.report);
    let figures = |place: usize| reports().map(|r| r.figures[place]).collect::<Nullable<i64>>();
    // in the order of FIGURES
    let [
        pid,
        exec_ns,
        exit_code,
        user_ns,
        system_ns,
        run_ns,
        runq_ns,
        max_rss_bytes,
        minor_faults,
        major_faults,
        voluntary,
        involuntary,
        read_bytes,
        written_bytes,
        read_calls_bytes,
        written_calls_bytes,
        left_over,
    ] = from_fn::<_, { FIGURES.len() }, _>(figures);
    raw::Executions {
        session: rows.iter().map(|row| row.0).collect(),
        number: rows.iter().map(|row| row.1).collect(),
        job: rows.iter().map(|row| &plan.jobs[row.2.job].name).collect(),
        pid,
        start_ns: reports().map(|r| r.start_ns).collect(),
        exec_ns,
        end_ns: reports().map(|r| r.end_ns).collect(),
        measured: rows.iter().map(|row| row.2.measured).collect(),
        outcome: reports().map(|r| r.outcome.word()).collect(),
        exit_code,
        user_ns,
        system_ns,
        run_ns,
        runq_ns,
        max_rss_bytes,
        minor_faults,
        major_faults,
        voluntary,
        involuntary,
        read_bytes,
        written_bytes,
        read_calls_bytes,
        written_calls_bytes,
        left_over,
        work: reports().map(|r| r.work).collect(),
        detail: reports()
            .map(|r| Some(&r.detail).filter(|d| !d.is_empty()))
            .collect(),
    }
}

fn outputs(rows: &[Row]) -> raw::Outputs {
    let mut kept = Vec::new();
    for &(session, number, execution) in rows {
        let streams = execution.report.printed.iter().flatten().zip(["output", "error"]);
        kept.extend(streams.map(|(printed, stream)| (session, number, stream, printed)));
    }
    raw::Outputs {
        session: kept.iter().map(|k| k.0).collect(),
        number: kept.iter().map(|k| k.1).collect(),
        stream: kept.iter().map(|k| k.2).collect(),
        text: kept.iter().map(|k| &k.3.text).collect(),
        bytes: kept.iter().map(|k| k.3.bytes as i64).collect(),
    }
}
