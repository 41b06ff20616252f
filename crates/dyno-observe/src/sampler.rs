//! The thread that samples activity: asks the server, then at once reads R/S/D of each task it named.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;

use dyno_model::{ActivityProbe, ActivityRow, Bracket, now_ns};

use crate::file::Buffer;
use crate::sample_rows::{Taken, TaskState};
use crate::schedule::{Budget, Instants};
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
    asked: Option<Arc<Task>>,
}

impl Sampler {
    pub fn new(shared: Arc<Shared>, ask: Box<dyn ActivityProbe>) -> Self {
        let asked = shared.asked.and_then(|pid| lock(&shared.roster).task(pid));
        let (rows, tasks, states, buffer) = (Vec::new(), Vec::new(), Vec::new(), Buffer::default());
        Self {
            shared,
            ask,
            rows,
            tasks,
            states,
            buffer,
            failures: 0,
            asked,
        }
    }

    /// Sample 0 at once, then one in each interval until the end.
    pub fn run(mut self) {
        let base_ns = now_ns();
        let spec = &self.shared.spec;
        let interval_ns = spec.sample_interval_ns();
        let cpus = available_parallelism().map_or(1, NonZero::get);
        let mut budget = Budget::new(spec.sample_budget, cpus, interval_ns);
        let mut instants = Instants::new(base_ns + interval_ns, interval_ns, spec.seed);
        self.sample(0, base_ns);
        self.shared.signal.tell(|s| s.ready += 1);
        let mut stretch = 1; // the first sample is a cold one: it says little of the cost
        for number in 1.. {
            let due_ns = instants.next(stretch);
            if self.shared.signal.sleep_until(due_ns) || self.failures >= FAILURES {
                return;
            }
            if now_ns() - due_ns > interval_ns {
                self.skip(number, due_ns);
            } else {
                let cost_ns = self.cost_ns();
                self.sample(number, due_ns);
                stretch = budget.stretch(self.cost_ns() - cost_ns);
            }
        }
    }

    /// CPU time of sampling up to now: this thread's, and that of the server's process it asks. Of a server
    /// elsewhere ours alone is known.
    fn cost_ns(&mut self) -> i64 {
        let server_ns = self.asked.as_ref().and_then(|task| task.run_ns(&mut self.buffer));
        thread_cpu_ns() + server_ns.unwrap_or(0)
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

fn thread_cpu_ns() -> i64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is valid for writing; the clock id always exists on Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}
