//! The thread that reads what the operating system says: tasks, groups, host, at t0, at t1 and between.
//! Apart from the sampler, so that a server that is slow to answer cannot delay the reads at t0 and t1.

use std::collections::HashSet;
use std::sync::Arc;

use dyno_model::now_ns;

use crate::read::file::Buffer;
use crate::read::membership::Memberships;
use crate::read::parse::ns_per_tick;
use crate::read::schedstat::SchedStat;
use crate::read::task::Task;
use crate::schedule::Reads;
use crate::shared::Shared;
use crate::signal::lock;
use crate::status::Status;

/// A task that is ready to run at t0 or t1 is read again each so often, until its figures have moved: the kernel
/// books a wait in the run queue when it ends, and one that a quota throttles may wait for several periods.
const AGAIN_NS: i64 = 5_000_000;
/// Longest time for that, so that no other read of all tasks lies in between.
const SETTLING_NS: i64 = 450_000_000;

/// Running or ready to: `proc_pid_stat(5)`.
const READY: char = 'R';

pub struct Reader {
    shared: Arc<Shared>,
    tasks: Vec<Arc<Task>>,
    fresh: Vec<Arc<Task>>,
    /// State letters of the tasks in the latest read.
    scheds: Vec<Option<SchedStat>>,
    /// Tasks whose figures may be old, as read at t0 or t1, and until when they are read again.
    unsettled: Vec<(Arc<Task>, SchedStat)>,
    settling_until_ns: i64,
    memberships: Memberships,
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
            unsettled: Vec::new(),
            settling_until_ns: 0,
            memberships: Memberships::default(),
            buffer: Buffer::default(),
            ns_per_tick: ns_per_tick(),
        }
    }

    /// Reads at once, then whenever a read is due, and a last time.
    pub fn run(mut self, reads: Reads) {
        let mut last_ns = now_ns();
        self.read(true);
        self.shared.signal.update(|s| s.ready += 1);
        loop {
            let due_ns = reads.next(last_ns, now_ns());
            let stop = self.settle(due_ns) || self.shared.signal.sleep_until(due_ns);
            self.read(stop || due_ns == reads.t0_ns || due_ns == reads.t1_ns);
            if stop {
                return;
            }
            last_ns = due_ns;
        }
    }

    /// Reads tasks whose figures were old again, before `due_ns`. Returns whether the threads shall end.
    fn settle(&mut self, due_ns: i64) -> bool {
        while !self.unsettled.is_empty() {
            let next_ns = now_ns() + AGAIN_NS;
            if next_ns >= due_ns.min(self.settling_until_ns) {
                self.unsettled.clear();
                return false;
            }
            if self.shared.signal.sleep_until(next_ns) {
                return true;
            }
            let mut rows = lock(&self.shared.tasks);
            let (buffer, ns_per_tick) = (&mut self.buffer, self.ns_per_tick);
            let mut ended = Vec::new();
            self.unsettled.retain(|(task, before)| {
                let reading = task.read(buffer, ns_per_tick);
                let same = reading.sched == Some(*before) && reading.stat.is_some_and(|s| s.state == READY);
                if !same {
                    rows.push(task, &reading);
                }
                if reading.status == Status::Vanished {
                    ended.push(Arc::clone(task)); // its last row is written
                }
                same
            });
            drop(rows);
            lock(&self.shared.roster).forget_gone(&ended);
        }
        false
    }

    /// Reads all sources. `ends` is whether differences are taken from this read.
    fn read(&mut self, ends: bool) {
        self.read_tasks(ends);
        self.shared.register_fresh(&mut self.fresh);
        self.shared.read_tracer(ends);
        lock(&self.shared.groups).read(0, &mut self.buffer);
        if let Some(host) = &self.shared.host {
            lock(host).read(&mut self.buffer);
        }
        lock(&self.shared.devices).read(&mut self.buffer);
        self.read_memberships(ends);
    }

    /// Looks for sessions in groups that are not read yet, and reads these from now on: after all else, as it takes
    /// long and nothing depends on the instant.
    fn read_memberships(&mut self, ends: bool) {
        if !self.shared.spec.os || !lock(&self.shared.groups).has_server_groups() {
            return;
        }
        let met = self.memberships.look(&self.tasks, ends, &mut self.buffer);
        let mut groups = lock(&self.shared.groups);
        if ends {
            let sessions: HashSet<i64> = self
                .tasks
                .iter()
                .filter(|t| t.who.session.is_some())
                .map(|t| t.pid)
                .collect();
            groups.find_strangers(|pid| sessions.contains(&pid), &mut self.buffer);
        }
        let first = groups.len();
        groups.add(met);
        groups.read(first, &mut self.buffer);
    }

    fn read_tasks(&mut self, ends: bool) {
        let mut roster = lock(&self.shared.roster);
        roster.meet_ourselves();
        roster.list(&mut self.tasks);
        drop(roster);
        let mut rows = lock(&self.shared.tasks);
        self.scheds.clear();
        self.unsettled.clear();
        self.settling_until_ns = now_ns() + SETTLING_NS;
        for task in &self.tasks {
            let reading = task.read(&mut self.buffer, self.ns_per_tick);
            rows.push(task, &reading);
            self.scheds.push(reading.sched);
            let ready = ends && task.of_server() && reading.stat.is_some_and(|s| s.state == READY);
            if let Some(sched) = reading.sched.filter(|_| ready) {
                self.unsettled.push((Arc::clone(task), sched));
            }
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
