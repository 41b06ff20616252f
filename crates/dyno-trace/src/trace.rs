//! The scheduler trace as a [`Tracer`] of a watch.

use std::sync::Arc;

use dyno_bpf::{SleepStacks, Statements};
use dyno_model::{Table, now_ns};
use dyno_observe::file::Buffer;
use dyno_observe::freezers::Freezers;
use dyno_observe::parse::ns_per_tick;
use dyno_observe::task::Task;
use dyno_observe::{Granted, Names, Refusal, Status, Tracer, WordFinder, WordSpec};

use crate::account::{Seed, durations, sums, undecided};
use crate::book::{FEWEST_SLOTS, MOST_SLOTS};
use crate::idle::{Lease, load};
use crate::layout::{Slot, doing};
use crate::load::Wanted;
use crate::rows::{self, Key, Rows};
use crate::stacks::Stacks;
use crate::system_calls::{self, Now};

/// Options of a trace.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The server's main process. Its children are traced from their birth, registered or not.
    pub main_pid: Option<i64>,
    /// Whether all their threads and descendants are traced, too.
    pub tree: bool,
    /// The wait event word of the server's processes.
    pub word: Option<WordSpec>,
    /// Whether system calls are counted.
    pub syscalls: bool,
    /// How many tasks there is room for at once, and between two reads. A task takes 19 kB of kernel memory, 25 kB with
    /// system calls.
    pub slots: u32,
    /// Whether stacks of sleeps are taken.
    pub stacks: bool,
}

mod slots;

/// The running trace.
pub struct Trace {
    loaded: Lease,
    tree: bool,
    syscalls: bool,
    /// Labels of waits for the client.
    client_waits: Vec<u32>,
    finder: Option<WordFinder>,
    names: Names,
    /// Address of the main process's word, or why it cannot be read; both hold for its children.
    word: Granted<u64>,
    statements: Statements,
    /// Tasks by number of slot.
    known: Vec<Option<KnownTask>>,
    rows: Rows,
    /// Registered tasks that found no slot, and those that found one.
    refused: u64,
    taken: u64,
    /// Number of slots taken back.
    given_back: u64,
    /// Number of events reconstructed, of tasks that have ended and of those in the latest read.
    mended: (i64, i64),
    buffer: Buffer,
    freezers: Freezers,
    ns_per_tick: i64,
}

/// The task of a slot.
struct KnownTask {
    key: u32,
    /// None for a child of the main process that the watch has not registered.
    task: Option<Arc<Task>>,
    seed: Seed,
    /// Status of labels that could not be read.
    unread: Status,
}

/// The trace, and the stacks of sleeps if they were requested, or the reason and the cure.
pub type Opened = (Granted<Box<dyn Tracer>>, Option<Granted<Box<dyn SleepStacks>>>);

/// Loads and attaches the program, without stacks if it cannot take them.
pub fn open(options: Options) -> Opened {
    let boxed = |t: Trace| -> Box<dyn Tracer> { Box::new(t) };
    if !options.stacks {
        return (trace(&options).map(boxed), None);
    }
    match trace(&options).and_then(|mut t| Ok((t.stacks()?, t))) {
        Ok((stacks, trace)) => (Ok(boxed(trace)), Some(Ok(Box::new(stacks)))),
        Err(refusal) => {
            let without = Options {
                stacks: false,
                ..options
            };
            (trace(&without).map(boxed), Some(Err(refusal)))
        }
    }
}

fn trace(options: &Options) -> Granted<Trace> {
    let client_waits = options.word.as_ref().map_or_else(Vec::new, |w| w.client.clone());
    let loaded = load(
        Wanted {
            slots: options.slots.clamp(FEWEST_SLOTS, MOST_SLOTS),
            calls: options.syscalls.then(|| client_waits.clone()),
            stacks: options.stacks,
            tree: options.tree,
        },
        options.main_pid,
    )?;
    let mut finder = options
        .word
        .as_ref()
        .map(|w| WordFinder::new(&w.program, &w.symbol));
    let mut statements = Statements::new(options.word.as_ref());
    let names = options
        .word
        .as_ref()
        .map_or_else(Names::default, |w| Names::new(&w.names, &w.classes));
    let word = match (options.main_pid, &mut finder) {
        (Some(pid), Some(finder)) => finder.address(pid),
        (None, Some(_)) => Ok(0),
        (_, None) => Err(Refusal::new(
            Status::NotSupported,
            "the wait events of this server version are not known",
        )),
    };
    if let Some(main_pid) = options.main_pid {
        let address = word.as_ref().copied().unwrap_or(0);
        let statement = statements.locate(main_pid);
        loaded.book.watch_children(main_pid as u32, address, statement);
    }
    Ok(Trace {
        known: (0..loaded.book.slots.entries()).map(|_| None).collect(),
        loaded,
        tree: options.tree,
        syscalls: options.syscalls,
        client_waits,
        finder,
        names,
        word,
        statements,
        rows: Rows::default(),
        refused: 0,
        taken: 0,
        given_back: 0,
        mended: (0, 0),
        buffer: Buffer::default(),
        freezers: Freezers::new(usize::MAX),
        ns_per_tick: ns_per_tick(),
    })
}

impl Trace {
    /// Returns the reader of the stacks that the program takes.
    fn stacks(&mut self) -> Granted<Stacks> {
        let (ring, control, slots) = self.loaded.stacks()?;
        Ok(Stacks {
            ring,
            control,
            slots,
            malformed: 0,
            names: self.names.clone(),
            unread: self.unread_of_children(),
            statements: self.statements.status.0.clone(),
        })
    }

    fn read_slot(&mut self, number: usize, ends: bool) {
        let before_ns = now_ns();
        let Some(slot) = self.loaded.book.read(number) else {
            if let Some(known) = &self.known[number] {
                self.rows.read(before_ns, now_ns(), known.key, None);
            }
            return;
        };
        if slot.doing != doing::ENDED && self.loaded.book.find(slot.tid) != Some(number) {
            // the program saw another task begin with its number
            self.end_unseen(number, &slot);
            return;
        }
        let throttled_ns = self.throttled_now_ns(number, &slot);
        let after_ns = now_ns();
        let known = self.known[number].take();
        let known = known.unwrap_or_else(|| self.newborn(&slot));
        let ended = slot.doing == doing::ENDED || known.task.as_ref().is_some_and(|t| t.gone());
        // read as of its start, while CPU time may turn out to be run queue; in a tree, where many come and go, of its end
        let undecided = !ended && self.loaded.clock.is_ok() && undecided(&slot, known.seed);
        let as_of_ns = if undecided { slot.since_ns } else { after_ns as u64 };
        let (sums, labels) = sums(&slot, known.seed, as_of_ns, throttled_ns);
        let stands = undecided || (self.tree && slot.doing == doing::ENDED);
        let when = |ns| if stands { slot.since_ns as i64 } else { ns };
        self.rows
            .read(when(before_ns), when(after_ns), known.key, Some(sums));
        self.rows.labels(labels, known.unread);
        if self.syscalls
            && let Some(counts) = self.loaded.book.read_calls(number)
        {
            let now = Now::at_read(&slot, &sums, as_of_ns, &self.client_waits);
            let (calls, sizes) = (
                system_calls::with_call_under_way(&counts, now),
                system_calls::sizes(&counts),
            );
            self.rows.calls(calls, sizes, counts.lost > 0);
        }
        if ends || ended {
            self.rows
                .durations(durations(&slot), known.unread, slot.unplaced > 0);
        }
        if ended {
            self.mended.0 += sums.mended;
            if slot.doing == doing::ENDED {
                self.loaded.book.release(number);
            } else {
                self.loaded.book.retire(number, after_ns as u64); // it is gone, and has not left its CPU for good
            }
            self.given_back += 1;
        } else {
            self.mended.1 += sums.mended;
            self.known[number] = Some(known);
        }
    }

    /// Returns how much of the current wait in the run queue was throttled. Returns 0 if the kernel does not count it, in
    /// which case the program books it when the wait ends.
    fn throttled_now_ns(&self, number: usize, slot: &Slot) -> u64 {
        if !matches!(slot.doing, doing::QUEUED | doing::WOKEN) || slot.queue == 0 {
            return 0;
        }
        self.loaded.throttled_now_ns(number).unwrap_or(0)
    }

    fn lost(&self) -> Option<String> {
        let (unplaced, missed) = (self.refused + self.loaded.book.lost(), self.loaded.missed());
        let room = self.loaded.book.slots.entries() - 1;
        match (unplaced, missed) {
            (0, 0) => None,
            (0, _) => Some(format!(
                "{missed} events missed: the program was already running on that CPU"
            )),
            _ => Some(format!(
                "{unplaced} processes found no room among {room}, {missed} events missed: their waits are unknown"
            )),
        }
    }
}

impl Tracer for Trace {
    fn watch(&mut self, task: &Arc<Task>) {
        if task.gone() {
            return;
        }
        let Some(number) = self.find(task) else {
            self.take(task);
            return;
        };
        let known = self.known[number].take();
        self.known[number] = Some(KnownTask {
            key: self.rows.key(key(task)),
            task: Some(Arc::clone(task)),
            seed: known.as_ref().map_or(Seed::Runnable, |k| k.seed),
            unread: known.map_or_else(|| self.unread_of_children(), |k| k.unread),
        });
    }

    fn read(&mut self, ends: bool) {
        self.mended.1 = 0;
        self.loaded.book.free_retired(now_ns() as u64);
        let used: Vec<usize> = self.loaded.book.used().collect();
        for number in used {
            self.read_slot(number, ends);
        }
    }

    /// Reads the slots of ended tasks if more than half are in use: they are free only once they were read.
    fn make_room(&mut self) {
        self.loaded.book.free_retired(now_ns() as u64);
        let room = self.loaded.book.slots.entries() as u64 - 1;
        let used = (self.taken + self.loaded.book.born()).saturating_sub(self.given_back);
        if 2 * used > room {
            let ended: Vec<usize> = self.loaded.book.ended().collect();
            for number in ended {
                self.read_slot(number, false);
            }
        }
    }

    fn tables(&self, since_ns: i64) -> Vec<Table> {
        let known = rows::Available {
            throttle: self.loaded.throttle_known,
            clock: self.loaded.clock.is_ok(),
            statements: &self.statements.status.0,
        };
        self.rows.tables(since_ns, known, &self.names, self.syscalls)
    }

    fn take_tables(&mut self, before_ns: i64) -> Vec<Table> {
        let later = self.rows.later(before_ns);
        let tables = self.tables(i64::MIN);
        self.rows.give_back(later);
        tables
    }

    fn status(&self) -> (String, String) {
        let answer = |status: Status, detail: String| (status.as_str().to_owned(), detail);
        if let Some(lost) = self.lost() {
            return answer(Status::Limited, lost);
        }
        let mut detail = String::from("BPF on sched_switch, sched_wakeup, sched_process_fork");
        if self.loaded.clock.is_ok() {
            detail.push_str(", a clock on each CPU");
        }
        if self.syscalls {
            detail.push_str(", sys_enter, sys_exit");
        }
        if let Err(refusal) = &self.loaded.clock {
            detail = format!(
                "{detail}; no clock for CPU time by wait event: {}",
                refusal.detail
            );
        }
        let mended = self.mended.0 + self.mended.1;
        if mended > 0 {
            detail = format!("{detail}; {mended} events not seen, made good from the kernel's own sums");
        }
        if !self.loaded.throttle_known {
            detail.push_str("; this kernel does not tell throttled time apart");
        }
        answer(Status::Ok, detail)
    }

    fn labels(&self) -> (String, String) {
        let ok = || (Status::Ok.as_str().to_owned(), String::new());
        self.word
            .as_ref()
            .map_or_else(Refusal::status_and_detail, |_| ok())
    }

    fn statements(&self) -> (String, String) {
        self.statements.status.clone()
    }
}

fn key(task: &Task) -> Key {
    Key {
        pid: task.pid,
        tid: task.tid,
        start_ticks: task.start_ticks(),
        role: Arc::clone(&task.who.role),
        session: task.who.session,
    }
}

/// Returns the status of a label that is not known: not supported if the server has no such word, the refusal's status
/// if it may not be read, lost if its memory was not there just then.
fn unread<T>(word: Option<&Granted<T>>) -> Status {
    match word {
        None => Status::NotSupported,
        Some(Err(refusal)) => refusal.status,
        Some(Ok(_)) => Status::Lost,
    }
}
