//! Durations of each command of a script, measured calls only.

use dyno_model::{Table, raw};

use crate::script::plan::Plan;

/// One command in one session. A command that does not wait (`\set`, `\if`) has executions alone: its time is part
/// of the next one that waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandTally {
    pub executions: u64,
    pub failures: u64,
    pub retries: u64,
    timed: u64,
    total_ns: i64,
    sum_sq_ns2: f64,
    min_ns: i64,
    max_ns: i64,
}

impl CommandTally {
    /// Counts an execution that ended well.
    #[inline]
    pub fn count(&mut self, duration_ns: i64) {
        if self.timed == 0 || duration_ns < self.min_ns {
            self.min_ns = duration_ns;
        }
        self.max_ns = self.max_ns.max(duration_ns);
        self.timed += 1;
        self.executions += 1;
        self.total_ns += duration_ns;
        let ns = duration_ns as f64;
        self.sum_sq_ns2 += ns * ns;
    }

    /// Adds the counts of another session.
    fn merge(&mut self, other: &Self) {
        if other.timed > 0 {
            self.min_ns = if self.timed == 0 {
                other.min_ns
            } else {
                self.min_ns.min(other.min_ns)
            };
        }
        self.max_ns = self.max_ns.max(other.max_ns);
        self.timed += other.timed;
        self.executions += other.executions;
        self.failures += other.failures;
        self.retries += other.retries;
        self.total_ns += other.total_ns;
        self.sum_sq_ns2 += other.sum_sq_ns2;
    }

    fn timed(&self, value: i64) -> Option<i64> {
        (self.timed > 0).then_some(value)
    }
}

/// Table `script_commands`, over all sessions.
pub(crate) fn table<'a>(plan: &Plan, sessions: impl Iterator<Item = &'a [CommandTally]>) -> Table {
    let mut all = vec![CommandTally::default(); plan.commands.len()];
    for session in sessions {
        all.iter_mut().zip(session).for_each(|(sum, one)| sum.merge(one));
    }
    let places = || {
        let each = plan.places.iter().enumerate();
        each.flat_map(|(i, place)| {
            let commands = plan.commands[place.clone()].iter().enumerate();
            commands.map(move |(k, planned)| (i, k, &planned.command))
        })
    };
    let numbers = |of: fn(&CommandTally) -> i64| all.iter().map(of).collect();
    let optional = |of: fn(&CommandTally) -> i64| all.iter().map(|c| c.timed(of(c))).collect();
    let commands = raw::ScriptCommands {
        script: places().map(|(i, _, _)| i as i64).collect(),
        command: places().map(|(_, k, _)| k as i64).collect(),
        line: places().map(|(_, _, c)| i64::from(c.line)).collect(),
        text: places().map(|(_, _, c)| &c.text).collect(),
        executions: numbers(|c| c.executions as i64),
        failures: numbers(|c| c.failures as i64),
        retries: numbers(|c| c.retries as i64),
        total_ns: optional(|c| c.total_ns),
        sum_sq_ns2: all
            .iter()
            .map(|c| (c.timed > 0).then_some(c.sum_sq_ns2))
            .collect(),
        min_ns: optional(|c| c.min_ns),
        max_ns: optional(|c| c.max_ns),
    };
    commands.into()
}
