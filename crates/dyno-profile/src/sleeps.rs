//! Stacks of sleeps: taken by the trace's program, unwound and named as those of the CPU profile are.

use std::collections::HashMap;
use std::sync::Arc;

use dyno_bpf::{Asleep, OTHERS, PAGE, SleepEvent, SleepStacks, UNREAD, Woken};
use dyno_model::{NullableTexts, Table, now_ns, raw};
use dyno_observe::task::Task;
use dyno_observe::{Profiler, Status};

use crate::book::Book;
use crate::losses::{Losses, Lost};
use crate::profile::kernel_symbols;
use crate::records::{Record, Sample};
use crate::registers::registers;
use crate::rights::KERNEL_HIDDEN;
use crate::tables::{frames, stacks};

/// Name of the data source.
pub const SOURCE: &str = "off-CPU stacks";
/// The kernel's function in which the trace's program runs when a task leaves its CPU: frames above it are the trace's
/// own.
const SCHEDULER: &str = "__schedule";
/// Period over which the rate of stacks is adjusted.
const ROUND_NS: i64 = 250_000_000;
/// Time asleep that a stack stands for, in 2^10 ns: at first, at least, at most.
const FIRST: f64 = 5_000.0;
const LEAST: f64 = 1.0;
const MOST: f64 = 1e9;
const UNIT_NS: f64 = 1024.0;
/// Greatest factor by which it grows in a period.
const FASTEST: f64 = 1024.0;

/// Reads the ring of stacks, and adjusts the time that a stack stands for to the rate that was requested.
pub struct Sleeps {
    hz: f64,
    until_ns: Option<i64>,
    stacks: Box<dyn SleepStacks>,
    main_pid: Option<u32>,
    book: Book,
    /// Columns beside the book's rows.
    rows: Vec<Sleep>,
    /// Sleeps that go on, by tid and begin.
    open: HashMap<(u32, u64), usize>,
    round: u64,
    since_ns: i64,
    /// Number of stacks chosen since then, weighted as if no chance had been halved.
    chosen: f64,
    /// Time asleep of lost stacks up to then, nanoseconds.
    lost_before_ns: u64,
    every: f64,
    losses: Losses,
    /// Malformed records.
    malformed: Lost,
    /// Samples of tasks that are not registered yet.
    unknown: Lost,
}

/// Figures of a sleep beside its stack.
struct Sleep {
    slept_ns: Option<i64>,
    chance: f64,
    label: u32,
    query: u64,
    own: u32,
    began_ns: u64,
}

impl Sleeps {
    /// Reads about `hz` stacks a second, until `until_ns` or, if None, the end of the watch.
    pub fn new(
        stacks: Box<dyn SleepStacks>,
        hz: f64,
        until_ns: Option<i64>,
        main_pid: Option<i64>,
        tree: bool,
    ) -> Self {
        let sleeps = Self {
            hz,
            until_ns,
            stacks,
            main_pid: main_pid.map(|pid| pid as u32),
            book: Book::new(main_pid, tree),
            rows: Vec::new(),
            open: HashMap::new(),
            round: 0,
            since_ns: now_ns(),
            chosen: 0.0,
            lost_before_ns: 0,
            every: FIRST,
            losses: Losses::new(),
            malformed: Lost::default(),
            unknown: Lost::default(),
        };
        sleeps.stacks.pace(sleeps.every);
        sleeps
    }

    /// Adjusts the time that a stack stands for: the rate of stacks is about inversely proportional to it.
    fn pace(&mut self) {
        let now = now_ns();
        let ns = now - self.since_ns;
        if ns < ROUND_NS {
            return;
        }
        let wanted = self.hz * ns as f64 / 1e9;
        let (_, lost_ns) = self.stacks.lost();
        let lost = (lost_ns - self.lost_before_ns) as f64 / (self.every * UNIT_NS);
        let ratio = (self.chosen + lost) / wanted;
        self.every = (self.every * ratio.clamp(0.5, FASTEST)).clamp(LEAST, MOST);
        (self.since_ns, self.chosen, self.lost_before_ns) = (now, 0.0, lost_ns);
        self.stacks.pace(self.every);
    }

    fn asleep(&mut self, raw: &Asleep) {
        if self
            .until_ns
            .is_some_and(|until_ns| raw.began_ns as i64 > until_ns)
        {
            return;
        }
        let halvings = 2f64.powi(raw.halved.min(63) as i32);
        self.chosen += halvings;
        let stands_ns = (self.every * UNIT_NS * halvings) as u64;
        let Some(sample) = sample(raw) else {
            self.malformed.add(stands_ns);
            return;
        };
        if let Some(main) = self.main_pid.filter(|&main| main != raw.tgid) {
            let (pid, tid) = (raw.tgid, raw.tgid);
            self.book.begin(&Record::Fork {
                pid,
                parent: main,
                tid,
            });
        }
        self.book.take(&Record::Sample(sample), 0, self.round);
        if self.book.rows.len() == self.rows.len() {
            self.unknown.add(stands_ns);
            return;
        }
        self.open.insert((raw.tid, raw.began_ns), self.rows.len());
        self.rows.push(Sleep {
            slept_ns: None,
            chance: (raw.chance as f64 / 2f64.powi(64)).sqrt(),
            label: raw.label,
            query: raw.query,
            own: raw.own,
            began_ns: raw.began_ns,
        });
    }

    fn woken(&mut self, raw: &Woken) {
        if let Some(at) = self.open.remove(&(raw.tid, raw.began_ns)) {
            self.rows[at].slept_ns = Some(raw.slept_ns as i64);
        }
    }

    /// Returns whether a sleep's end is known, or it goes on.
    fn whole(&self, at: usize) -> bool {
        let sleep = &self.rows[at];
        let tid = self.book.lives[self.book.rows[at].life as usize].tid;
        sleep.slept_ns.is_some() || self.stacks.under_way(sleep.own, tid, sleep.began_ns)
    }

    fn samples(&self) -> raw::SleepSamples {
        let whole: Vec<usize> = (0..self.rows.len()).filter(|&at| self.whole(at)).collect();
        let rows = || whole.iter().map(|&at| &self.book.rows[at]);
        let lives = || rows().map(|r| &self.book.lives[r.life as usize]);
        let sleeps = || whole.iter().map(|&at| &self.rows[at]);
        let (mut classes, mut events) = (NullableTexts::default(), NullableTexts::default());
        for sleep in sleeps() {
            let name = (sleep.label != UNREAD)
                .then(|| self.stacks.names().name(sleep.label))
                .flatten();
            classes.push(name.as_ref().map(|(class, _)| &**class));
            events.push(name.as_ref().map(|(_, event)| &**event));
        }
        let status = |s: &Sleep| {
            let status = if s.label == UNREAD {
                self.stacks.unread()
            } else {
                Status::Ok
            };
            status.as_str()
        };
        let query = |s: &Sleep| (s.query != 0 && s.query != OTHERS).then_some(s.query as i64);
        raw::SleepSamples {
            t_ns: rows().map(|r| r.t_ns).collect(),
            slept_ns: sleeps().map(|s| s.slept_ns).collect(),
            chance: sleeps().map(|s| s.chance).collect(),
            session: lives().map(|l| l.who.as_ref()?.session).collect(),
            pid: lives().map(|l| i64::from(l.pid)).collect(),
            tid: lives().map(|l| i64::from(l.tid)).collect(),
            role: lives()
                .map(|l| l.who.as_ref().map_or("other", |w| &*w.role))
                .collect(),
            wait_class: classes,
            wait_event: events,
            label_status: sleeps().map(status).collect(),
            query_id: sleeps().map(query).collect(),
            query_status: sleeps().map(|_| self.stacks.statements()).collect(),
            stack: rows().map(|r| i64::from(r.stack)).collect(),
            cut: rows().map(|r| r.cut).collect(),
        }
    }
}

impl Profiler for Sleeps {
    fn watch(&mut self, task: &Arc<Task>) {
        if !task.gone() {
            self.drain();
            self.book.watch(task);
        }
    }

    fn drain(&mut self) {
        self.round += 1;
        while let Some(event) = self.stacks.take() {
            match event {
                SleepEvent::Asleep(raw) => self.asleep(&raw),
                SleepEvent::Woken(raw) => self.woken(&raw),
            }
        }
        self.pace();
        let (count, asleep_ns) = self.stacks.lost();
        let mut malformed = self.malformed;
        malformed.count += self.stacks.malformed();
        self.losses.count([
            ("lost", Lost { count, asleep_ns }),
            ("malformed", malformed),
            ("of tasks not known yet", self.unknown),
        ]);
    }

    fn tables(&self) -> Vec<Table> {
        let [stack, position, frame] = stacks(&self.book);
        let stacks = raw::SleepStacks {
            stack,
            position,
            frame,
        };
        let raw::ProfileFrames {
            frame,
            function,
            module,
            path,
            address,
            source,
            kind,
        } = frames(&self.book, kernel_symbols());
        let frames = raw::SleepFrames {
            frame,
            function,
            module,
            path,
            address,
            source,
            kind,
        };
        vec![
            self.samples().into(),
            stacks.into(),
            frames.into(),
            self.losses.sleep_rows().into(),
        ]
    }

    fn status(&self) -> (String, String) {
        let counts = &self.book.counts;
        let (lost, taken) = (self.losses.total(), self.rows.len());
        let (status, limited) = self.losses.status(taken);
        let cut = counts.cut;
        let detail = format!(
            "sleeps chosen by their expected length, about {} a second; {taken} stacks, {lost} lost; user stacks by \
             DWARF (.eh_frame), {} with frame pointers; {cut} cut",
            self.hz, counts.pointers
        );
        let hidden = kernel_symbols().is_none().then(|| KERNEL_HIDDEN.to_owned());
        let closed = (counts.closed > 0).then(|| {
            format!(
                "{} processes whose memory map may not be read: give dbdyno CAP_SYS_PTRACE",
                counts.closed
            )
        });
        let words: Vec<String> = [Some(detail), limited, hidden, closed]
            .into_iter()
            .flatten()
            .collect();
        (status.as_str().to_owned(), words.join("; "))
    }
}

/// Returns the record as the sample that a clock would have taken, or None if it is malformed.
fn sample(raw: &Asleep) -> Option<Sample<'_>> {
    let [fp, lr, sp, pc] = raw.registers;
    let kernel = chain(&raw.kernel, raw.kernel_bytes);
    let first = sp as usize % PAGE;
    let end = (raw.pages as usize * PAGE).max(first);
    Some(Sample {
        kernel: true,
        pid: raw.tgid,
        tid: raw.tid,
        t_ns: raw.began_ns,
        cpu: raw.cpu,
        kernel_chain: kernel[own_frames(kernel)..].to_vec(),
        user_chain: chain(&raw.user, raw.user_bytes).to_vec(),
        registers: (sp != 0).then(|| registers(fp, lr, sp, pc)),
        stack: raw.memory.get(first..end)?,
    })
}

fn chain(addresses: &[u64], bytes: i32) -> &[u64] {
    let taken = usize::try_from(bytes).unwrap_or(0) / size_of::<u64>();
    &addresses[..taken.min(addresses.len())]
}

/// Returns the number of frames at the leaf that are the trace's own.
fn own_frames(kernel: &[u64]) -> usize {
    let named = |address: &u64| {
        kernel_symbols()?
            .find(address.wrapping_sub(1))
            .map(|s| s.name == SCHEDULER)
    };
    kernel.iter().position(|a| named(a) == Some(true)).unwrap_or(0)
}
