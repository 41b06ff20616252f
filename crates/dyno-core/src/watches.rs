//! A watch from its specification.

use dyno_model::{Error, Result, TaskId};
use dyno_observe::{
    Granted, GroupSpec, PlaceSpec, Profiler, Refusal, Spec, Status, TaskSpec, Tracer, Watch, WordSpec,
};
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
    places: Vec<PlaceSpec>,
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

/// (session, pid, tid) of a task that serves a session, or (session, pid) for the process's main one.
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

/// A profiler or its refusal, or None if it was not requested.
type MaybeProfiler = Option<Granted<Box<dyn Profiler>>>;

/// Tasks of a server that the trace has room for besides twice those that it has now: some come and go between two
/// samples.
const SPARE: usize = 256;
/// The same for a server whose sessions are not ours, to which more may come.
const SPARE_OF_OBSERVED: usize = 768;
/// The same for commands, and for each of them, as its children may start others.
const SPARE_OF_TREE: usize = 1024;
const STARTED: usize = 64;

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
            places: self.places.clone(),
            word: self.word.clone(),
            memory_hz: self.memory_hz,
            memory_budget: self.memory_budget,
            adopt: self.adopt,
        }
    }
}

/// Most stacks of sleeps a second: more would not find room.
const MOST_STACKS: f64 = 10_000.0;

fn is_rate(hz: f64) -> bool {
    hz > 0.0 && hz <= MOST_STACKS
}

/// Returns the slots of the trace for a number of tasks: a power of two, so that windows of similar loads share a
/// program.
fn room_for(tasks: usize, spare: usize) -> u32 {
    u32::try_from((2 * tasks + spare).next_power_of_two()).unwrap_or(u32::MAX)
}

/// Returns the number of live child processes, or 0 if the kernel does not list them.
fn children(pid: i64) -> usize {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    listed.map_or(0, |l| l.split_ascii_whitespace().count())
}

impl WatchSpec {
    fn room(&self) -> u32 {
        if self.trace_room > 0 {
            return self.trace_room;
        }
        let now = self.sessions.len().max(self.main_pid.map_or(0, children));
        let spare = match (self.tree, self.adopt) {
            (true, _) => SPARE_OF_TREE + STARTED * now,
            (_, true) => SPARE_OF_OBSERVED,
            _ => SPARE,
        };
        room_for(now, spare)
    }

    /// Opens the trace, and the stacks of sleeps if they were requested.
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
                stacks: self.off_cpu.is_some_and(|asked| is_rate(asked.hz)),
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
            let profiler = self.off_cpu.map(|asked| match stacks {
                Some(stacks) => stacks.map(|s| sleeps(asked, s)),
                None => Err(Refusal::new(
                    Status::NotSupported,
                    format!(
                        "{} stacks a second: more than 0 and at most {MOST_STACKS}",
                        asked.hz
                    ),
                )),
            });
            return (tracer, profiler);
        } else {
            Refusal::new(self.unseen.status(), dyno_observe::UNSEEN)
        };
        (Err(refusal.clone()), self.off_cpu.map(|_| Err(refusal)))
    }
}

impl WatchSpec {
    /// Opens the CPU profile if it was requested.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_has_room_by_the_number_of_tasks() {
        assert_eq!(room_for(0, SPARE), 256);
        assert_eq!(room_for(8, SPARE), 512);
        assert_eq!(room_for(128, SPARE), 512);
        assert_eq!(room_for(129, SPARE), 1024);
        assert_eq!(room_for(10_000, SPARE), 32_768);
    }
}
