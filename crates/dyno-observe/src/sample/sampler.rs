//! The thread that samples activity: asks the server, then at once reads R/S/D of each task it named.

use std::sync::Arc;

use dyno_model::{ActivityProbe, ActivityRow, BlockedRow, Bracket, EndedTask, TaskId, now_ns, thread_cpu_ns};

use crate::read::file::Buffer;
use crate::read::freezers::{Freezers, LOCATED_AT_ONCE};
use crate::read::parse::boot_ticks;
use crate::read::task::Task;
use crate::sample::blocked::Turns;
use crate::sample::pace::Sampling;
use crate::sample::rows::{Taken, TaskState};
use crate::shared::Shared;
use crate::signal::lock;
use crate::status::Status;

/// Number of failures in a row after which the server is not asked again.
const FAILURES: u32 = 3;

pub struct Sampler {
    shared: Arc<Shared>,
    ask: Box<dyn ActivityProbe>,
    rows: Vec<ActivityRow>,
    tasks: Vec<Arc<Task>>,
    states: Vec<TaskState>,
    fresh: Vec<Arc<Task>>,
    buffer: Buffer,
    freezers: Freezers,
    failures: u32,
    asked: Option<Arc<Task>>,
    blocked: Vec<BlockedRow>,
    ended: Vec<EndedTask>,
    turns: Turns,
}

impl Sampler {
    pub fn new(shared: Arc<Shared>, ask: Box<dyn ActivityProbe>) -> Self {
        let pace = shared.spec.sql_pace();
        let asked = shared.asked.and_then(|id| lock(&shared.roster).task(id));
        Self {
            shared,
            ask,
            rows: Vec::new(),
            tasks: Vec::new(),
            states: Vec::new(),
            fresh: Vec::new(),
            buffer: Buffer::default(),
            freezers: Freezers::new(LOCATED_AT_ONCE),
            failures: 0,
            asked,
            blocked: Vec::new(),
            ended: Vec::new(),
            turns: Turns::new(pace.budget, pace.interval_ns),
        }
    }

    /// Samples until the end.
    pub fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        shared.raise_priority();
        if !shared.sees_ends()
            && let Some(went) = self.ask.follow_ends()
        {
            shared.set_ends_status(went);
        }
        shared.spec.sql_pace().run(&shared.signal, &mut self);
        self.keep_ended();
    }

    /// Keeps rows of tasks that have ended.
    fn keep_ended(&mut self) {
        self.ask.ended(&mut self.ended);
        if !self.ended.is_empty() {
            let mut rows = lock(&self.shared.tasks);
            self.ended.iter().for_each(|task| rows.ended(task));
        }
        if let Some(lost) = self.ask.ends_lost() {
            self.shared.set_ends_status(Err(lost));
        }
    }

    fn read_states(&mut self) {
        let named_ticks = boot_ticks();
        self.tasks.clear();
        let mut roster = lock(&self.shared.roster);
        self.tasks
            .extend(self.rows.iter().map(|row| roster.meet(row, named_ticks)));
        drop(roster);
        self.states.clear();
        self.freezers.look(now_ns());
        for (task, row) in self.tasks.iter_mut().zip(&self.rows) {
            let mut state = task.state(&mut self.buffer);
            if state == Err(Status::Vanished) {
                // it has ended, and the server may have spoken of another that got its number
                *task = lock(&self.shared.roster).meet(row, named_ticks);
                state = task.state(&mut self.buffer);
            }
            let task_ns = now_ns();
            self.states.push(TaskState {
                task_ns: state.is_ok().then_some(task_ns),
                state: state.map(|s| self.freezers.state(task.pid, s, task_ns)),
            });
        }
    }

    /// Asks for the locks that sessions wait for, if this sample met a session in such a wait.
    fn ask_blocked(&mut self, sample: i64) {
        let mut met = self.tasks.iter().zip(&self.rows);
        let session = |task: &Task, row: &ActivityRow| task.who.session.is_some() || row.leader_pid.is_some();
        if !met.any(|(task, row)| session(task, row) && self.ask.waits_for_lock(row)) || !self.turns.due() {
            return;
        }
        let cost_ns = self.spent_ns();
        let (asked, answer) = Bracket::around(|| self.ask.blocked(&mut self.blocked));
        if self.shared.signal.stopped() {
            return;
        }
        let answered = answer.is_ok();
        match answer {
            Ok(()) => {
                let tasks = self.blockers();
                lock(&self.shared.blocked).push(sample, asked, &self.blocked, &tasks);
            }
            Err(error) => lock(&self.shared.blocked).failed(error.to_string()),
        }
        let cost_ns = self.spent_ns() - cost_ns;
        self.turns.spend(cost_ns, answered);
    }

    /// Returns the state of each blocker's task, read at once after the answer.
    fn blockers(&mut self) -> Vec<TaskState> {
        let roster = lock(&self.shared.roster);
        let tasks: Vec<_> = self
            .blocked
            .iter()
            .map(|row| row.blocker().and_then(|pid| roster.task(TaskId::main(pid))))
            .collect();
        drop(roster);
        let read = |task: Option<Arc<Task>>| {
            let (state, pid) =
                task.map_or((Err(Status::Vanished), 0), |t| (t.state(&mut self.buffer), t.pid));
            let task_ns = now_ns();
            TaskState {
                task_ns: state.is_ok().then_some(task_ns),
                state: state.map(|s| self.freezers.state(pid, s, task_ns)),
            }
        };
        tasks.into_iter().map(read).collect()
    }

    /// Returns the CPU time of this thread and of the server's process that it asks. For a server elsewhere only the
    /// former is known.
    fn spent_ns(&mut self) -> i64 {
        let server_ns = self.asked.as_ref().and_then(|task| task.run_ns(&mut self.buffer));
        thread_cpu_ns() + server_ns.unwrap_or(0)
    }

    fn keep(&mut self, number: i64, sql: Bracket) {
        let mut samples = lock(&self.shared.samples);
        for ((row, task), state) in self.rows.iter().zip(&self.tasks).zip(&self.states) {
            samples.push(number, sql, row, task, *state);
        }
    }
}

impl Sampling for Sampler {
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
        let end_ns = now_ns();
        if status == Status::Ok {
            self.ask_blocked(number);
        }
        let taken = Taken {
            sample: number,
            due_ns,
            start_ns,
            end_ns,
            status,
        };
        lock(&self.shared.samples).taken(taken);
        self.shared.register_fresh(&mut self.fresh);
        self.keep_ended();
    }

    /// Notes a lost sample: the server had not yet answered the previous one.
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

    /// Leaves out the cost of the question for blocked sessions, which has a budget of its own.
    fn cost_ns(&mut self) -> i64 {
        self.spent_ns() - self.turns.cost_ns
    }

    fn over(&self) -> bool {
        self.failures >= FAILURES
    }
}
