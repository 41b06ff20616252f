//! Who waits for a lock, and whom for: asked after a sample that met a session in such a wait, within a budget.

use std::num::NonZero;
use std::thread::available_parallelism;

use dyno_model::{BLOCKED_NUMBERS, BLOCKED_TEXTS, BlockedRow, Bracket, Column, Table};

use crate::sample_rows::TaskState;
use crate::schedule::Budget;
use crate::status::Status;
use crate::strings::{Strings, Texts};

/// So many failures in a row, and it is not asked again.
const FAILURES: u32 = 3;

/// When to ask: at most after each sample, and the less often the dearer it is.
pub struct Turns {
    budget: Budget,
    /// Samples to let pass.
    pause: i64,
    failures: u32,
    /// CPU time that it has cost: no part of the samples' own.
    pub cost_ns: i64,
}

impl Turns {
    pub fn new(share: f64, interval_ns: i64) -> Self {
        let cpus = available_parallelism().map_or(1, NonZero::get);
        Self {
            budget: Budget::new(share, cpus, interval_ns),
            pause: 0,
            failures: 0,
            cost_ns: 0,
        }
    }

    /// Whether it may be asked after this sample.
    pub fn due(&mut self) -> bool {
        self.pause -= 1;
        self.pause < 0 && self.failures < FAILURES
    }

    /// It was asked, for `cost_ns`.
    pub fn took(&mut self, cost_ns: i64, answered: bool) {
        self.cost_ns += cost_ns;
        self.pause = self.budget.stretch(cost_ns) - 1;
        self.failures = if answered { 0 } else { self.failures + 1 };
    }
}

struct Row {
    sample: i64,
    asked: Bracket,
    numbers: [Option<i64>; BLOCKED_NUMBERS.len()],
    texts: [Option<u32>; BLOCKED_TEXTS.len()],
    task: TaskState,
}

/// All answers, and how often there was none.
#[derive(Default)]
pub struct BlockedRows {
    strings: Strings,
    rows: Vec<Row>,
    asked: u64,
    trouble: Option<String>,
}

impl BlockedRows {
    /// An answer: each row with the state of its blocker's task.
    pub fn push(&mut self, sample: i64, asked: Bracket, rows: &[BlockedRow], tasks: &[TaskState]) {
        self.asked += 1;
        for (row, task) in rows.iter().zip(tasks) {
            let texts = row
                .texts
                .each_ref()
                .map(|t| t.as_deref().map(|t| self.strings.number(t)));
            self.rows.push(Row {
                sample,
                asked,
                numbers: row.numbers,
                texts,
                task: *task,
            });
        }
    }

    pub fn failed(&mut self, message: String) {
        self.trouble.get_or_insert(message);
    }

    /// How many answers there were, and the first thing that went wrong.
    pub fn told(&self) -> (u64, Option<&str>) {
        (self.asked, self.trouble.as_deref())
    }

    /// Table `blocked` of answers before `before_ns`; they are forgotten.
    pub fn take(&mut self, before_ns: i64) -> Table {
        let first = self.rows.partition_point(|r| r.asked.after_ns < before_ns);
        let later = self.rows.split_off(first);
        let table = self.table(i64::MIN);
        self.rows = later;
        table
    }

    /// Table `blocked`.
    pub fn table(&self, since_ns: i64) -> Table {
        let from = self.rows.partition_point(|r| r.asked.after_ns < since_ns);
        let rows = &self.rows[from..];
        let known = |of: fn(&Row) -> i64| Column::known(rows.iter().map(of));
        let mut columns = vec![
            ("sample", known(|r| r.sample)),
            ("before_ns", known(|r| r.asked.before_ns)),
            ("after_ns", known(|r| r.asked.after_ns)),
        ];
        for (n, name) in BLOCKED_NUMBERS.into_iter().enumerate() {
            columns.push((name, Column::I64(rows.iter().map(|r| r.numbers[n]).collect())));
        }
        for (n, name) in BLOCKED_TEXTS.into_iter().enumerate() {
            let texts: Texts = rows
                .iter()
                .map(|r| r.texts[n].map(|t| self.strings.text(t)))
                .collect();
            columns.push((name, Column::Coded(texts.into())));
        }
        let letters: Vec<Option<String>> = rows.iter().map(|r| r.task.state.ok().map(String::from)).collect();
        let states: Texts = letters.iter().map(Option::as_deref).collect();
        let read = |r: &Row| r.task.state.err().map_or("ok", Status::as_str);
        let reads: Texts = rows.iter().map(|r| Some(read(r))).collect();
        let read_ns = Column::I64(rows.iter().map(|r| r.task.task_ns).collect());
        columns.push(("task_ns", read_ns));
        columns.push(("task_state", Column::Coded(states.into())));
        columns.push(("status", Column::Coded(reads.into())));
        Table::new("blocked", columns)
    }
}
