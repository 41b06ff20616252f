//! `_core.Load`: specifications in, phases, tables out.

use dyno_drive::{Failure, Phases};
use dyno_model::Error;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::apart::{self, Apart};
use crate::{convert, errors};

fn plain(error: &Error) -> PyErr {
    errors::driver(error, None)
}

/// See `dbdyno.model.engine.protocols.Load`.
#[pyclass(name = "Load", frozen)]
struct PyLoad(Apart<Box<dyn Phases>>);

#[pymethods]
impl PyLoad {
    #[new]
    fn new(py: Python<'_>, engine: &str, spec: &str) -> PyResult<Self> {
        let made = py.detach(|| {
            let spec = serde_json::from_str(spec).map_err(|e| Error::Spec(e.to_string()))?;
            dyno_core::load(engine, spec)
        });
        made.map(Apart::new).map(Self).map_err(|e| plain(&e))
    }

    fn connect(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.connect()).map_err(|e| plain(&e))
    }

    fn start(&self, py: Python<'_>, start_ns: i64, t0_ns: i64, t1_ns: i64) -> PyResult<()> {
        py.detach(|| self.0.start(start_ns, t0_ns, t1_ns))
            .map_err(|e| plain(&e))
    }

    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.finish()).map_err(|e| plain(&e))
    }

    fn wait(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let failed = |Failure { error, session }| errors::driver(&error, session);
        apart::wait(py, timeout_s, |limit| self.0.wait(limit).map_err(failed))
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.0.stop());
    }

    fn abort(&self, py: Python<'_>) {
        py.detach(|| self.0.abort());
    }

    /// As a plain tuple: (calls, errors, live, `in_call_ns`, waiting, `oldest_ns`).
    fn progress(&self, py: Python<'_>) -> (u64, u64, u64, u64, u64, u64) {
        let p = py.detach(|| self.0.progress());
        let (waiting, oldest_ns) = (p.behind.waiting, p.behind.oldest_ns);
        (p.calls, p.errors, p.live, p.in_call_ns, waiting, oldest_ns)
    }

    /// (duration in ns, count) of the calls that ended well, from the first time of asking.
    fn live_durations(&self, py: Python<'_>) -> Vec<(u64, u64)> {
        py.detach(|| self.0.live_durations())
    }

    /// (session, pid, tid).
    fn backends(&self, py: Python<'_>) -> Vec<(usize, i64, i64)> {
        let all = py.detach(|| self.0.backends());
        all.into_iter().map(|(n, task)| (n, task.pid, task.tid)).collect()
    }

    fn threads(&self, py: Python<'_>) -> Vec<i64> {
        py.detach(|| self.0.threads())
    }

    #[expect(
        clippy::unused_self,
        reason = "a method in the protocol: in a virtual world the clock is the load's"
    )]
    fn now_ns(&self) -> i64 {
        dyno_model::now_ns()
    }

    fn tables<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let tables = py.detach(|| self.0.tables()).map_err(|e| plain(&e))?;
        convert::tables(py, &tables)
    }

    fn window_tables<'py>(&self, py: Python<'py>, window: usize) -> PyResult<Bound<'py, PyDict>> {
        let tables = py
            .detach(|| self.0.window_tables(window))
            .map_err(|e| plain(&e))?;
        convert::tables(py, &tables)
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyLoad>()
}
