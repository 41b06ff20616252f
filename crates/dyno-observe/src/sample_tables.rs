//! The tables `samples` and `sampler`, and the live shares, of both samplers' rows.

use std::collections::HashMap;

use dyno_model::{Column, Table};

use crate::memory_rows::{MemoryRows, Row as MemoryRow};
use crate::names::Names;
use crate::sample_rows::{Row, SampleRows, Taken};
use crate::strings::Texts;

const SQL: &str = "sql";
const MEMORY: &str = "memory";

/// Rows of both samplers.
#[derive(Clone, Copy)]
pub struct Samples<'s> {
    pub sql: &'s SampleRows,
    pub memory: &'s MemoryRows,
    pub names: &'s Names,
    /// Rows read before are left out.
    pub since_ns: i64,
}

impl Samples<'_> {
    /// Table `samples`.
    pub fn samples(self) -> Table {
        let mut columns = Columns::default();
        for row in self.sql.since(self.since_ns) {
            columns.sql(self.sql, row);
        }
        for row in self.memory.since(self.since_ns) {
            columns.memory(self.memory, self.names, row);
        }
        columns.table()
    }

    /// Table `sampler`.
    pub fn sampler(self) -> Table {
        let of = |via, taken: &[Taken]| taken.iter().map(|t| (via, *t)).collect::<Vec<_>>();
        let mut all = of(SQL, self.sql.taken_since(self.since_ns));
        all.extend(of(MEMORY, self.memory.taken_since(self.since_ns)));
        let number = |of: fn(&Taken) -> i64| Column::known(all.iter().map(|(_, t)| of(t)));
        let text = |of: fn(&(&'static str, Taken)) -> &'static str| {
            Column::Coded(all.iter().map(|t| Some(of(t))).collect::<Texts>().into())
        };
        Table::new(
            "sampler",
            vec![
                ("sample", number(|t| t.sample)),
                ("due_ns", number(|t| t.due_ns)),
                ("start_ns", number(|t| t.start_ns)),
                ("end_ns", number(|t| t.end_ns)),
                ("status", text(|(_, t)| t.status.as_str())),
                ("via", text(|(via, _)| via)),
            ],
        )
    }

    fn memory_labels(self) -> HashMap<String, usize> {
        let rows = self.memory.since(self.since_ns).iter();
        let mut codes: HashMap<Option<u32>, usize> = HashMap::new();
        for row in rows.filter(|r| self.memory.task(r).who.session.is_some()) {
            let code = (row.state != Ok('R')).then_some(row.code);
            *codes.entry(code).or_default() += 1;
        }
        let label = |code: Option<u32>| match code.map(|c| self.names.of(c)) {
            None => RUNNABLE.to_owned(),
            Some(None) => NO_EVENT.to_owned(),
            Some(Some((class, event))) => format!("{class}:{event}"),
        };
        codes.into_iter().map(|(code, n)| (label(code), n)).collect()
    }

    fn sql_labels(self) -> HashMap<String, usize> {
        let rows = self.sql.since(self.since_ns).iter();
        let mut counts = HashMap::new();
        for row in rows.filter(|r| r.session.is_some()) {
            *counts.entry(self.sql_label(row)).or_default() += 1;
        }
        counts
    }

    fn sql_label(self, row: &Row) -> String {
        if row.task.state == Ok('R') {
            return RUNNABLE.to_owned();
        }
        match row.wait_class.zip(row.wait_event) {
            Some((class, event)) => format!("{}:{}", self.sql.text(class), self.sql.text(event)),
            None => NO_EVENT.to_owned(),
        }
    }
}

/// Shares of the sessions' rows; they sum to 1, or there are none. `run or queue`: the task was runnable
/// (state R); `CLASS:EVENT`: it was not, and the server named what it waits for; `no event`: it was not,
/// and the server named nothing. Where the task's state is not known, the server's word alone decides.
/// Rows read from memory are taken where there are any, as they are more.
pub fn shares(samples: Samples<'_>) -> Vec<(String, f64)> {
    let mut counts = samples.memory_labels();
    if counts.is_empty() {
        counts = samples.sql_labels();
    }
    let all: usize = counts.values().sum();
    let mut shares: Vec<_> = counts
        .into_iter()
        .map(|(l, n)| (l, n as f64 / all as f64))
        .collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    shares
}

const RUNNABLE: &str = "run or queue";
const NO_EVENT: &str = "no event";

/// The columns of `samples` while they grow.
#[derive(Default)]
struct Columns {
    sample: Vec<Option<i64>>,
    before_ns: Vec<Option<i64>>,
    after_ns: Vec<Option<i64>>,
    task_ns: Vec<Option<i64>>,
    pid: Vec<Option<i64>>,
    tid: Vec<Option<i64>>,
    start_ticks: Vec<Option<i64>>,
    role: Texts,
    session: Vec<Option<i64>>,
    via: Texts,
    state: Texts,
    wait_class: Texts,
    wait_event: Texts,
    query_id: Vec<Option<i64>>,
    leader_pid: Vec<Option<i64>>,
    task_state: Texts,
    status: Texts,
}

impl Columns {
    fn sql(&mut self, rows: &SampleRows, row: &Row) {
        let text = |number: Option<u32>| number.map(|n| rows.text(n));
        self.sample.push(Some(row.sample));
        self.before_ns.push(Some(row.sql.before_ns));
        self.after_ns.push(Some(row.sql.after_ns));
        self.task_ns.push(row.task.task_ns);
        self.pid.push(Some(row.pid));
        self.tid.push(Some(row.tid));
        self.start_ticks.push(row.start_ticks);
        self.role.push(text(Some(row.role)));
        self.session.push(row.session);
        self.via.push(Some(SQL));
        self.state.push(text(row.state));
        self.wait_class.push(text(row.wait_class));
        self.wait_event.push(text(row.wait_event));
        self.query_id.push(row.query_id);
        self.leader_pid.push(row.leader_pid);
        self.task_state(row.task.state);
    }

    fn memory(&mut self, rows: &MemoryRows, names: &Names, row: &MemoryRow) {
        let task = rows.task(row);
        let name = names.of(row.code);
        self.sample.push(Some(i64::from(row.sample)));
        self.before_ns.push(Some(row.before_ns));
        self.after_ns.push(Some(row.after_ns));
        self.task_ns.push(row.state.is_ok().then_some(row.task_ns));
        self.pid.push(Some(task.pid));
        self.tid.push(Some(task.tid));
        self.start_ticks.push(task.start_ticks());
        self.role.push(Some(&task.who.role));
        self.session.push(task.who.session);
        self.via.push(Some(MEMORY));
        self.state.push(None);
        self.wait_class.push(name.as_ref().map(|(class, _)| &**class));
        self.wait_event.push(name.as_ref().map(|(_, event)| &**event));
        self.query_id.push(None);
        self.leader_pid.push(None);
        self.task_state(row.state);
    }

    fn task_state(&mut self, state: Result<char, crate::status::Status>) {
        let mut bytes = [0; 4];
        self.task_state
            .push(state.ok().map(|s| &*s.encode_utf8(&mut bytes)));
        let status = state.err().map_or("ok", crate::status::Status::as_str);
        self.status.push(Some(status));
    }

    fn table(self) -> Table {
        let number = Column::I64;
        let text = |texts: Texts| Column::Coded(texts.into());
        Table::new(
            "samples",
            vec![
                ("sample", number(self.sample)),
                ("sql_before_ns", number(self.before_ns)),
                ("sql_after_ns", number(self.after_ns)),
                ("task_ns", number(self.task_ns)),
                ("pid", number(self.pid)),
                ("tid", number(self.tid)),
                ("start_ticks", number(self.start_ticks)),
                ("role", text(self.role)),
                ("session", number(self.session)),
                ("via", text(self.via)),
                ("state", text(self.state)),
                ("wait_class", text(self.wait_class)),
                ("wait_event", text(self.wait_event)),
                ("query_id", number(self.query_id)),
                ("leader_pid", number(self.leader_pid)),
                ("task_state", text(self.task_state)),
                ("status", text(self.status)),
            ],
        )
    }
}
