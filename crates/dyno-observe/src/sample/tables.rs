//! The tables `samples` and `sampler`, and the live shares, of both samplers' rows.

use std::collections::HashMap;

use dyno_model::{Nullable, NullableTexts, Table, raw};

use crate::read::task::Task;
use crate::sample::memory_rows::{MemoryRows, Row as MemoryRow};
use crate::sample::rows::{Row, SampleRows, Taken};
use crate::status::Status;
use crate::word::names::Names;

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
    /// Returns the table `samples`.
    pub fn samples(self) -> Table {
        let rows = || {
            let sql = self.sql.since(self.since_ns).iter().map(Sample::Sql);
            sql.chain(self.memory.since(self.since_ns).iter().map(Sample::Memory))
        };
        let text = |number: Option<u32>| number.map(|n| self.sql.text(n));
        let by = |sql: fn(&Row) -> Option<i64>, memory: fn(&MemoryRow, &Task) -> Option<i64>| {
            let value = |row| match row {
                Sample::Sql(r) => sql(r),
                Sample::Memory(r) => memory(r, self.memory.task(r)),
            };
            rows().map(value).collect::<Nullable<i64>>()
        };
        let known = |sql: fn(&Row) -> i64, memory: fn(&MemoryRow, &Task) -> i64| {
            let value = |row| match row {
                Sample::Sql(r) => sql(r),
                Sample::Memory(r) => memory(r, self.memory.task(r)),
            };
            rows().map(value).collect::<Vec<i64>>()
        };
        let (mut classes, mut events) = (NullableTexts::default(), NullableTexts::default());
        let (mut task_states, mut bytes) = (NullableTexts::default(), [0; 4]);
        for row in rows() {
            match row {
                Sample::Sql(r) => {
                    classes.push(text(r.wait_class));
                    events.push(text(r.wait_event));
                }
                Sample::Memory(r) => {
                    let name = self.names.name(r.code);
                    classes.push(name.as_ref().map(|(class, _)| &**class));
                    events.push(name.as_ref().map(|(_, event)| &**event));
                }
            }
            let letter = row.state().ok();
            task_states.push(letter.map(|s| &*s.encode_utf8(&mut bytes)));
        }
        let samples = raw::Samples {
            sample: known(|r| r.sample, |r, _| i64::from(r.sample)),
            sql_before_ns: known(|r| r.sql.before_ns, |r, _| r.before_ns),
            sql_after_ns: known(|r| r.sql.after_ns, |r, _| r.after_ns),
            task_ns: by(|r| r.task.task_ns, |r, _| r.state.is_ok().then_some(r.task_ns)),
            pid: known(|r| r.pid, |_, task| task.pid),
            tid: by(|r| Some(r.tid), |_, task| Some(task.tid)),
            start_ticks: by(|r| r.start_ticks, |_, task| task.start_ticks()),
            role: rows()
                .map(|row| match row {
                    Sample::Sql(r) => self.sql.text(r.role),
                    Sample::Memory(r) => &self.memory.task(r).who.role,
                })
                .collect(),
            session: by(|r| r.session, |_, task| task.who.session),
            via: rows()
                .map(|row| match row {
                    Sample::Sql(_) => Some(SQL),
                    Sample::Memory(_) => Some(MEMORY),
                })
                .collect(),
            state: rows()
                .map(|row| match row {
                    Sample::Sql(r) => text(r.state),
                    Sample::Memory(_) => None,
                })
                .collect(),
            wait_class: classes,
            wait_event: events,
            query_id: by(|r| r.query_id, |_, _| None),
            leader_pid: by(|r| r.leader_pid, |_, _| None),
            task_state: task_states,
            status: rows()
                .map(|row| row.state().err().map_or("ok", Status::as_str))
                .collect(),
        };
        samples.into()
    }

    /// Returns the table `sampler`.
    pub fn sampler(self) -> Table {
        let of = |via, taken: &[Taken]| taken.iter().map(|t| (via, *t)).collect::<Vec<_>>();
        let mut all = of(SQL, self.sql.taken_since(self.since_ns));
        all.extend(of(MEMORY, self.memory.taken_since(self.since_ns)));
        let sampler = raw::Sampler {
            sample: all.iter().map(|(_, t)| t.sample).collect(),
            due_ns: all.iter().map(|(_, t)| t.due_ns).collect(),
            start_ns: all.iter().map(|(_, t)| t.start_ns).collect(),
            end_ns: all.iter().map(|(_, t)| t.end_ns).collect(),
            status: all.iter().map(|(_, t)| t.status.as_str()).collect(),
            via: all.iter().map(|(via, _)| Some(*via)).collect(),
        };
        sampler.into()
    }

    fn memory_labels(self) -> HashMap<String, usize> {
        let rows = self.memory.since(self.since_ns).iter();
        let mut codes: HashMap<Option<u32>, usize> = HashMap::new();
        for row in rows.filter(|r| self.memory.task(r).who.session.is_some()) {
            let code = (row.state != Ok('R')).then_some(row.code);
            *codes.entry(code).or_default() += 1;
        }
        let label = |code: Option<u32>| match code.map(|c| self.names.name(c)) {
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

/// Returns shares of the sessions' rows, which sum to 1, or nothing without rows. `run or queue`: the task was
/// runnable (state R). `CLASS:EVENT`: it was not runnable, and the server named its wait. `no event`: it was not
/// runnable, and the server named no wait. If the task's state is unknown, the server's word alone decides. Rows read
/// from memory are preferred, as there are more of them.
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

/// A row of either sampler.
enum Sample<'s> {
    Sql(&'s Row),
    Memory(&'s MemoryRow),
}

impl Sample<'_> {
    fn state(&self) -> Result<char, Status> {
        match self {
            Self::Sql(row) => row.task.state,
            Self::Memory(row) => row.state,
        }
    }
}
