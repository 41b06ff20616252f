//! `_core.Watch`, `_core.read_task`, `_core.find_cgroups`.

use std::path::PathBuf;

use dyno_model::Error;
use dyno_observe::Status;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::apart::Apart;
use crate::{convert, errors};

/// See `dbdyno.model.engine.protocols.Watch`.
#[pyclass(frozen, module = "dbdyno._core")]
struct Watch(Apart<dyno_observe::Watch>);

#[pymethods]
impl Watch {
    #[new]
    fn new(py: Python<'_>, spec: &str) -> PyResult<Self> {
        py.detach(|| {
            let spec = serde_json::from_str(spec).map_err(|e| Error::Spec(e.to_string()))?;
            dyno_core::watch(spec)
        })
        .map(Apart::new)
        .map(Self)
        .map_err(|e| errors::observer(&e))
    }

    fn start(&self, py: Python<'_>, t0_ns: i64, t1_ns: i64) -> PyResult<()> {
        if !(0 <= t0_ns && t0_ns <= t1_ns) {
            let words = format!("0 <= t0 {t0_ns} <= t1 {t1_ns} does not hold");
            return Err(errors::observer(&Error::Spec(words)));
        }
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
        py.detach(|| self.0.source_status()).into_py_dict(py)
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
    let read = py.detach(|| dyno_observe::once::read_once(pid, tid));
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
    let groups = py.detach(|| dyno_observe::groups::of(&root, pid, controllers.as_deref()));
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
