//! Rows of the trace's tables.

use std::sync::Arc;

use dyno_model::{Nullable, NullableTexts, Table, Texts, raw};
use dyno_observe::{Names, Status};

use crate::account::{Duration, Label, Name, Sums};
use crate::layout::Call;
use crate::system_calls::{Size, call_name};

/// A task and its role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub pid: i64,
    pub tid: i64,
    pub start_ticks: Option<i64>,
    pub role: Arc<str>,
    pub session: Option<i64>,
}

/// One read of one task.
#[derive(Debug)]
struct Read {
    before_ns: i64,
    after_ns: i64,
    key: u32,
    /// None if no read was consistent.
    sums: Option<Sums>,
    status: Status,
}

/// Part of a read: the sums of a label, or of a system call.
#[derive(Debug)]
struct Part<T> {
    read: u32,
    value: T,
    status: Status,
}

/// Figures that this kernel and server make available.
#[derive(Debug, Clone, Copy)]
pub struct Available<'s> {
    /// Whether throttled time is known.
    pub throttle: bool,
    /// Whether a clock samples the labels of tasks on a CPU.
    pub clock: bool,
    /// Status of statements' ids.
    pub statements: &'s str,
}

/// All reads.
#[derive(Debug, Default)]
pub struct Rows {
    keys: Vec<Key>,
    reads: Vec<Read>,
    labels: Vec<Part<Label>>,
    durations: Vec<Part<Duration>>,
    calls: Vec<Part<Call>>,
    sizes: Vec<Part<Size>>,
}

impl Rows {
    /// Adds a task and returns its number.
    pub fn key(&mut self, key: Key) -> u32 {
        self.keys.push(key);
        self.keys.len() as u32 - 1
    }

    /// Adds one read of task `key`, with None if it was not consistent.
    pub fn read(&mut self, before_ns: i64, after_ns: i64, key: u32, sums: Option<Sums>) {
        let status = match sums {
            Some(sums) if sums.lost == 0 => Status::Ok,
            _ => Status::Lost,
        };
        self.reads.push(Read {
            before_ns,
            after_ns,
            key,
            sums,
            status,
        });
    }

    /// Adds labels of the latest read. `unread` is the status of labels that could not be read.
    pub fn labels(&mut self, labels: Vec<Label>, unread: Status) {
        let read = self.reads.len() as u32 - 1;
        self.labels.extend(labels.into_iter().map(|value| Part {
            read,
            value,
            status: if value.name.code.is_some() {
                Status::Ok
            } else {
                unread
            },
        }));
    }

    /// Adds histograms of the latest read. `unread` is as in [`Rows::labels`], `lost` whether some durations found no
    /// room.
    pub fn durations(&mut self, durations: Vec<Duration>, unread: Status, lost: bool) {
        let read = self.reads.len() as u32 - 1;
        let status = |name: &Name| match name.code {
            _ if lost => Status::Lost,
            Some(_) => Status::Ok,
            None => unread,
        };
        self.durations.extend(durations.into_iter().map(|value| Part {
            read,
            status: status(&value.name),
            value,
        }));
    }

    /// Adds system calls of the latest read. `lost` is whether some found no room.
    pub fn calls(&mut self, calls: Vec<Call>, sizes: Vec<Size>, lost: bool) {
        let read = self.reads.len() as u32 - 1;
        let status = if lost { Status::Lost } else { Status::Ok };
        self.calls
            .extend(calls.into_iter().map(|value| Part { read, value, status }));
        self.sizes
            .extend(sizes.into_iter().map(|value| Part { read, value, status }));
    }

    /// Returns all tables of reads that ended at or after `since_ns`, those of system calls if they are counted.
    pub fn tables(&self, since_ns: i64, known: Available<'_>, names: &Names, syscalls: bool) -> Vec<Table> {
        let mut tables = vec![
            self.traced(since_ns, known).into(),
            self.waits(since_ns, known, names).into(),
            self.wait_times(since_ns, known, names).into(),
        ];
        if syscalls {
            tables.extend([
                self.syscalls(since_ns).into(),
                self.syscall_sizes(since_ns).into(),
            ]);
        }
        tables
    }

    /// Returns `traced` of reads that ended at or after `since_ns`.
    fn traced(&self, since_ns: i64, known: Available<'_>) -> raw::Traced {
        let reads = &self.reads[self.first(since_ns)..];
        let sum = |of: fn(&Sums) -> i64| reads.iter().map(|r| r.sums.as_ref().map(of)).collect();
        let throttled = |r: &Read| r.sums.filter(|_| known.throttle).map(|s| s.throttled_ns);
        let TaskColumns {
            before_ns,
            after_ns,
            pid,
            tid,
            start_ticks,
            role,
            session,
        } = self.read_tasks(reads.iter());
        raw::Traced {
            before_ns,
            after_ns,
            pid,
            tid,
            start_ticks,
            role,
            session,
            run_ns: sum(|s| s.run_ns),
            runq_ns: sum(|s| s.runq_ns),
            throttled_ns: reads.iter().map(throttled).collect(),
            sleep_ns: sum(|s| s.sleep_ns),
            blocked_ns: sum(|s| s.blocked_ns),
            voluntary: sum(|s| s.voluntary),
            involuntary: sum(|s| s.involuntary),
            status: reads.iter().map(|r| r.status.as_str()).collect(),
        }
    }

    /// Returns `waits` of the same reads.
    fn waits(&self, since_ns: i64, known: Available<'_>, names: &Names) -> raw::Waits {
        let parts = self.parts(&self.labels, since_ns);
        let number = |of: fn(&Label) -> i64| parts.iter().map(|p| of(&p.value)).collect();
        let counted = |of: fn(&Label) -> i64| parts.iter().map(|p| Some(of(&p.value))).collect();
        let if_known = |known: bool, of: fn(&Label) -> i64| {
            parts.iter().map(|p| known.then_some(of(&p.value))).collect()
        };
        let TaskColumns {
            before_ns,
            after_ns,
            pid,
            tid,
            start_ticks,
            role,
            session,
        } = self.part_tasks(parts);
        let NameColumns {
            wait_class,
            wait_event,
            query_id,
            query_status,
        } = NameColumns::new(parts.iter().map(|p| p.value.name), known, names);
        raw::Waits {
            before_ns,
            after_ns,
            pid,
            tid,
            start_ticks,
            role,
            session,
            wait_class,
            wait_event,
            sleep_ns: number(|l| l.sleep_ns),
            runq_ns: number(|l| l.runq_ns),
            throttled_ns: if_known(known.throttle, |l| l.throttled_ns),
            open_ns: if_known(known.statements == Status::Ok.as_str(), |l| l.open_ns),
            sleeps: number(|l| l.sleeps),
            begun: counted(|l| l.begun),
            unclear: counted(|l| l.unclear),
            preempted: number(|l| l.preempted),
            run_samples: if_known(known.clock, |l| l.run_samples),
            query_id,
            query_status,
            run_ns: counted(|l| l.run_ns),
            came_ns: counted(|l| l.came_ns),
            left_ns: counted(|l| l.left_ns),
            status: parts.iter().map(|p| p.status.as_str()).collect(),
        }
    }

    /// Returns `wait_times` of the same reads.
    fn wait_times(&self, since_ns: i64, known: Available<'_>, names: &Names) -> raw::WaitTimes {
        let parts = self.parts(&self.durations, since_ns);
        let part = |p: &Part<Duration>| if p.value.queue { "runq" } else { "sleep" };
        let TaskColumns {
            before_ns,
            after_ns,
            pid,
            tid,
            start_ticks,
            role,
            session,
        } = self.part_tasks(parts);
        let NameColumns {
            wait_class,
            wait_event,
            query_id,
            query_status,
        } = NameColumns::new(parts.iter().map(|p| p.value.name), known, names);
        raw::WaitTimes {
            before_ns,
            after_ns,
            pid,
            tid,
            start_ticks,
            role,
            session,
            wait_class,
            wait_event,
            query_id,
            query_status,
            part: parts.iter().map(part).collect(),
            from_ns: parts.iter().map(|p| p.value.from_ns).collect(),
            count: parts.iter().map(|p| p.value.count).collect(),
            status: parts.iter().map(|p| p.status.as_str()).collect(),
        }
    }

    /// Returns `syscalls` of the same reads.
    fn syscalls(&self, since_ns: i64) -> raw::Syscalls {
        let parts = self.parts(&self.calls, since_ns);
        let sum = |of: fn(&Call) -> u64| parts.iter().map(|p| of(&p.value) as i64).collect();
        let counted = |of: fn(&Call) -> u64| parts.iter().map(|p| Some(of(&p.value) as i64)).collect();
        let TaskColumns {
            before_ns,
            after_ns,
            pid,
            tid,
            start_ticks,
            role,
            session,
        } = self.part_tasks(parts);
        raw::Syscalls {
            before_ns,
            after_ns,
            pid,
            tid,
            start_ticks,
            role,
            session,
            name: parts.iter().map(|p| call_name(p.value.number)).collect(),
            calls: sum(|c| c.calls),
            errors: counted(|c| c.errors),
            time_ns: sum(|c| c.time_ns),
            cpu_ns: counted(|c| c.run_ns),
            runq_ns: counted(|c| c.runq_ns),
            client_ns: counted(|c| c.client_ns),
            bytes: counted(|c| c.bytes),
            unclear: counted(|c| c.unclear),
            status: parts.iter().map(|p| p.status.as_str()).collect(),
        }
    }

    /// Returns `syscall_sizes` of the same reads.
    fn syscall_sizes(&self, since_ns: i64) -> raw::SyscallSizes {
        let parts = self.parts(&self.sizes, since_ns);
        let TaskColumns {
            before_ns,
            after_ns,
            pid,
            tid,
            start_ticks,
            role,
            session,
        } = self.part_tasks(parts);
        raw::SyscallSizes {
            before_ns,
            after_ns,
            pid,
            tid,
            start_ticks,
            role,
            session,
            name: parts.iter().map(|p| call_name(p.value.number)).collect(),
            size_bytes: parts.iter().map(|p| p.value.bytes as i64).collect(),
            calls: parts.iter().map(|p| p.value.calls as i64).collect(),
            status: parts.iter().map(|p| p.status.as_str()).collect(),
        }
    }

    /// Takes away the rows from the first read at or after `since_ns` on, to be given back with [`Rows::give_back`].
    pub fn later(&mut self, since_ns: i64) -> Self {
        let first = self.first(since_ns);
        Self {
            keys: Vec::new(),
            reads: self.reads.split_off(first),
            labels: later(&mut self.labels, first),
            durations: later(&mut self.durations, first),
            calls: later(&mut self.calls, first),
            sizes: later(&mut self.sizes, first),
        }
    }

    /// Replaces the rows by those that [`Rows::later`] took away.
    pub fn give_back(&mut self, later: Self) {
        let keys = std::mem::take(&mut self.keys);
        *self = Self { keys, ..later };
    }

    fn first(&self, since_ns: i64) -> usize {
        let later = self.reads.iter().position(|r| r.after_ns >= since_ns); // the end of a task may lie far back
        later.unwrap_or(self.reads.len())
    }

    fn parts<'p, T>(&self, parts: &'p [Part<T>], since_ns: i64) -> &'p [Part<T>] {
        let first = self.first(since_ns);
        &parts[parts.partition_point(|p| (p.read as usize) < first)..]
    }

    fn read_tasks<'r>(&self, reads: impl Iterator<Item = &'r Read> + Clone) -> TaskColumns {
        let keys: Vec<&Key> = reads.clone().map(|r| &self.keys[r.key as usize]).collect();
        TaskColumns {
            before_ns: reads.clone().map(|r| r.before_ns).collect(),
            after_ns: reads.map(|r| r.after_ns).collect(),
            pid: keys.iter().map(|k| k.pid).collect(),
            tid: keys.iter().map(|k| k.tid).collect(),
            start_ticks: keys.iter().map(|k| k.start_ticks).collect(),
            role: keys.iter().map(|k| &*k.role).collect(),
            session: keys.iter().map(|k| k.session).collect(),
        }
    }

    fn part_tasks<T>(&self, parts: &[Part<T>]) -> TaskColumns {
        self.read_tasks(parts.iter().map(|p| &self.reads[p.read as usize]))
    }
}

/// The columns that all tables begin with.
struct TaskColumns {
    before_ns: Vec<i64>,
    after_ns: Vec<i64>,
    pid: Vec<i64>,
    tid: Vec<i64>,
    start_ticks: Nullable<i64>,
    role: Texts,
    session: Nullable<i64>,
}

/// Splits off the parts of read `first` and later, and renumbers them.
fn later<T>(parts: &mut Vec<Part<T>>, first: usize) -> Vec<Part<T>> {
    let mut later = parts.split_off(parts.partition_point(|p| (p.read as usize) < first));
    for part in &mut later {
        part.read -= first as u32;
    }
    later
}

/// Columns of labels and statements.
struct NameColumns {
    wait_class: NullableTexts,
    wait_event: NullableTexts,
    query_id: Nullable<i64>,
    query_status: NullableTexts,
}

impl NameColumns {
    fn new(all: impl Iterator<Item = Name> + Clone, known: Available<'_>, names: &Names) -> Self {
        let (mut classes, mut events) = (NullableTexts::default(), NullableTexts::default());
        for name in all.clone() {
            let name = name.code.and_then(|code| names.name(code));
            classes.push(name.as_ref().map(|(class, _)| &**class));
            events.push(name.as_ref().map(|(_, event)| &**event));
        }
        let id = |n: Name| (n.query != 0 && !n.others()).then_some(n.query as i64);
        let status = |n: Name| Some(if n.others() { NO_ROOM } else { known.statements });
        Self {
            wait_class: classes,
            wait_event: events,
            query_id: all.clone().map(id).collect(),
            query_status: all.map(status).collect(),
        }
    }
}

/// Status of several statements that are one row.
const NO_ROOM: &str = "others";
