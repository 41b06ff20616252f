//! Rows of the tables `samples` and `sampler`, and the live shares of the latest of them.

use std::collections::HashMap;

use dyno_model::{ActivityRow, Bracket, Column, Table, now_ns};

use crate::status::Status;
use crate::strings::Strings;
use crate::task::Task;

/// What was read of a row's task.
#[derive(Debug, Clone, Copy)]
pub struct TaskState {
    pub task_ns: Option<i64>,
    pub state: Result<char, Status>,
}

#[derive(Debug)]
struct Row {
    sample: i64,
    sql: Bracket,
    task: TaskState,
    pid: i64,
    role: u32,
    session: Option<i64>,
    state: Option<u32>,
    wait_class: Option<u32>,
    wait_event: Option<u32>,
    query_id: Option<i64>,
    leader_pid: Option<i64>,
}

/// One sample as such.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    pub sample: i64,
    pub due_ns: i64,
    pub start_ns: i64,
    pub end_ns: i64,
    /// ok, lost, off.
    pub status: Status,
}

/// All samples.
#[derive(Debug, Default)]
pub struct SampleRows {
    strings: Strings,
    rows: Vec<Row>,
    taken: Vec<Taken>,
}

/// How far back the live shares look.
const LATEST_NS: i64 = 1_000_000_000;

impl SampleRows {
    pub fn push(&mut self, sample: i64, sql: Bracket, row: &ActivityRow, task: &Task, state: TaskState) {
        let mut text = |t: &Option<String>| t.as_deref().map(|t| self.strings.number(t));
        let row = Row {
            sample,
            sql,
            task: state,
            pid: row.pid,
            state: text(&row.state),
            wait_class: text(&row.wait_class),
            wait_event: text(&row.wait_event),
            role: self.strings.number(&task.who.role),
            session: task.who.session,
            query_id: row.query_id,
            leader_pid: row.leader_pid,
        };
        self.rows.push(row);
    }

    pub fn taken(&mut self, taken: Taken) {
        self.taken.push(taken);
    }

    /// Shares of the sessions' rows in the samples of the last second; they sum to 1, or there are none.
    /// `run or queue`: the task was runnable (state R); `CLASS:EVENT`: it was not, and the server named what
    /// it waits for; `no event`: it was not, and the server named nothing. Where the task's state is not
    /// known, the server's word alone decides.
    pub fn latest(&self) -> Vec<(String, f64)> {
        let since = now_ns() - LATEST_NS;
        let recent = self.rows.iter().rev().take_while(|r| r.sql.after_ns >= since);
        let mut counts: HashMap<String, usize> = HashMap::new();
        let mut all = 0_usize;
        for row in recent.filter(|r| r.session.is_some()) {
            *counts.entry(self.label(row)).or_default() += 1;
            all += 1;
        }
        let mut shares: Vec<_> = counts
            .into_iter()
            .map(|(l, n)| (l, n as f64 / all as f64))
            .collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        shares
    }

    fn label(&self, row: &Row) -> String {
        if row.task.state == Ok('R') {
            return "run or queue".to_owned();
        }
        match (row.wait_class, row.wait_event) {
            (Some(class), Some(event)) => {
                format!("{}:{}", self.strings.text(class), self.strings.text(event))
            }
            _ => "no event".to_owned(),
        }
    }

    pub fn samples(&self) -> Table {
        let rows = || self.rows.iter();
        let text = |of: fn(&Row) -> Option<u32>| {
            Column::Str(
                rows()
                    .map(|r| of(r).map(|n| self.strings.text(n).to_owned()))
                    .collect(),
            )
        };
        let status = |r: &Row| r.task.state.err().unwrap_or(Status::Ok).as_str().to_owned();
        Table::new(
            "samples",
            vec![
                ("sample", Column::known(rows().map(|r| r.sample))),
                ("sql_before_ns", Column::known(rows().map(|r| r.sql.before_ns))),
                ("sql_after_ns", Column::known(rows().map(|r| r.sql.after_ns))),
                ("task_ns", Column::I64(rows().map(|r| r.task.task_ns).collect())),
                ("pid", Column::known(rows().map(|r| r.pid))),
                ("role", text(|r| Some(r.role))),
                ("session", Column::I64(rows().map(|r| r.session).collect())),
                ("state", text(|r| r.state)),
                ("wait_class", text(|r| r.wait_class)),
                ("wait_event", text(|r| r.wait_event)),
                ("query_id", Column::I64(rows().map(|r| r.query_id).collect())),
                ("leader_pid", Column::I64(rows().map(|r| r.leader_pid).collect())),
                (
                    "task_state",
                    Column::Str(rows().map(|r| r.task.state.ok().map(String::from)).collect()),
                ),
                ("status", Column::Str(rows().map(|r| Some(status(r))).collect())),
            ],
        )
    }

    pub fn sampler(&self) -> Table {
        let taken = || self.taken.iter();
        Table::new(
            "sampler",
            vec![
                ("sample", Column::known(taken().map(|t| t.sample))),
                ("due_ns", Column::known(taken().map(|t| t.due_ns))),
                ("start_ns", Column::known(taken().map(|t| t.start_ns))),
                ("end_ns", Column::known(taken().map(|t| t.end_ns))),
                (
                    "status",
                    Column::Str(taken().map(|t| Some(t.status.as_str().to_owned())).collect()),
                ),
            ],
        )
    }
}
