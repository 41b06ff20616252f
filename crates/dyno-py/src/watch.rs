//! `_core.Watch`, `_core.Pulse`, and single reads of tasks and control groups.

use std::path::PathBuf;

use dyno_core::ops::{Op, WatchOp};
use dyno_model::Error;
use pyo3::prelude::*;

use crate::apart::Apart;
use crate::{convert, errors};

/// See `dbdyno.model.engine.protocols.Watch`.
#[pyclass(frozen, module = "dbdyno._core")]
struct Watch(Apart<dyno_observe::Watch>);

impl Watch {
    fn run<'py>(&self, py: Python<'py>, op: WatchOp) -> PyResult<Bound<'py, PyAny>> {
        convert::run(py, Op::Watch(&self.0, op))
    }
}

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
        .map_err(errors::observer)
    }

    fn start<'py>(&self, py: Python<'py>, t0_ns: i64, t1_ns: i64) -> PyResult<Bound<'py, PyAny>> {
        if !(0 <= t0_ns && t0_ns <= t1_ns) {
            let words = format!("0 <= t0 {t0_ns} <= t1 {t1_ns} does not hold");
            return Err(errors::observer(Error::Spec(words)));
        }
        self.run(py, WatchOp::Start { t0_ns, t1_ns })
    }

    fn stop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, WatchOp::Stop {})
    }

    fn latest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, WatchOp::Latest {})
    }

    fn trouble<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, WatchOp::Trouble {})
    }

    fn recent<'py>(&self, py: Python<'py>, since_ns: i64) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, WatchOp::Recent { since_ns })
    }

    fn source_status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, WatchOp::SourceStatus {})
    }

    fn tables<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, WatchOp::Tables {})
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
        started.map(Self).map_err(errors::observer)
    }

    fn holes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        convert::run(py, Op::PulseHoles(&self.0))
    }
}

/// Reads a task once: see `_core.pyi`.
#[pyfunction]
fn read_task(py: Python<'_>, pid: i64, tid: i64) -> PyResult<Bound<'_, PyAny>> {
    convert::run(py, Op::ReadTask { pid, tid })
}

/// Returns (value, status, detail) of 64 bits of a process's memory: see `_core.pyi`.
#[pyfunction]
fn read_behind<'py>(
    py: Python<'py>,
    pid: i64,
    program: &str,
    symbol: &str,
    offset: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let op = Op::ReadBehind {
        pid,
        program,
        symbol,
        offset,
    };
    convert::run(py, op)
}

/// Returns the existing groups of a process: see `_core.pyi`.
#[pyfunction]
#[pyo3(signature = (pid=None, root=PathBuf::from("/"), controllers=None))]
#[allow(clippy::needless_pass_by_value)] // pyo3 hands them over by value
fn find_cgroups(
    py: Python<'_>,
    pid: Option<i64>,
    root: PathBuf,
    controllers: Option<Vec<String>>,
) -> PyResult<Bound<'_, PyAny>> {
    let op = Op::FindCgroups {
        pid,
        root: &root,
        controllers: controllers.as_deref(),
    };
    convert::run(py, op)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Watch>()?;
    m.add_class::<Pulse>()?;
    m.add_function(wrap_pyfunction!(read_task, m)?)?;
    m.add_function(wrap_pyfunction!(read_behind, m)?)?;
    m.add_function(wrap_pyfunction!(find_cgroups, m)?)
}
