//! Rows of activity samples, as the server reported them.

use dyno_model::{ActivityRow, Bracket, Strings};

use crate::read::task::Task;
use crate::status::Status;

/// State of a row's task.
#[derive(Debug, Clone, Copy)]
pub struct TaskState {
    pub task_ns: Option<i64>,
    pub state: Result<char, Status>,
}

#[derive(Debug)]
pub struct Row {
    pub sample: i64,
    pub sql: Bracket,
    pub task: TaskState,
    pub pid: i64,
    pub tid: i64,
    pub start_ticks: Option<i64>,
    pub role: u32,
    pub session: Option<i64>,
    pub state: Option<u32>,
    pub wait_class: Option<u32>,
    pub wait_event: Option<u32>,
    pub query_id: Option<i64>,
    pub leader_pid: Option<i64>,
}

/// A sample without its rows.
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

impl SampleRows {
    pub fn push(&mut self, sample: i64, sql: Bracket, row: &ActivityRow, task: &Task, state: TaskState) {
        let mut text = |t: &Option<String>| t.as_deref().map(|t| self.strings.number(t));
        let row = Row {
            sample,
            sql,
            task: state,
            pid: row.pid,
            tid: row.task().tid,
            start_ticks: task.start_ticks(),
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

    /// Takes away what was done at or after `since_ns`, to be given back with [`SampleRows::give_back`].
    pub fn later(&mut self, since_ns: i64) -> (Vec<Row>, Vec<Taken>) {
        let rows = self.rows.len() - self.since(since_ns).len();
        (self.rows.split_off(rows), taken_later(&mut self.taken, since_ns))
    }

    /// Replaces the rows and samples by those that [`SampleRows::later`] took away.
    pub fn give_back(&mut self, (rows, taken): (Vec<Row>, Vec<Taken>)) {
        (self.rows, self.taken) = (rows, taken);
    }

    /// Returns the rows of samples that ended at or after `since_ns`.
    pub fn since(&self, since_ns: i64) -> &[Row] {
        &self.rows[self.rows.partition_point(|r| r.sql.after_ns < since_ns)..]
    }

    /// Returns the samples that ended at or after `since_ns`.
    pub fn taken_since(&self, since_ns: i64) -> &[Taken] {
        taken_since(&self.taken, since_ns)
    }

    /// Returns the text of a row's number.
    pub fn text(&self, number: u32) -> &str {
        self.strings.text(number)
    }
}

pub fn taken_since(taken: &[Taken], since_ns: i64) -> &[Taken] {
    &taken[taken.partition_point(|t| t.end_ns < since_ns)..]
}

pub fn taken_later(taken: &mut Vec<Taken>, since_ns: i64) -> Vec<Taken> {
    let earlier = taken.len() - taken_since(taken, since_ns).len();
    taken.split_off(earlier)
}
