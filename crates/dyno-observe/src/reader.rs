//! The thread that reads what the operating system says: tasks, groups, host, at t0, at t1 and between.
//! Apart from the sampler, so that a server that is slow to answer cannot delay the reads at t0 and t1.

use std::sync::Arc;

use dyno_model::now_ns;

use crate::file::Buffer;
use crate::parse::ns_per_tick;
use crate::schedstat::SchedStat;
use crate::schedule::Reads;
use crate::shared::Shared;
use crate::signal::lock;
use crate::task::Task;

pub struct Reader {
    shared: Arc<Shared>,
    tasks: Vec<Arc<Task>>,
    fresh: Vec<Arc<Task>>,
    /// Of the tasks, as read last.
    scheds: Vec<Option<SchedStat>>,
    buffer: Buffer,
    ns_per_tick: i64,
}

impl Reader {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            tasks: Vec::new(),
            fresh: Vec::new(),
            scheds: Vec::new(),
            buffer: Buffer::default(),
            ns_per_tick: ns_per_tick(),
        }
    }

    /// A read at once, reads when they are due, and a last one.
    pub fn run(mut self, reads: Reads) {
        let mut last_ns = now_ns();
        self.read(true);
        self.shared.signal.tell(|s| s.ready += 1);
        loop {
            let due_ns = reads.next(last_ns, now_ns());
            let stop = self.shared.signal.sleep_until(due_ns);
            self.read(stop || due_ns == reads.t0_ns || due_ns == reads.t1_ns);
            if stop {
                return;
            }
            last_ns = due_ns;
        }
    }

    /// `ends`: this is one of the reads from which differences are taken.
    fn read(&mut self, ends: bool) {
        self.read_tasks(ends);
        self.shared.tell_tracer(&mut self.fresh);
        self.shared.read_tracer();
        lock(&self.shared.groups).read(&mut self.buffer);
        if let Some(host) = &self.shared.host {
            lock(host).read(&mut self.buffer);
        }
    }

    fn read_tasks(&mut self, ends: bool) {
        let mut roster = lock(&self.shared.roster);
        roster.meet_ourselves();
        roster.list(&mut self.tasks);
        drop(roster);
        let mut rows = lock(&self.shared.tasks);
        self.scheds.clear();
        for task in &self.tasks {
            let reading = task.read(&mut self.buffer, self.ns_per_tick);
            rows.push(task, &reading);
            self.scheds.push(reading.sched);
        }
        // after all the others, as it takes long
        let last = self.tasks.len().saturating_sub(1);
        for (number, (task, sched)) in self.tasks.iter().zip(&self.scheds).enumerate() {
            if task.first_time() || ends {
                rows.switches(last - number, task.switches(&mut self.buffer, *sched));
            }
        }
        drop(rows);
        lock(&self.shared.roster).forget_gone(&self.tasks);
    }
}
