//! State that the threads of a watch share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use dyno_model::{Table, TaskId, now_ns};

use crate::profiler::Profiler;
use crate::read::cgroup_rows::GroupRows;
use crate::read::device_rows::DeviceRows;
use crate::read::file::descriptor_budget;
use crate::read::host_rows::HostRows;
use crate::read::places::Places;
use crate::read::task::{DelayAccounting, Task};
use crate::read::task_rows::TaskRows;
use crate::roster::Roster;
use crate::sample::blocked::BlockedRows;
use crate::sample::memory_rows::MemoryRows;
use crate::sample::priority;
use crate::sample::rows::{SampleRows, Taken};
use crate::sample::tables::Samples;
use crate::signal::{Signal, lock};
use crate::spec::Spec;
use crate::status::{Granted, Refusal, Status};
use crate::tracer::Tracer;
use crate::word::names::Names;
use crate::word::state::WordState;

/// Detail of sources that need the server's tasks where these are not seen.
pub const UNSEEN: &str = "the server's processes are not seen from here (see os tasks)";

/// A profiler by the name of its data source, or why there is none.
type NamedProfiler = (&'static str, Granted<Box<dyn Profiler>>);

/// State that the threads of a watch share.
pub struct Shared {
    pub spec: Spec,
    pub signal: Signal,
    pub roster: Mutex<Roster>,
    /// The server's process for our questions.
    pub asked: Option<TaskId>,
    pub tasks: Mutex<TaskRows>,
    pub groups: Mutex<GroupRows>,
    pub host: Option<Mutex<HostRows>>,
    /// The server's directories, and the counters of their devices.
    pub places: Option<Places>,
    pub devices: Mutex<DeviceRows>,
    pub samples: Mutex<SampleRows>,
    pub blocked: Mutex<BlockedRows>,
    pub memory: Mutex<MemoryRows>,
    names: Names,
    pub word: Mutex<WordState>,
    /// Whether samplers got their priority: the first answer, or the first refusal.
    priority: Mutex<Option<Granted<()>>>,
    tracer: Mutex<Option<Granted<Box<dyn Tracer>>>>,
    /// Profilers by name of the data source.
    profilers: Mutex<Vec<NamedProfiler>>,
    trouble: OnceLock<String>,
    /// Status and detail of following the ends of tasks, or None if they are not followed.
    ends: Mutex<Option<(String, String)>>,
}

impl Shared {
    pub fn new(spec: Spec, asked: Option<TaskId>) -> Self {
        let places = (!spec.places.is_empty()).then(|| {
            if spec.os {
                Places::look(&spec.places, spec.main_pid)
            } else {
                Places::unseen(&spec.places, spec.unseen)
            }
        });
        Self {
            signal: Signal::default(),
            roster: Mutex::new(Roster::new(&spec, asked, descriptor_budget())),
            asked,
            tasks: Mutex::new(TaskRows::new(DelayAccounting::now())),
            groups: Mutex::new(GroupRows::new(&spec.cgroups)),
            host: spec.host.then(|| Mutex::new(HostRows::new())),
            devices: Mutex::new(DeviceRows::new(
                places.as_ref().map(Places::devices).unwrap_or_default(),
            )),
            places,
            samples: Mutex::default(),
            blocked: Mutex::default(),
            memory: Mutex::default(),
            names: spec
                .word
                .as_ref()
                .map_or_else(Names::default, |w| Names::new(&w.names, &w.classes)),
            word: Mutex::default(),
            priority: Mutex::default(),
            tracer: Mutex::default(),
            profilers: Mutex::default(),
            trouble: OnceLock::new(),
            ends: Mutex::default(),
            spec,
        }
    }

    /// Remembers the first failure of the activity samples.
    pub fn trouble(&self, message: &str) {
        let _ = self.trouble.set(message.to_owned());
    }

    /// Returns whether the trace sees each task to its end.
    pub fn sees_ends(&self) -> bool {
        matches!(*lock(&self.tracer), Some(Ok(_)))
    }

    /// Sets the status of following the ends of tasks. The latest one counts.
    pub fn set_ends_status(&self, went: Result<(), (&'static str, String)>) {
        let (status, detail) = went.map_or_else(|e| e, |()| (Status::Ok.as_str(), String::new()));
        *lock(&self.ends) = Some((status.to_owned(), detail));
    }

    /// Returns the first failure of the activity samples.
    pub fn first_trouble(&self) -> Option<&str> {
        self.trouble.get().map(String::as_str)
    }

    /// Raises the priority of the calling sampler if that is permitted.
    pub fn raise_priority(&self) {
        let raised = priority::raise();
        let mut granted = lock(&self.priority);
        if !matches!(*granted, Some(Err(_))) {
            *granted = Some(raised);
        }
    }

    /// Registers new tasks with the tracer and the profilers. `fresh` is a buffer for them.
    pub fn register_fresh(&self, fresh: &mut Vec<Arc<Task>>) {
        lock(&self.roster).take_fresh(fresh);
        if !fresh.is_empty() {
            // first: the tracer's program takes stacks of a task as soon as the tracer knows it
            for (_, profiler) in &mut *lock(&self.profilers) {
                if let Ok(profiler) = profiler {
                    for task in fresh.iter() {
                        profiler.watch(task);
                    }
                }
            }
        }
        if let Some(Ok(tracer)) = &mut *lock(&self.tracer) {
            tracer.make_room();
            for task in fresh.iter() {
                tracer.watch(task);
            }
        }
    }

    pub fn set_tracer(&self, tracer: Granted<Box<dyn Tracer>>) {
        *lock(&self.tracer) = Some(tracer);
    }

    pub fn add_profiler(&self, name: &'static str, profiler: Granted<Box<dyn Profiler>>) {
        lock(&self.profilers).push((name, profiler));
    }

    /// Reads the profilers' samples. Returns false if there is no profiler.
    pub fn drain_profilers(&self) -> bool {
        let mut profilers = lock(&self.profilers);
        let drained = profilers
            .iter_mut()
            .filter_map(|(_, profiler)| profiler.as_mut().ok());
        drained.map(|profiler| profiler.drain()).count() > 0
    }

    /// Returns the tables of the profilers.
    pub fn profiled(&self) -> Vec<Table> {
        let profilers = lock(&self.profilers);
        let granted = profilers
            .iter()
            .filter_map(|(_, profiler)| profiler.as_ref().ok());
        granted.flat_map(|profiler| profiler.tables()).collect()
    }

    /// Returns the tables of the tracer.
    pub fn traced(&self, since_ns: i64) -> Vec<Table> {
        match &*lock(&self.tracer) {
            Some(Ok(tracer)) => tracer.tables(since_ns),
            _ => Vec::new(),
        }
    }

    pub fn read_tracer(&self, ends: bool) {
        if let Some(Ok(tracer)) = &mut *lock(&self.tracer) {
            tracer.read(ends);
        }
    }

    /// Gives `use_rows` the rows of both samplers.
    pub fn samples<T>(&self, since_ns: i64, use_rows: impl FnOnce(Samples<'_>) -> T) -> T {
        let (sql, memory) = (lock(&self.samples), lock(&self.memory));
        use_rows(Samples {
            sql: &sql,
            memory: &memory,
            names: &self.names,
            since_ns,
        })
    }

    /// Gives `use_rows` the rows of both samplers that were read before `before_ns`, and removes them.
    pub fn take_samples<T>(&self, before_ns: i64, use_rows: impl FnOnce(Samples<'_>) -> T) -> T {
        let (mut sql, mut memory) = (lock(&self.samples), lock(&self.memory));
        let later = (sql.later(before_ns), memory.later(before_ns));
        let result = use_rows(Samples {
            sql: &sql,
            memory: &memory,
            names: &self.names,
            since_ns: i64::MIN,
        });
        sql.give_back(later.0);
        memory.give_back(later.1);
        result
    }

    /// Removes and returns the tracer's rows that were read before `before_ns`.
    pub fn take_traced(&self, before_ns: i64) -> Vec<Table> {
        match &mut *lock(&self.tracer) {
            Some(Ok(tracer)) => tracer.take_tables(before_ns),
            _ => Vec::new(),
        }
    }

    /// See [`crate::Watch::source_status`].
    pub fn source_status(&self) -> BTreeMap<&'static str, (String, String)> {
        let mut sources = BTreeMap::new();
        if let Some((status, detail)) = self.word_status() {
            sources.insert("wait event word", (status.as_str().to_owned(), detail));
        }
        if let Some(tracer) = &*lock(&self.tracer) {
            let status = match tracer {
                Ok(tracer) => tracer.status(),
                Err(refusal) => refusal.status_and_detail(),
            };
            sources.insert("scheduler trace", status);
            if let Ok(tracer) = tracer {
                sources.insert("wait events of the scheduler trace", tracer.labels());
                sources.insert("statements of the scheduler trace", tracer.statements());
            }
        }
        for (name, profiler) in &*lock(&self.profilers) {
            let status = profiler
                .as_ref()
                .map_or_else(Refusal::status_and_detail, |p| p.status());
            sources.insert(*name, status);
        }
        if let (answers, Some(trouble)) = lock(&self.blocked).answers() {
            let status = if answers == 0 { Status::Lost } else { Status::Ok };
            sources.insert("lock waits", (status.as_str().to_owned(), trouble.to_owned()));
        }
        if let Some(detail) = lock(&self.roster).short_of_files() {
            sources.insert("open files", (Status::NotPermitted.as_str().to_owned(), detail));
        }
        if let Some(ends) = &*lock(&self.ends) {
            sources.insert("task statistics at exit", ends.clone());
        }
        if let Some(raised) = &*lock(&self.priority) {
            let ok = || (Status::Ok.as_str().to_owned(), "SCHED_FIFO 1".to_owned());
            sources.insert(
                "sampler priority",
                raised.as_ref().map_or_else(Refusal::status_and_detail, |()| ok()),
            );
        }
        sources
    }

    /// Returns status and detail of the data source "wait event word".
    fn word_status(&self) -> Option<(Status, String)> {
        self.spec.word.as_ref()?;
        Some(if !self.spec.os {
            (self.spec.unseen, UNSEEN.to_owned())
        } else if self.spec.samples_memory() {
            lock(&self.word).status()
        } else {
            (Status::Off, "switched off: memory_hz is 0".to_owned())
        })
    }

    /// Adds one row that shows why there are no samples.
    pub fn no_samples(&self) {
        let now = now_ns();
        let status = if self.trouble.get().is_some() {
            Status::Lost
        } else {
            Status::Off
        };
        let taken = Taken {
            sample: 0,
            due_ns: now,
            start_ns: now,
            end_ns: now,
            status,
        };
        lock(&self.samples).taken(taken);
    }
}
