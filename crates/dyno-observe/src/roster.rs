//! The tasks to read, and the session or helper that each belongs to.

use std::collections::HashMap;
use std::sync::Arc;

use dyno_model::{ActivityRow, TaskId};

use crate::read::task::{Proof, Task, Who, sched_info};
use crate::spec::Spec;
use crate::status::Status;

/// Role of a client's backend that is not observed.
const OTHER: &str = "other";

/// The tasks known so far.
#[derive(Debug)]
pub struct Roster {
    os: bool,
    unseen: Status,
    /// Parent of the server's processes, or None if it is not checked, or they are a tree.
    parent: Option<i64>,
    sched_info: bool,
    /// Descriptors that may be kept open, and the limit that it comes from.
    budget: i64,
    limit: u64,
    /// Session by task. A session may have several tasks, at once or in turn.
    sessions: HashMap<TaskId, i64>,
    tasks: HashMap<TaskId, Arc<Task>>,
    /// In the order of meeting: the driver's few threads, then the sessions, so that they are read nearest to
    /// t0 and t1. To read thousands of sessions takes long where the driver has the CPUs.
    order: Vec<Arc<Task>>,
    roles: HashMap<String, Arc<str>>,
    /// Client backends become sessions.
    adopt: bool,
    next_session: i64,
    /// Tasks of the server that the tracer does not know yet.
    fresh: Vec<Arc<Task>>,
    /// Number of tasks that came or went.
    changes: u64,
}

impl Roster {
    /// Returns a roster of the tasks in the specification, and of `asked`, the server's process for our own questions.
    /// `budget` is the number of descriptors that may be kept open, of a `limit`.
    pub fn new(spec: &Spec, asked: Option<TaskId>, (limit, budget): (u64, i64)) -> Self {
        let mut roster = Self {
            os: spec.os,
            unseen: spec.unseen,
            parent: spec.main_pid.filter(|_| !spec.tree),
            sched_info: sched_info(),
            budget,
            limit,
            sessions: spec
                .sessions
                .iter()
                .map(|&(session, task)| (task, session))
                .collect(),
            tasks: HashMap::new(),
            order: Vec::new(),
            roles: HashMap::new(),
            adopt: spec.adopt,
            next_session: spec
                .sessions
                .iter()
                .map(|&(session, _)| session + 1)
                .max()
                .unwrap_or(0),
            fresh: Vec::new(),
            changes: 0,
        };
        for task in &spec.tasks {
            let who = roster.who(&task.role, None);
            let id = TaskId {
                pid: task.pid,
                tid: task.tid,
            };
            roster.add(id, who, true, Proof::default());
        }
        for &(session, id) in &spec.sessions {
            let who = roster.who("session", Some(session));
            roster.add_child(id, who, None);
        }
        if let Some(pid) = spec.main_pid {
            let who = roster.who("helper:main", None);
            roster.add(TaskId::main(pid), who, spec.os, Proof::default());
        }
        if let Some(id) = asked {
            let who = roster.who("dbdyno", None);
            roster.add_child(id, who, None);
        }
        roster
    }

    /// Returns the task of a backend that the server named before `named_ticks` (since boot). A pid that is used again
    /// is a new task and belongs to no earlier session. A backend may be chosen some time after it was met, since its
    /// user is known only then.
    pub fn meet(&mut self, row: &ActivityRow, named_ticks: i64) -> Arc<Task> {
        let id = row.task();
        let chosen = self.adopt && row.helper.is_none() && row.chosen.unwrap_or(true);
        if let Some(task) = self.tasks.get(&id).cloned() {
            if task.gone() {
                self.sessions.remove(&id);
            } else if chosen && &*task.who.role == OTHER {
                self.remove(&task);
            } else {
                return task;
            }
        }
        if let Some(session) = row.session {
            self.sessions.insert(id, session);
        } else if chosen && !self.sessions.contains_key(&id) {
            self.sessions.insert(id, self.next_session);
            self.next_session += 1;
        }
        let who = match (self.sessions.get(&id).copied(), &row.helper) {
            (Some(session), _) => self.who("session", Some(session)),
            (None, Some(helper)) => self.who(&format!("helper:{helper}"), None),
            (None, None) => self.who(OTHER, None),
        };
        self.add_child(id, who, Some(named_ticks))
    }

    /// Moves the tasks of the server that were met since the last call into `into`.
    pub fn take_fresh(&mut self, into: &mut Vec<Arc<Task>>) {
        into.clear();
        into.append(&mut self.fresh);
    }

    /// Returns why files of tasks are opened at each read, if they are. Their figures stay the same.
    pub fn short_of_files(&self) -> Option<String> {
        let unkept = |t: &Arc<Task>| t.start_ticks().is_some() && !t.gone() && t.kept() == 0;
        self.order.iter().any(unkept).then(|| {
            format!(
                "at most {} files may be open, too few for all tasks: the others' are opened at each read, which costs \
                 more CPU; raise the hard limit (ulimit -Hn, or LimitNOFILE)",
                self.limit
            )
        })
    }

    /// How often anything came or went.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Adds the threads of our own process that are not known yet.
    pub fn meet_ourselves(&mut self) {
        let Ok(directory) = std::fs::read_dir("/proc/self/task") else {
            return;
        };
        let pid = i64::from(std::process::id());
        for tid in directory.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()) {
            let id = TaskId { pid, tid };
            if self.tasks.get(&id).is_none_or(|t| t.gone()) {
                let who = self.who("dbdyno", None);
                self.add(id, who, true, Proof::default());
            }
        }
    }

    /// Returns the task of this id, if it is known.
    pub fn task(&self, id: TaskId) -> Option<Arc<Task>> {
        self.tasks.get(&id).cloned()
    }

    /// Copies all tasks to read into `into`.
    pub fn list(&self, into: &mut Vec<Arc<Task>>) {
        into.clear();
        into.extend(self.order.iter().cloned());
    }

    /// Drops those that are gone, after their last row was written.
    pub fn forget_gone(&mut self, listed: &[Arc<Task>]) {
        for task in listed.iter().filter(|t| t.gone()) {
            self.remove(task);
        }
    }

    fn remove(&mut self, task: &Arc<Task>) {
        let before = self.order.len();
        self.order.retain(|t| !Arc::ptr_eq(t, task));
        if self.order.len() == before {
            return;
        }
        let id = TaskId {
            pid: task.pid,
            tid: task.tid,
        };
        if self.tasks.get(&id).is_some_and(|t| Arc::ptr_eq(t, task)) {
            self.tasks.remove(&id);
            if task.gone() {
                self.sessions.remove(&id);
            }
        }
        self.budget += task.kept() as i64;
        self.changes += 1;
    }

    /// Adds a child of the server's main process or a thread of it. Its parent is checked if the main process is known
    /// and the server is no tree.
    fn add_child(&mut self, id: TaskId, who: Who, named_ticks: Option<i64>) -> Arc<Task> {
        let parent = self.parent.filter(|&main| main != id.pid);
        self.add(id, who, self.os, Proof { parent, named_ticks })
    }

    fn add(&mut self, id: TaskId, who: Who, here: bool, proof: Proof) -> Arc<Task> {
        let TaskId { pid, tid } = id;
        let task = Arc::new(if here {
            Task::open(pid, tid, who, self.budget >= 2, self.sched_info, proof)
        } else {
            Task::elsewhere(pid, tid, who, self.unseen)
        });
        self.budget -= task.kept() as i64;
        self.tasks.insert(id, Arc::clone(&task));
        self.order.push(Arc::clone(&task));
        self.changes += 1;
        if here && task.of_server() && !task.gone() {
            self.fresh.push(Arc::clone(&task));
        }
        task
    }

    fn who(&mut self, role: &str, session: Option<i64>) -> Who {
        let known = self.roles.get(role).cloned();
        let role = known.unwrap_or_else(|| {
            let new: Arc<str> = Arc::from(role);
            self.roles.insert(role.to_owned(), Arc::clone(&new));
            new
        });
        Who { role, session }
    }
}
