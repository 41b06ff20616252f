//! Rows of the table `tasks`.

use std::collections::{HashMap, HashSet};

use dyno_model::{EndedTask, NullableTexts, Strings, Table, raw};

use crate::read::parse::ns_per_tick;
use crate::read::switches::Switches;
use crate::read::task::{DelayAccounting, Reading, Task};

/// Largest difference between the start that the kernel reports at a task's end and the one that was read.
const SAME_TICKS: i64 = 100;

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
    switches: Option<Switches>,
    status: &'static str,
}

#[derive(Debug)]
struct StatRow {
    start_ticks: i64,
    comm: u32,
    user_ns: i64,
    system_ns: i64,
    blkio_ns: Option<i64>,
    children_ns: Option<i64>,
    cpu: Option<i64>,
    state: char,
}

/// All reads of all tasks.
#[derive(Debug)]
pub struct TaskRows {
    strings: Strings,
    rows: Vec<Row>,
    /// Birth and end of each task, as the kernel reported them when it ended.
    ended: Vec<Row>,
    /// Starts of tasks that were read.
    starts: HashMap<(i64, i64), i64>,
    delays: DelayAccounting,
    /// Tasks (with their start) whose counter was once above 0: they are accounted for.
    delayed: HashSet<(i64, i64)>,
}

impl TaskRows {
    pub fn new(delays: DelayAccounting) -> Self {
        Self {
            strings: Strings::default(),
            rows: Vec::new(),
            ended: Vec::new(),
            starts: HashMap::new(),
            delays,
            delayed: HashSet::new(),
        }
    }

    pub fn push(&mut self, task: &Task, reading: &Reading<'_>) {
        if let Some(stat) = reading.stat {
            self.starts.insert((task.pid, task.tid), stat.start_ticks);
        }
        if let Some(stat) = reading.stat.filter(|s| s.blkio_ns > Some(0)) {
            self.delayed.insert((task.tid, stat.start_ticks));
        }
        let stat = reading.stat.map(|s| StatRow {
            start_ticks: s.start_ticks,
            comm: self.strings.number(s.comm),
            user_ns: s.user_ns,
            system_ns: s.system_ns,
            blkio_ns: s.blkio_ns,
            children_ns: s.children_ns,
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
            switches: None,
            status: reading.status.as_str(),
        });
    }

    /// Adds the context switches of the row that was pushed `back` rows ago (0: the last).
    pub fn switches(&mut self, back: usize, switches: Option<Switches>) {
        let last = self.rows.len() - 1;
        self.rows[last - back].switches = switches;
    }

    /// Adds a row at the birth of a task and one (state X) at its end. It has the start of its reads, if it was read.
    pub fn ended(&mut self, task: &EndedTask) {
        let (born_ns, end_ns) = task.life_ns;
        let known = self.starts.get(&(task.pid, task.tid)).copied();
        let ticks = born_ns / ns_per_tick();
        let start_ticks = known.filter(|k| (k - ticks).abs() <= SAME_TICKS).unwrap_or(ticks);
        let role = if task.session.is_some() {
            "session"
        } else {
            "brief"
        };
        let (comm, role) = (self.strings.number(&task.comm), self.strings.number(role));
        for (at_ns, state) in [(born_ns, 'S'), (end_ns, 'X')] {
            let part = i64::from(state == 'X');
            self.ended.push(Row {
                before_ns: at_ns,
                after_ns: at_ns,
                pid: task.pid,
                tid: task.tid,
                role,
                session: task.session,
                sched: Some([part * task.run_ns, part * task.runq_ns, part * task.slices]),
                stat: Some(StatRow {
                    start_ticks,
                    comm,
                    user_ns: part * task.ticks_ns.0,
                    system_ns: part * task.ticks_ns.1,
                    blkio_ns: task.blkio_ns.map(|ns| part * ns),
                    children_ns: None,
                    cpu: None,
                    state,
                }),
                switches: Some(Switches {
                    voluntary: part * task.switches.0,
                    involuntary: part * task.switches.1,
                }),
                status: "ok",
            });
        }
    }

    /// Reads that were done before `before_ns`; they are forgotten. `None`: which of their figures are known
    /// depends on what is still to be read.
    pub fn take(&mut self, before_ns: i64) -> Option<Table> {
        if matches!(self.delays, DelayAccounting::On) {
            return None;
        }
        let first = self.rows.partition_point(|r| r.after_ns < before_ns);
        let later = self.rows.split_off(first);
        let alive = self
            .ended
            .chunks(2)
            .take_while(|life| life[1].after_ns < before_ns)
            .count();
        let ended_later = self.ended.split_off(2 * alive);
        let table = self.table(i64::MIN);
        (self.rows, self.ended) = (later, ended_later);
        Some(table)
    }

    /// Returns reads that ended at or after `since_ns`.
    pub fn table(&self, since_ns: i64) -> Table {
        let first = self.rows.partition_point(|r| r.after_ns < since_ns);
        let ended = self.ended.chunks(2).filter(|life| life[1].after_ns >= since_ns);
        let rows: Vec<&Row> = self.rows[first..].iter().chain(ended.flatten()).collect();
        let known = |of: fn(&Row) -> i64| rows.iter().map(|row| of(row)).collect();
        let number = |of: fn(&Row) -> Option<i64>| rows.iter().map(|row| of(row)).collect();
        let figures = || rows.iter().map(|row| row.stat.as_ref());
        let stat = |of: fn(&StatRow) -> Option<i64>| figures().map(|s| s.and_then(of)).collect();
        let (mut states, mut bytes) = (NullableTexts::default(), [0; 4]);
        for stat in figures() {
            states.push(stat.map(|s| &*s.state.encode_utf8(&mut bytes)));
        }
        let tasks = raw::Tasks {
            before_ns: known(|r| r.before_ns),
            after_ns: known(|r| r.after_ns),
            pid: known(|r| r.pid),
            tid: known(|r| r.tid),
            start_ticks: stat(|s| Some(s.start_ticks)),
            comm: figures().map(|s| s.map(|s| self.strings.text(s.comm))).collect(),
            role: rows.iter().map(|r| self.strings.text(r.role)).collect(),
            session: number(|r| r.session),
            run_ns: number(|r| Some(r.sched?[0])),
            runq_ns: number(|r| Some(r.sched?[1])),
            slices: number(|r| Some(r.sched?[2])),
            user_ns: stat(|s| Some(s.user_ns)),
            system_ns: stat(|s| Some(s.system_ns)),
            blkio_ns: rows.iter().map(|row| self.blkio_ns(row)).collect(),
            children_ns: stat(|s| s.children_ns),
            voluntary: number(|r| Some(r.switches?.voluntary)),
            involuntary: number(|r| Some(r.switches?.involuntary)),
            cpu: stat(|s| s.cpu),
            state: states,
            status: rows.iter().map(|r| r.status).collect(),
        };
        tasks.into()
    }

    fn blkio_ns(&self, row: &Row) -> Option<i64> {
        let stat = row.stat.as_ref()?;
        let trusted = match self.delays {
            DelayAccounting::Off => false,
            DelayAccounting::SinceBoot => true,
            DelayAccounting::On => self.delayed.contains(&(row.tid, stat.start_ticks)),
        };
        stat.blkio_ns.filter(|_| trusted)
    }
}
