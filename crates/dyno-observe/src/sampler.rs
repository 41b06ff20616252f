//! The thread that samples activity: asks the server, then at once reads R/S/D of each task it named.

use std::sync::Arc;

use dyno_model::{ActivityProbe, ActivityRow, Bracket, now_ns};

use crate::file::Buffer;
use crate::sample_rows::{Taken, TaskState};
use crate::schedule::Instants;
use crate::signal::lock;
use crate::status::Status;
use crate::task::Task;
use crate::watch::Shared;

/// So many failures in a row, and the server is not asked again.
const FAILURES: u32 = 3;

pub struct Sampler {
    shared: Arc<Shared>,
    ask: Box<dyn ActivityProbe>,
    rows: Vec<ActivityRow>,
    tasks: Vec<Arc<Task>>,
    states: Vec<TaskState>,
    buffer: Buffer,
    failures: u32,
}

impl Sampler {
    pub fn new(shared: Arc<Shared>, ask: Box<dyn ActivityProbe>) -> Self {
        let (rows, tasks, states, buffer) = (Vec::new(), Vec::new(), Vec::new(), Buffer::default());
        Self {
            shared,
            ask,
            rows,
            tasks,
            states,
            buffer,
            failures: 0,
        }
    }

    /// Sample 0 at once, then one in each interval until the end.
    pub fn run(mut self) {
        let base_ns = now_ns();
        let interval_ns = self.shared.spec.sample_interval_ns();
        self.sample(0, base_ns);
        self.shared.signal.tell(|s| s.ready += 1);
        let mut instants = Instants::new(base_ns + interval_ns, interval_ns, self.shared.spec.seed);
        for number in 1.. {
            let due_ns = instants.next();
            if self.shared.signal.sleep_until(due_ns) || self.failures >= FAILURES {
                return;
            }
            if now_ns() - due_ns > interval_ns {
                self.skip(number, due_ns);
            } else {
                self.sample(number, due_ns);
            }
        }
    }

    fn sample(&mut self, number: i64, due_ns: i64) {
        let start_ns = now_ns();
        let (sql, answer) = Bracket::around(|| self.ask.sample(&mut self.rows));
        if self.shared.signal.stopped() {
            return; // the tables may have been read
        }
        let status = match answer {
            Ok(()) => {
                self.failures = 0;
                self.read_states();
                self.keep(number, sql);
                Status::Ok
            }
            Err(error) => {
                self.failures += 1;
                self.shared.trouble(&error.to_string());
                Status::Lost
            }
        };
        let taken = Taken {
            sample: number,
            due_ns,
            start_ns,
            end_ns: now_ns(),
            status,
        };
        lock(&self.shared.samples).taken(taken);
    }

    fn read_states(&mut self) {
        self.tasks.clear();
        let mut roster = lock(&self.shared.roster);
        self.tasks.extend(self.rows.iter().map(|row| roster.meet(row)));
        drop(roster);
        self.states.clear();
        for task in &self.tasks {
            let state = task.state(&mut self.buffer);
            self.states.push(TaskState {
                task_ns: state.is_ok().then(now_ns),
                state,
            });
        }
    }

    fn keep(&mut self, number: i64, sql: Bracket) {
        let mut samples = lock(&self.shared.samples);
        for ((row, task), state) in self.rows.iter().zip(&self.tasks).zip(&self.states) {
            samples.push(number, sql, row, task, *state);
        }
    }

    /// Its interval has passed while the server was still at the one before: it did not answer in time.
    fn skip(&mut self, sample: i64, due_ns: i64) {
        let now = now_ns();
        let taken = Taken {
            sample,
            due_ns,
            start_ns: now,
            end_ns: now,
            status: Status::Lost,
        };
        lock(&self.shared.samples).taken(taken);
    }
}
