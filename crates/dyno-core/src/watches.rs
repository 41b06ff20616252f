//! A watch from its specification.

use dyno_model::{Error, Result, TaskId};
use dyno_observe::{Granted, GroupSpec, Profiler, Refusal, Spec, Status, TaskSpec, Tracer, Watch, WordSpec};
use serde::Deserialize;
use serde_json::Value;

use crate::engines;

/// A watch with its trace and profiles, not started yet.
///
/// # Errors
/// [`Error::Spec`] for a specification that is wrong, or what the operating system refused.
pub fn watch(spec: Value) -> Result<Watch> {
    let spec: WatchSpec = serde_json::from_value(spec).map_err(|e| Error::Spec(e.to_string()))?;
    let watch = Watch::new(
        spec.observe(),
        engines::probe(spec.engine.as_deref(), &spec.activity)?,
    )?;
    let (tracer, sleeps) = spec.tracer();
    watch.trace(tracer); // before `start`: where there is none, ends of tasks are asked for
    let profiler = spec.profiler().map(|p| ("CPU profile", p));
    let sleeps = sleeps.map(|s| (dyno_profile::OFF_CPU, s));
    for (name, profiler) in profiler.into_iter().chain(sleeps) {
        watch.profile(name, profiler);
    }
    Ok(watch)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools)] // as in the JSON
struct WatchSpec {
    engine: Option<String>,
    #[serde(default)]
    activity: serde_json::Value,
    #[serde(default)]
    sessions: Vec<SessionTask>,
    #[serde(default)]
    tasks: Vec<TaskSpec>,
    os: bool,
    #[serde(default)]
    unseen: Unseen,
    #[serde(default)]
    main_pid: Option<i64>,
    #[serde(default)]
    tree: bool,
    #[serde(default = "default_sample_hz")]
    sample_hz: f64,
    #[serde(default = "default_sample_budget")]
    sample_budget: f64,
    #[serde(default = "default_seed")]
    seed: u64,
    #[serde(default = "default_task_interval_ms")]
    task_interval_ms: i64,
    #[serde(default)]
    cgroups: Vec<GroupSpec>,
    #[serde(default = "default_host")]
    host: bool,
    #[serde(default)]
    word: Option<WordSpec>,
    #[serde(default = "default_memory_hz")]
    memory_hz: f64,
    #[serde(default = "default_sample_budget")]
    memory_budget: f64,
    #[serde(default)]
    trace: Trace,
    #[serde(default)]
    syscalls: bool,
    #[serde(default)]
    trace_room: u32,
    #[serde(default)]
    profile: Option<ProfileSpec>,
    #[serde(default)]
    off_cpu: Option<ProfileSpec>,
    #[serde(default)]
    adopt: bool,
}

/// (session, pid, tid) of a task that serves a session; (session, pid): the process's main one.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum SessionTask {
    Thread(i64, i64, i64),
    Process(i64, i64),
}

impl From<SessionTask> for (i64, TaskId) {
    fn from(task: SessionTask) -> Self {
        match task {
            SessionTask::Thread(session, pid, tid) => (session, TaskId { pid, tid }),
            SessionTask::Process(session, pid) => (session, TaskId::main(pid)),
        }
    }
}

/// The CPU profile, or stacks of sleeps.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileSpec {
    hz: f64,
    #[serde(default)]
    until_ns: Option<i64>,
}

/// The scheduler trace.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Trace {
    #[default]
    Auto,
    Off,
}

/// Why the server's tasks are not read.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
enum Unseen {
    #[default]
    #[serde(rename = "not here")]
    NotHere,
    #[serde(rename = "not permitted")]
    NotPermitted,
}

impl Unseen {
    fn status(self) -> Status {
        match self {
            Self::NotHere => Status::NotHere,
            Self::NotPermitted => Status::NotPermitted,
        }
    }
}

/// `None`: not asked for.
type MaybeProfiler = Option<Granted<Box<dyn Profiler>>>;

/// How many tasks the trace has room for, where there are not more sessions.
const TRACE_ROOM: u32 = 4096;

fn default_memory_hz() -> f64 {
    100.0
}

fn default_sample_hz() -> f64 {
    10.0
}

fn default_sample_budget() -> f64 {
    0.005
}

fn default_seed() -> u64 {
    1
}

fn default_task_interval_ms() -> i64 {
    1000
}

fn default_host() -> bool {
    true
}

impl WatchSpec {
    fn observe(&self) -> Spec {
        Spec {
            sessions: self.sessions.iter().map(|&task| task.into()).collect(),
            tasks: self.tasks.clone(),
            os: self.os,
            unseen: self.unseen.status(),
            main_pid: self.main_pid,
            tree: self.tree,
            sample_hz: self.sample_hz,
            sample_budget: self.sample_budget,
            seed: self.seed,
            task_interval_ns: self.task_interval_ms.saturating_mul(1_000_000),
            cgroups: self.cgroups.clone(),
            host: self.host,
            word: self.word.clone(),
            memory_hz: self.memory_hz,
            memory_budget: self.memory_budget,
            adopt: self.adopt,
        }
    }
}

impl WatchSpec {
    fn room(&self) -> u32 {
        match self.trace_room {
            0 => TRACE_ROOM.max(2 * self.sessions.len() as u32),
            room => room,
        }
    }

    /// The trace, and the stacks of sleeps; `None`: not asked for.
    fn tracer(&self) -> (Granted<Box<dyn Tracer>>, MaybeProfiler) {
        let refusal = if self.trace == Trace::Off {
            Refusal::new(Status::Off, "switched off: trace is \"off\"")
        } else if self.os {
            let (tracer, stacks) = dyno_trace::open(dyno_trace::Options {
                main_pid: self.main_pid,
                tree: self.tree,
                word: self.word.clone(),
                syscalls: self.syscalls,
                slots: self.room(),
                stacks: self.off_cpu.is_some(),
            });
            let sleeps = |ProfileSpec { hz, until_ns }, stacks| -> Box<dyn Profiler> {
                Box::new(dyno_profile::Sleeps::new(
                    stacks,
                    hz,
                    until_ns,
                    self.main_pid,
                    self.tree,
                ))
            };
            let stacks = self.off_cpu.zip(stacks);
            return (
                tracer,
                stacks.map(|(asked, stacks)| stacks.map(|s| sleeps(asked, s))),
            );
        } else {
            Refusal::new(self.unseen.status(), dyno_observe::UNSEEN)
        };
        (Err(refusal.clone()), self.off_cpu.map(|_| Err(refusal)))
    }
}

impl WatchSpec {
    /// `None`: not asked for.
    fn profiler(&self) -> MaybeProfiler {
        let ProfileSpec { hz, until_ns } = self.profile?;
        if !self.os {
            return Some(Err(Refusal::new(self.unseen.status(), dyno_observe::UNSEEN)));
        }
        Some(dyno_profile::open(dyno_profile::Options {
            hz,
            until_ns,
            main_pid: self.main_pid,
            tree: self.tree,
            word: self.word.clone(),
        }))
    }
}
