//! Rows of the table `tasks`.

use std::collections::HashSet;

use dyno_model::{Column, Table};

use crate::strings::Strings;
use crate::task::{DelayAccounting, Reading, Task};

#[derive(Debug)]
struct Row {
    before_ns: i64,
    after_ns: i64,
    pid: i64,
    tid: i64,
    role: u32,
    session: Option<i64>,
    sched: Option<[i64; 3]>,
    stat: Option<StatRow>,
    status: &'static str,
}

#[derive(Debug)]
struct StatRow {
    start_ticks: i64,
    comm: u32,
    user_ns: i64,
    system_ns: i64,
    blkio_ns: Option<i64>,
    cpu: Option<i64>,
    state: char,
}

/// All reads of all tasks.
#[derive(Debug)]
pub struct TaskRows {
    strings: Strings,
    rows: Vec<Row>,
    delays: DelayAccounting,
}

impl TaskRows {
    pub fn new(delays: DelayAccounting) -> Self {
        Self {
            strings: Strings::default(),
            rows: Vec::new(),
            delays,
        }
    }

    pub fn push(&mut self, task: &Task, reading: &Reading<'_>) {
        let stat = reading.stat.map(|s| StatRow {
            start_ticks: s.start_ticks,
            comm: self.strings.number(s.comm),
            user_ns: s.user_ns,
            system_ns: s.system_ns,
            blkio_ns: s.blkio_ns,
            cpu: s.cpu,
            state: s.state,
        });
        self.rows.push(Row {
            before_ns: reading.before_ns,
            after_ns: reading.after_ns,
            pid: task.pid,
            tid: task.tid,
            role: self.strings.number(&task.who.role),
            session: task.who.session,
            sched: reading.sched.map(|s| [s.run_ns, s.runq_ns, s.slices]),
            stat,
            status: reading.status.as_str(),
        });
    }

    pub fn table(&self) -> Table {
        let delayed = self.delayed();
        let blkio = |r: &Row| {
            let stat = r.stat.as_ref()?;
            let trusted = match self.delays {
                DelayAccounting::Off => false,
                DelayAccounting::SinceBoot => true,
                DelayAccounting::On => delayed.contains(&(r.tid, stat.start_ticks)),
            };
            stat.blkio_ns.filter(|_| trusted)
        };
        Table::new(
            "tasks",
            vec![
                ("before_ns", self.known(|r| r.before_ns)),
                ("after_ns", self.known(|r| r.after_ns)),
                ("pid", self.known(|r| r.pid)),
                ("tid", self.known(|r| r.tid)),
                ("start_ticks", self.stat(|s| Some(s.start_ticks))),
                (
                    "comm",
                    self.text(|r| Some(self.strings.text(r.stat.as_ref()?.comm).to_owned())),
                ),
                ("role", self.text(|r| Some(self.strings.text(r.role).to_owned()))),
                ("session", self.number(|r| r.session)),
                ("run_ns", self.number(|r| Some(r.sched?[0]))),
                ("runq_ns", self.number(|r| Some(r.sched?[1]))),
                ("slices", self.number(|r| Some(r.sched?[2]))),
                ("user_ns", self.stat(|s| Some(s.user_ns))),
                ("system_ns", self.stat(|s| Some(s.system_ns))),
                ("blkio_ns", self.number(blkio)),
                ("cpu", self.stat(|s| s.cpu)),
                ("state", self.text(|r| Some(r.stat.as_ref()?.state.to_string()))),
                ("status", self.text(|r| Some(r.status.to_owned()))),
            ],
        )
    }

    /// Tasks (with their start) that have once said more than 0: they are accounted for.
    fn delayed(&self) -> HashSet<(i64, i64)> {
        let stats = self.rows.iter().filter_map(|r| Some((r.tid, r.stat.as_ref()?)));
        stats
            .filter(|(_, s)| s.blkio_ns > Some(0))
            .map(|(tid, s)| (tid, s.start_ticks))
            .collect()
    }

    fn known(&self, value: impl Fn(&Row) -> i64) -> Column {
        Column::known(self.rows.iter().map(value))
    }

    fn number(&self, value: impl Fn(&Row) -> Option<i64>) -> Column {
        Column::I64(self.rows.iter().map(value).collect())
    }

    fn stat(&self, value: impl Fn(&StatRow) -> Option<i64>) -> Column {
        self.number(|r| r.stat.as_ref().and_then(&value))
    }

    fn text(&self, value: impl Fn(&Row) -> Option<String>) -> Column {
        Column::Str(self.rows.iter().map(value).collect())
    }
}
