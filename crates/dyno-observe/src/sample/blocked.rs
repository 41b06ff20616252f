//! Sessions that wait for a lock, and the sessions they wait for. Read, within a budget, after a sample that met such a wait.

use std::array::from_fn;
use std::num::NonZero;
use std::thread::available_parallelism;

use dyno_model::{
    BLOCKED_NUMBERS, BLOCKED_TEXTS, BlockedRow, Bracket, Nullable, NullableTexts, Strings, Table, raw,
};

use crate::sample::rows::TaskState;
use crate::schedule::Budget;
use crate::status::Status;

/// Number of failures in a row after which it is not asked again.
const FAILURES: u32 = 3;

/// Decides when to ask: at most after each sample, and less often the more it costs.
pub struct Turns {
    budget: Budget,
    /// Number of samples to let pass.
    pause: i64,
    failures: u32,
    /// CPU time of the questions, which is no part of the samples' own.
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

    /// Returns whether it may be asked after this sample.
    pub fn due(&mut self) -> bool {
        self.pause -= 1;
        self.pause < 0 && self.failures < FAILURES
    }

    /// Notes that it was asked, at the cost of `cost_ns`.
    pub fn spend(&mut self, cost_ns: i64, answered: bool) {
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

/// All answers, and the first failure.
#[derive(Default)]
pub struct BlockedRows {
    strings: Strings,
    rows: Vec<Row>,
    asked: u64,
    trouble: Option<String>,
}

impl BlockedRows {
    /// Adds an answer: each row that names a waiter, with the state of its blocker's task.
    pub fn push(&mut self, sample: i64, asked: Bracket, rows: &[BlockedRow], tasks: &[TaskState]) {
        self.asked += 1;
        for (row, task) in rows.iter().zip(tasks).filter(|(row, _)| row.numbers[0].is_some()) {
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

    /// Returns the number of answers, and the first failure.
    pub fn answers(&self) -> (u64, Option<&str>) {
        (self.asked, self.trouble.as_deref())
    }

    /// Removes the answers before `before_ns`, and returns their table `blocked`.
    pub fn take(&mut self, before_ns: i64) -> Table {
        let first = self.rows.partition_point(|r| r.asked.after_ns < before_ns);
        let later = self.rows.split_off(first);
        let table = self.table(i64::MIN);
        self.rows = later;
        table
    }

    /// Returns the table `blocked`.
    pub fn table(&self, since_ns: i64) -> Table {
        let from = self.rows.partition_point(|r| r.asked.after_ns < since_ns);
        let rows = &self.rows[from..];
        let numbers = |n: usize| rows.iter().map(|r| r.numbers[n]).collect::<Nullable<i64>>();
        let texts = |n: usize| {
            let text = |r: &Row| r.texts[n].map(|t| self.strings.text(t));
            rows.iter().map(text).collect::<NullableTexts>()
        };
        // in the order of BLOCKED_NUMBERS and BLOCKED_TEXTS
        let [_, leader_pid, waited_ns, blocker, query_id] = from_fn(numbers);
        let [
            wait_class,
            wait_event,
            mode,
            object,
            relation,
            blocker_mode,
            helper,
            state,
            blocker_wait_class,
            blocker_wait_event,
            user,
            database,
            application,
        ] = from_fn(texts);
        let table = raw::Blocked {
            sample: rows.iter().map(|r| r.sample).collect(),
            before_ns: rows.iter().map(|r| r.asked.before_ns).collect(),
            after_ns: rows.iter().map(|r| r.asked.after_ns).collect(),
            pid: rows.iter().filter_map(|r| r.numbers[0]).collect(),
            leader_pid,
            wait_class,
            wait_event,
            waited_ns,
            mode,
            object,
            relation,
            blocker,
            blocker_mode,
            helper,
            state,
            blocker_wait_class,
            blocker_wait_event,
            query_id,
            user,
            database,
            application,
            task_ns: rows.iter().map(|r| r.task.task_ns).collect(),
            task_state: rows.iter().map(|r| r.task.state.ok().map(String::from)).collect(),
            status: rows
                .iter()
                .map(|r| r.task.state.err().map_or("ok", Status::as_str))
                .collect(),
        };
        table.into()
    }
}

#[cfg(test)]
mod tests {
    use dyno_model::Column;

    use super::*;

    #[test]
    fn each_value_is_in_the_column_of_its_name() {
        let mut blocked = BlockedRows::default();
        let row = BlockedRow {
            numbers: from_fn(|n| Some(n as i64)),
            texts: BLOCKED_TEXTS.map(|name| Some(name.to_owned())),
        };
        let task = TaskState {
            task_ns: None,
            state: Err(Status::Vanished),
        };
        let asked = Bracket {
            before_ns: 1,
            after_ns: 2,
        };
        blocked.push(7, asked, &[row, BlockedRow::default()], &[task, task]);
        let table = blocked.table(i64::MIN);
        let column = |name| &table.columns.iter().find(|(n, _)| *n == name).unwrap().1;
        for (name, n) in BLOCKED_NUMBERS.into_iter().zip(0..) {
            assert_eq!(*column(name), Column::known([n]), "{name}");
        }
        for name in BLOCKED_TEXTS {
            let expected: NullableTexts = [Some(name)].into_iter().collect();
            assert_eq!(*column(name), expected.into(), "{name}");
        }
    }
}
