//! Samples with their tasks and stacks.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use dyno_observe::task::{Task, Who};

use crate::maps::{self, Mapping};
use crate::objects::Objects;
use crate::records::{Label, Record, Sample};
use crate::space::{CHAIN, Space};

/// Rounds of a second: see `DRAIN_NS` of the watch.
const ROUNDS: u64 = 5;

/// The code that a frame lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// The kernel.
    Kernel,
    /// The object of this number.
    Object(usize),
    /// Memory of a process whose mappings are not known.
    Unknown,
}

/// Distinct values, numbered in order of first appearance.
#[derive(Debug)]
pub struct Interned<T> {
    numbers: HashMap<T, u32>,
    /// By number.
    pub all: Vec<T>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self {
            numbers: HashMap::new(),
            all: Vec::new(),
        }
    }
}

impl<T: Hash + Eq + Clone> Interned<T> {
    fn number(&mut self, value: T) -> u32 {
        if let Some(&number) = self.numbers.get(&value) {
            return number;
        }
        let number = self.all.len() as u32;
        self.all.push(value.clone());
        self.numbers.insert(value, number);
        number
    }
}

/// A task of the server.
#[derive(Debug)]
pub struct Life {
    pub pid: u32,
    pub tid: u32,
    /// None for a child of the main process that the watch has not registered.
    pub who: Option<Who>,
    /// Start of a registered task: numbers are used again.
    start_ticks: Option<i64>,
}

/// One sample.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub t_ns: i64,
    pub cpu: u32,
    /// Its number in [`Book::lives`].
    pub life: u32,
    pub kernel: bool,
    pub stack: u32,
    pub cut: bool,
    /// None if no label came with the sample.
    pub label: Option<Label>,
}

/// Counts for the status of the data source.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Records that found no room in a ring.
    pub lost: u64,
    /// Times that the kernel held a clock back.
    pub throttled: u64,
    /// Time for which clocks were held back, without current periods; nanoseconds summed over the clocks.
    pub held_ns: u64,
    /// Stacks whose outer frames are missing.
    pub cut: u64,
    /// Stacks with a frame that was unwound by frame pointers.
    pub pointers: u64,
    /// Stacks with frames of a program.
    pub user: u64,
    /// Samples of processes that were ending: their memory was gone.
    pub ending: u64,
    /// Processes that had ended before their mappings were read: unwound by those of the main process.
    pub ended: u64,
    /// Processes whose mappings may not be read.
    pub closed: u64,
}

/// All samples of a watch.
#[derive(Default)]
pub struct Book {
    main_pid: Option<u32>,
    tree: bool,
    processes: HashMap<u32, Process>,
    tasks: HashMap<u32, u32>,
    /// Tasks that ended in this round.
    ending: Vec<(u32, u32)>,
    /// By ring: the label whose sample comes next.
    labels: HashMap<usize, Label>,
    /// By ring: since when its clock is held back.
    held: HashMap<usize, u64>,
    /// The server's tasks.
    pub lives: Vec<Life>,
    spaces: Vec<Space>,
    by_mappings: HashMap<Vec<Mapping>, usize>,
    /// Programs and libraries that frames lie in.
    pub objects: Objects,
    /// The object of each frame, and its address there.
    pub frames: Interned<(Place, u64)>,
    /// Numbers of frames, leaf first.
    pub stacks: Interned<Vec<u32>>,
    /// The samples.
    pub rows: Vec<Row>,
    /// How they were taken.
    pub counts: Counts,
}

#[derive(Debug, Clone, Copy, Default)]
struct Process {
    /// Number of its space.
    space: Option<usize>,
    /// Round in which its mappings were read, or could not be.
    read: Option<u64>,
    ended: bool,
}

impl Book {
    /// Returns an empty book. Children of `main_pid` are the server's, in a `tree` their descendants, too.
    pub fn new(main_pid: Option<i64>, tree: bool) -> Self {
        Self {
            tree,
            main_pid: main_pid.map(|pid| pid as u32),
            ..Self::default()
        }
    }

    /// Registers a task of the server, or its new role.
    pub fn watch(&mut self, task: &Arc<Task>) {
        let (pid, tid) = (task.pid as u32, task.tid as u32);
        let known = self.tasks.get(&tid).map(|&life| &self.lives[life as usize]);
        if known.is_some_and(|l| l.start_ticks.is_some() && l.start_ticks != task.start_ticks()) {
            self.end(pid, tid); // the record of its end was lost
        }
        let life = self.life(pid, tid) as usize;
        self.lives[life].who = Some(task.who.clone());
        self.lives[life].start_ticks = task.start_ticks();
        self.map(pid, 0); // while it is there
    }

    /// Index of the task's life, inserting one if absent.
    fn life(&mut self, pid: u32, tid: u32) -> u32 {
        self.processes.entry(pid).or_default();
        let lives = &mut self.lives;
        *self.tasks.entry(tid).or_insert_with(|| {
            lives.push(Life {
                pid,
                tid,
                who: None,
                start_ticks: None,
            });
            lives.len() as u32 - 1
        })
    }

    /// Adds a child of the server. Beginnings of tasks are read before the samples of all CPUs.
    pub fn begin(&mut self, record: &Record<'_>) {
        let &Record::Fork { pid, parent, tid } = record else {
            return;
        };
        let begun = pid == tid && pid != parent;
        let ours = Some(parent) == self.main_pid || (self.tree && self.processes.contains_key(&parent));
        if begun && ours && !self.tasks.contains_key(&tid) {
            self.life(pid, tid);
        }
    }

    /// Adds a record of a ring, read in round `round`.
    pub fn take(&mut self, record: &Record<'_>, ring: usize, round: u64) {
        match record {
            Record::Sample(sample) => {
                let label = self.labels.remove(&ring);
                self.sample(sample, label.filter(|l| l.tid == sample.tid), round);
            }
            Record::Label(label) => {
                self.labels.insert(ring, *label);
            }
            Record::Lost(n) => self.counts.lost += n,
            &Record::Throttled(t_ns) => {
                self.counts.throttled += 1;
                self.held.insert(ring, t_ns);
            }
            &Record::Unthrottled(t_ns) => {
                let since_ns = self.held.remove(&ring).unwrap_or(t_ns);
                self.counts.held_ns += t_ns.saturating_sub(since_ns);
            }
            &Record::Exit { pid, tid } => self.ending.push((pid, tid)),
            Record::Fork { .. } | Record::Other => {}
        }
    }

    /// Returns the time for which clocks were held back up to `now_ns`, in nanoseconds summed over the clocks.
    pub fn held_ns(&self, now_ns: i64) -> u64 {
        let under_way = self
            .held
            .values()
            .map(|&since_ns| (now_ns as u64).saturating_sub(since_ns));
        self.counts.held_ns + under_way.sum::<u64>()
    }

    /// Ends the current periods in which clocks are held back, as the clocks have stopped.
    pub fn stop(&mut self, now_ns: i64) {
        self.counts.held_ns = self.held_ns(now_ns);
        self.held.clear();
    }

    /// Removes tasks whose end was among the records of this round, and returns the processes that ended.
    pub fn finish(&mut self) -> Vec<u32> {
        let ended = std::mem::take(&mut self.ending).into_iter();
        ended
            .filter(|&(pid, tid)| self.end(pid, tid))
            .map(|(pid, _)| pid)
            .collect()
    }

    /// Removes a task, and returns whether it was a process of the server.
    fn end(&mut self, pid: u32, tid: u32) -> bool {
        self.tasks.remove(&tid);
        pid == tid && self.processes.remove(&pid).is_some()
    }

    fn sample(&mut self, sample: &Sample<'_>, label: Option<Label>, round: u64) {
        if !self.processes.contains_key(&sample.pid) {
            return; // not the server's
        }
        let life = self.life(sample.pid, sample.tid);
        let mut stack = Vec::new();
        for (number, address) in sample.kernel_chain.iter().enumerate() {
            let inside = address.wrapping_sub(u64::from(number > 0)); // a caller's is after its call
            stack.push(self.frames.number((Place::Kernel, inside)));
        }
        let mut cut = sample.kernel_chain.len() >= CHAIN;
        if sample.registers.is_some() {
            cut |= self.user(sample, round, &mut stack);
        } else {
            self.counts.ending += 1;
        }
        self.counts.cut += u64::from(cut);
        let row = Row {
            t_ns: sample.t_ns as i64,
            cpu: sample.cpu,
            life,
            kernel: sample.kernel,
            stack: self.stacks.number(stack),
            cut,
            label,
        };
        self.rows.push(row);
    }

    /// Adds the program's frames, and returns whether outer ones are missing.
    fn user(&mut self, sample: &Sample<'_>, round: u64, stack: &mut Vec<u32>) -> bool {
        self.counts.user += 1;
        let mut space = self.map(sample.pid, round);
        if space.is_some_and(|s| !self.spaces[s].holds(sample)) {
            // a library loaded since, or code made since
            space = self.remap(sample.pid, round);
        }
        let Some(space) = space else {
            let ip = sample.registers.map_or(0, |r| crate::registers::start(r).0);
            stack.push(self.frames.number((Place::Unknown, ip)));
            return true;
        };
        let mut unwound = self.spaces[space].unwind(sample);
        if unwound.cut && self.remap(sample.pid, round) != Some(space) {
            // a library loaded since is among the callers
            let space = self.map(sample.pid, round).unwrap_or(space);
            unwound = self.spaces[space].unwind(sample);
        }
        self.counts.pointers += u64::from(unwound.pointers);
        for (object, address) in unwound.frames {
            stack.push(self.frames.number((Place::Object(object), address)));
        }
        unwound.cut
    }

    /// Returns the space of a process, whose mappings are read if they were not.
    fn map(&mut self, pid: u32, round: u64) -> Option<usize> {
        let process = *self.processes.get(&pid)?;
        if process.read.is_some() {
            return process.space;
        }
        self.remap(pid, round)
    }

    /// Reads the mappings of a process again, but not within a second of the last read for a sample. Returns the
    /// space.
    fn remap(&mut self, pid: u32, round: u64) -> Option<usize> {
        let process = *self.processes.get(&pid)?;
        if process.read.is_some_and(|read| read > 0 && round < read + ROUNDS) {
            return process.space;
        }
        let text = std::fs::read(format!("/proc/{pid}/maps"));
        let space = match text.as_deref().map(|t| maps::parse(&String::from_utf8_lossy(t))) {
            Ok(mappings) if !mappings.is_empty() => Some(self.space(pid, mappings)),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                self.counts.closed += u64::from(process.read.is_none());
                None
            }
            _ => {
                // it has ended: it was made from the main process, and had the same program and libraries, if it
                // is no tree
                self.counts.ended += u64::from(!process.ended);
                let main = self.main_pid.filter(|&main| main != pid && !self.tree);
                let main_space = main.and_then(|main| self.map(main, round));
                process.space.or(main_space)
            }
        };
        let ended = process.ended || text.is_err();
        let read = Some(round);
        self.processes.insert(pid, Process { space, read, ended });
        space
    }

    fn space(&mut self, pid: u32, mappings: Vec<Mapping>) -> usize {
        if let Some(&known) = self.by_mappings.get(&mappings) {
            return known;
        }
        self.spaces.push(Space::new(pid, &mappings, &mut self.objects));
        let number = self.spaces.len() - 1;
        self.by_mappings.insert(mappings, number);
        number
    }
}
