//! The CPU profile as a [`Profiler`] of a watch.

use std::sync::{Arc, OnceLock};

use dyno_model::{Table, now_ns};
use dyno_observe::task::Task;
use dyno_observe::{Granted, Profiler, Refusal, Status, WordSpec};

use crate::book::{Book, Counts};
use crate::events::{self, CLOCK};
use crate::kallsyms::Kallsyms;
use crate::labels::Labels;
use crate::losses::{Losses, Lost};
use crate::records::{self, kind};
use crate::rights;
use crate::ring::Ring;
use crate::tables::tables;

/// Specification of a profile.
#[derive(Debug, Clone)]
pub struct Options {
    /// Samples a second of each CPU.
    pub hz: f64,
    /// End of sampling, `CLOCK_MONOTONIC`, or None for the end of the watch.
    pub until_ns: Option<i64>,
    /// The server's main process, whose children are the server's tasks from their birth.
    pub main_pid: Option<i64>,
    /// Whether their descendants are its tasks, too.
    pub tree: bool,
    /// The wait event word of the server's processes.
    pub word: Option<WordSpec>,
}

/// Samples a second.
const MOST_HZ: f64 = 1000.0;

/// Reasons of losses.
const LOST: &str = "lost";
const MALFORMED: &str = "malformed";
const MISSED: &str = "missed ticks";

struct Profile {
    options: Options,
    rings: Vec<Ring>,
    cpus: usize,
    book: Book,
    labels: Labels,
    /// Number of times the rings were read.
    round: u64,
    /// Malformed records.
    malformed: u64,
    losses: Losses,
}

/// Starts the clocks.
///
/// # Errors
/// Not permitted or not supported, and the cure.
pub fn open(options: Options) -> Granted<Box<dyn Profiler>> {
    if !(options.hz > 0.0 && options.hz <= MOST_HZ) {
        let detail = format!(
            "{} samples a second: more than 0 and at most {MOST_HZ}",
            options.hz
        );
        return Err(Refusal::new(Status::NotSupported, detail));
    }
    let rings = events::open(options.hz)?;
    let labels = Labels::new(&rings, options.main_pid, options.tree, options.word.as_ref());
    events::start(&rings);
    Ok(Box::new(Profile {
        cpus: rings.len(),
        rings,
        book: Book::new(options.main_pid, options.tree),
        options,
        labels,
        round: 0,
        malformed: 0,
        losses: Losses::new(),
    }))
}

impl Profiler for Profile {
    fn watch(&mut self, task: &Arc<Task>) {
        if task.gone() {
            return;
        }
        self.drain(); // the end of an older task of this number comes first
        self.book.watch(task);
        self.labels.watch(task.pid);
    }

    fn drain(&mut self) {
        self.round += 1;
        let (book, round) = (&mut self.book, self.round);
        // a tree's tasks may have started on another CPU than what they start: until nothing is new
        let mut begun = usize::MAX;
        while begun != book.lives.len() {
            begun = book.lives.len();
            for ring in &mut self.rings {
                ring.look(kind::FORK, |record| {
                    if let Some(record) = records::parse(record) {
                        book.begin(&record);
                    }
                });
            }
        }
        for (n, ring) in self.rings.iter_mut().enumerate() {
            let malformed = &mut self.malformed;
            let whole = ring.drain(|record| match records::parse(record) {
                Some(record) => book.take(&record, n, round),
                None => *malformed += 1,
            });
            *malformed += u64::from(!whole);
        }
        for pid in book.finish() {
            self.labels.end(pid);
        }
        self.count_losses();
        let now_ns = now_ns();
        if self.options.until_ns.is_some_and(|until_ns| now_ns >= until_ns) {
            self.rings.clear(); // the clocks stop
            self.book.stop(now_ns);
        }
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = tables(&self.book, kernel_symbols(), &self.labels);
        tables.push(self.losses.profile_rows().into());
        tables
    }

    fn status(&self) -> (String, String) {
        let taken = self.book.rows.len();
        let detail = self.detail(taken);
        let (status, limited) = self.losses.status(taken);
        let hidden = kernel_symbols()
            .is_none()
            .then(|| rights::KERNEL_HIDDEN.to_owned());
        let unopened = self.book.objects.unopened();
        let closed = (!unopened.is_empty()).then(|| {
            format!(
                "not readable, so without functions: {}; give dbdyno CAP_SYS_PTRACE",
                unopened.join(", ")
            )
        });
        let words: Vec<String> = [Some(detail), limited, self.unlabelled(), hidden, closed]
            .into_iter()
            .flatten()
            .collect();
        (status.as_str().to_owned(), words.join("; "))
    }
}

impl Profile {
    /// Ends a round of the losses.
    fn count_losses(&mut self) {
        let (rings, labels) = (&self.rings, &self.labels);
        let counted = rings
            .iter()
            .enumerate()
            .filter_map(|(n, ring)| Some(ring.lost()? + labels.lost(n)));
        // the kernel writes a record of a loss with the next one that finds room: the last ones are not in it
        let unrecorded = counted.sum::<u64>();
        let missed_ticks = self.book.held_ns(now_ns()) as f64 * self.options.hz / 1e9;
        self.losses.count([
            (LOST, Lost::from(self.book.counts.lost.max(unrecorded))),
            (MALFORMED, Lost::from(self.malformed)),
            (MISSED, Lost::from(missed_ticks as u64)),
        ]);
    }

    /// Returns the clock, the ways of unwinding, and what is missing, in words.
    fn detail(&self, samples: usize) -> String {
        let (options, cpus) = (&self.options, self.cpus);
        let Counts {
            throttled,
            cut,
            pointers,
            user,
            ending,
            ended,
            closed,
            ..
        } = self.book.counts;
        let lost = self.losses.total();
        let mut words = vec![
            format!("{CLOCK}, {} Hz on each of {cpus} CPUs", options.hz),
            format!("{samples} samples, {lost} lost"),
            format!(
                "user stacks: {} by DWARF (.eh_frame), {pointers} with frame pointers; {cut} cut",
                user - pointers.min(user)
            ),
        ];
        let counted = [
            (
                throttled,
                "times held back by the kernel (kernel.perf_event_max_sample_rate)",
            ),
            (ending, "samples of processes that were ending"),
            (ended, "processes had ended before their memory map was read"),
            (
                closed,
                "processes whose memory map may not be read: give dbdyno CAP_SYS_PTRACE",
            ),
        ];
        words.extend(
            counted
                .iter()
                .filter(|(n, _)| *n > 0)
                .map(|(n, what)| format!("{n} {what}")),
        );
        words.join("; ")
    }

    /// Returns why samples lack wait events or statements, if they do.
    fn unlabelled(&self) -> Option<String> {
        if let Some(refusal) = self.labels.refusal() {
            return Some(format!("samples have no wait event: {}", refusal.detail));
        }
        let (status, detail) = self.labels.statements();
        (status != Status::Ok.as_str()).then(|| format!("samples have no statement: {detail}"))
    }
}

/// Returns the kernel's symbols, or None if they are hidden. They are 10 MB, so they are read once a process.
pub fn kernel_symbols() -> Option<&'static Kallsyms> {
    static SYMBOLS: OnceLock<Option<Kallsyms>> = OnceLock::new();
    let read = || Kallsyms::parse(&std::fs::read_to_string("/proc/kallsyms").ok()?);
    SYMBOLS.get_or_init(read).as_ref()
}
