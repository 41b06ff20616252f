//! The thread that samples the wait event word: of each process of the server the word, from its memory, and
//! at once its task's R/S/D. Nothing is asked of the server, nothing is allocated for a sample but its rows.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, TryLockError};

use dyno_model::{now_ns, thread_cpu_ns};

use crate::read::file::Buffer;
use crate::read::freezers::{Freezers, LOCATED_AT_ONCE};
use crate::read::task::Task;
use crate::sample::memory_rows::{MemoryRows, Row};
use crate::sample::pace::Sampling;
use crate::sample::rows::Taken;
use crate::shared::Shared;
use crate::signal::lock;
use crate::status::Status;
use crate::word::{self, Right, Word, WordFinder, WordSpec};

/// Time between two searches for a process while there is none to sample.
const PATIENCE_NS: i64 = 100_000_000;

pub struct Memory {
    shared: Arc<Shared>,
    finder: WordFinder,
    seats: Vec<Seat>,
    listed: Vec<Arc<Task>>,
    /// Number of the roster's changes when it was listed last.
    changes: u64,
    /// Rows and samples not handed over yet.
    rows: Vec<Row>,
    taken: Vec<Taken>,
    /// Whether the latest sample brought rows.
    has_rows: bool,
    buffer: Buffer,
    freezers: Freezers,
}

/// A process of the server; one that refused has no word.
struct Seat {
    task: Arc<Task>,
    /// Number of its task in the rows.
    number: u32,
    word: Option<Word>,
    /// Whether its word was read once.
    read: bool,
}

impl Memory {
    pub fn new(shared: Arc<Shared>, spec: &WordSpec) -> Self {
        Self {
            shared,
            finder: WordFinder::new(&spec.program, &spec.symbol),
            seats: Vec::new(),
            listed: Vec::new(),
            changes: 0,
            rows: Vec::new(),
            taken: Vec::new(),
            has_rows: false,
            buffer: Buffer::default(),
            freezers: Freezers::new(LOCATED_AT_ONCE),
        }
    }

    /// Samples until the end.
    pub fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        shared.raise_priority();
        shared.spec.memory_pace().run(&shared.signal, &mut self);
        self.hand_over(&mut lock(&shared.memory));
    }

    /// Adds processes that came and removes those that went. While another thread holds the roster, the previous list
    /// is used.
    fn seat(&mut self) {
        let roster = match self.shared.roster.try_lock() {
            Ok(roster) => roster,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if self.seats.is_empty() => lock(&self.shared.roster),
            Err(TryLockError::WouldBlock) => return,
        };
        if roster.changes() == self.changes {
            return;
        }
        self.changes = roster.changes();
        roster.list(&mut self.listed);
        drop(roster);
        let mut seated: HashMap<i64, Seat> = self.seats.drain(..).map(|s| (s.task.tid, s)).collect();
        // the main process waits for nothing that the word would name
        let main = self.shared.spec.main_pid;
        let wanted = |t: &Arc<Task>| t.of_server() && !t.gone() && Some(t.pid) != main;
        for task in self.listed.drain(..).filter(wanted) {
            let seat = match seated.remove(&task.tid) {
                Some(seat) if Arc::ptr_eq(&seat.task, &task) => seat,
                _ => Seat::new(task, &mut self.finder, &self.shared),
            };
            self.seats.push(seat);
        }
    }

    fn read(&mut self, sample: i64) {
        self.freezers.look(now_ns());
        for seat in &mut self.seats {
            let Some(word) = &mut seat.word else { continue };
            let before_ns = now_ns();
            let code = word.read();
            let after_ns = now_ns();
            let code = match code {
                Ok(code) => code,
                Err(error) => {
                    seat.refuse(&error, &self.shared);
                    continue;
                }
            };
            // the word was of this very process if its descriptor is still good now
            let state = seat.task.state(&mut self.buffer);
            if state == Err(Status::Vanished) {
                seat.word = None;
                continue;
            }
            seat.count(&self.shared);
            let task_ns = now_ns();
            self.rows.push(Row {
                sample: sample as u32,
                task: seat.number,
                before_ns,
                after_ns,
                task_ns,
                code,
                state: state.map(|s| self.freezers.state(seat.task.pid, s, task_ns)),
            });
        }
    }

    /// Keeps a sample. It does not wait for the lock, whose holder, a reader of the tables, may have no CPU for long.
    fn keep(&mut self, sample: i64, due_ns: i64, start_ns: i64, status: Status) {
        self.taken.push(Taken {
            sample,
            due_ns,
            start_ns,
            end_ns: now_ns(),
            status,
        });
        let shared = Arc::clone(&self.shared);
        if let Ok(mut rows) = shared.memory.try_lock() {
            self.hand_over(&mut rows);
        }
    }

    fn hand_over(&mut self, rows: &mut MemoryRows) {
        rows.append(&mut self.taken, &mut self.rows);
    }
}

impl Seat {
    fn new(task: Arc<Task>, finder: &mut WordFinder, shared: &Shared) -> Self {
        let number = lock(&shared.memory).task_number(&task);
        let word = match task.word_address(|| finder.address(task.pid)) {
            Ok(variable) => Some(Word::new(task.pid, variable)),
            Err(refusal) => {
                lock(&shared.word).refuse(refusal);
                None
            }
        };
        Self {
            task,
            number,
            word,
            read: false,
        }
    }

    /// Notes why a word could not be read. A pointer that leads nowhere may be transient, while the process starts or
    /// ends.
    fn refuse(&mut self, error: &io::Error, shared: &Shared) {
        let refusal = word::refusal(self.task.pid, error, Right::Read);
        if refusal.status == Status::Lost {
            lock(&shared.word).note_lost(refusal);
        } else {
            self.word = None;
            lock(&shared.word).refuse(refusal);
        }
    }

    fn count(&mut self, shared: &Shared) {
        if !self.read {
            self.read = true;
            lock(&shared.word).count_read();
        }
    }
}

impl Sampling for Memory {
    fn sample(&mut self, number: i64, due_ns: i64) {
        let start_ns = now_ns();
        self.seat();
        let before = self.rows.len();
        self.read(number);
        self.has_rows = self.rows.len() > before;
        if self.has_rows {
            self.keep(number, due_ns, start_ns, Status::Ok);
        }
    }

    /// Notes a lost sample: this thread got no CPU in time.
    fn skip(&mut self, number: i64, due_ns: i64) {
        self.keep(number, due_ns, now_ns(), Status::Lost);
    }

    fn cost_ns(&mut self) -> i64 {
        thread_cpu_ns()
    }

    fn patience(&self) -> i64 {
        if self.has_rows {
            1
        } else {
            PATIENCE_NS / self.shared.spec.memory_pace().interval_ns
        }
    }
}
