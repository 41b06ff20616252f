//! `_core.Watch`, `_core.read_task`, `_core.find_cgroups`.

use std::path::PathBuf;

use dyno_model::{Error, TaskId};
use dyno_observe::{Granted, GroupSpec, Profiler, Refusal, Spec, Status, TaskSpec, Tracer, WordSpec};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use serde::Deserialize;

use crate::{convert, engines, errors};

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

/// See `dbdyno.model.protocols.Watch`.
#[pyclass(frozen, module = "dbdyno._core")]
struct Watch(dyno_observe::Watch);

#[pymethods]
impl Watch {
    #[new]
    fn new(py: Python<'_>, spec: &str) -> PyResult<Self> {
        py.detach(|| {
            let spec: WatchSpec = serde_json::from_str(spec).map_err(|e| Error::Spec(e.to_string()))?;
            let watch = dyno_observe::Watch::new(
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
        })
        .map(Self)
        .map_err(|e| errors::observer(&e))
    }

    fn start(&self, py: Python<'_>, t0_ns: i64, t1_ns: i64) -> PyResult<()> {
        py.detach(|| self.0.start(t0_ns, t1_ns))
            .map_err(|e| errors::observer(&e))
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.0.stop());
    }

    fn latest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let shares = PyDict::new(py);
        for (label, share) in py.detach(|| self.0.latest()) {
            shares.set_item(label, share)?;
        }
        Ok(shares)
    }

    fn trouble(&self) -> Option<&str> {
        self.0.trouble()
    }

    fn recent<'py>(&self, py: Python<'py>, since_ns: i64) -> PyResult<Bound<'py, PyDict>> {
        let tables = py.detach(|| self.0.recent(since_ns));
        convert::tables(py, &tables)
    }

    fn source_status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.0.source_status().into_py_dict(py)
    }

    fn tables<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let tables = py.detach(|| self.0.tables());
        convert::tables(py, &tables)
    }
}

/// See `_core.pyi`.
#[pyclass(frozen, module = "dbdyno._core")]
struct Pulse(dyno_observe::pulse::Pulse);

#[pymethods]
impl Pulse {
    #[new]
    fn new() -> PyResult<Self> {
        let started = dyno_observe::pulse::Pulse::new();
        started.map(Self).map_err(|e| errors::observer(&e))
    }

    fn holes(&self, py: Python<'_>) -> Vec<(i64, i64, i64, i64)> {
        let all = py.detach(|| self.0.holes());
        all.iter()
            .map(|h| (h.from_ns, h.to_ns, h.stopped_ns, h.suspended_ns))
            .collect()
    }
}

/// One read of a task: see `_core.pyi`.
#[pyfunction]
fn read_task(py: Python<'_>, pid: i64, tid: i64) -> PyResult<Bound<'_, PyDict>> {
    let read = dyno_observe::once::read_once(pid, tid);
    let values = PyDict::new(py);
    values.set_item("run_ns", read.sched.map(|s| s.run_ns))?;
    values.set_item("runq_ns", read.sched.map(|s| s.runq_ns))?;
    values.set_item("slices", read.sched.map(|s| s.slices))?;
    values.set_item("user_ns", read.user_ns)?;
    values.set_item("system_ns", read.system_ns)?;
    values.set_item("start_ticks", read.start_ticks)?;
    values.set_item("comm", read.comm)?;
    values.set_item("state", read.state)?;
    values.set_item("cpu", read.cpu)?;
    values.set_item("status", read.status.as_str())?;
    Ok(values)
}

/// (value, status, detail) of 64 bits of a process's memory: see `_core.pyi`.
#[pyfunction]
fn read_behind(
    py: Python<'_>,
    pid: i64,
    program: &str,
    symbol: &str,
    offset: u64,
) -> (Option<i64>, String, String) {
    match py.detach(|| dyno_observe::read_behind(pid, program, symbol, offset)) {
        Ok(value) => (Some(value as i64), Status::Ok.as_str().to_owned(), String::new()),
        Err(refusal) => {
            let (status, detail) = refusal.words();
            (None, status, detail)
        }
    }
}

/// Groups of a process that exist: see `_core.pyi`.
#[pyfunction]
#[pyo3(signature = (pid=None, root=PathBuf::from("/"), controllers=None))]
#[allow(clippy::needless_pass_by_value)] // pyo3 hands them over by value
fn find_cgroups(
    py: Python<'_>,
    pid: Option<i64>,
    root: PathBuf,
    controllers: Option<Vec<String>>,
) -> PyResult<Vec<(i64, String)>> {
    let groups = py.detach(|| match &controllers {
        None => dyno_observe::groups::find(&root, pid, &["cpu", "cpuacct"], &["cpu.stat", "cpuacct.usage"]),
        Some(names) => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            dyno_observe::groups::find(&root, pid, &names, &[])
        }
    });
    Ok(groups
        .map_err(PyErr::from)?
        .into_iter()
        .map(|g| (g.version, g.path))
        .collect())
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Watch>()?;
    m.add_class::<Pulse>()?;
    m.add_function(wrap_pyfunction!(read_task, m)?)?;
    m.add_function(wrap_pyfunction!(read_behind, m)?)?;
    m.add_function(wrap_pyfunction!(find_cgroups, m)?)
}
