//! `_core.Load`: specifications in, phases, tables out.

use dyno_core::ops::{Fault, LoadOp, Op};
use dyno_drive::Phases;
use dyno_model::Error;
use pyo3::prelude::*;

use crate::apart::{self, Apart};
use crate::{convert, errors};

/// See `dbdyno.model.engine.protocols.Load`.
#[pyclass(name = "Load", frozen)]
struct PyLoad(Apart<Box<dyn Phases>>);

impl PyLoad {
    fn run<'py>(&self, py: Python<'py>, op: LoadOp) -> PyResult<Bound<'py, PyAny>> {
        convert::run(py, Op::Load(&**self.0, op))
    }
}

#[pymethods]
impl PyLoad {
    #[new]
    fn new(py: Python<'_>, engine: &str, spec: &str) -> PyResult<Self> {
        let load = py.detach(|| {
            let spec = serde_json::from_str(spec).map_err(|e| Error::Spec(e.to_string()))?;
            dyno_core::load(engine, spec)
        });
        load.map(Apart::new).map(Self).map_err(errors::driver)
    }

    fn connect<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, LoadOp::Connect {})
    }

    fn start<'py>(
        &self,
        py: Python<'py>,
        start_ns: i64,
        t0_ns: i64,
        t1_ns: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.run(
            py,
            LoadOp::Start {
                start_ns,
                t0_ns,
                t1_ns,
            },
        )
    }

    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, LoadOp::Finish {})
    }

    /// In short waits, between which signals are handled.
    fn wait(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        apart::wait(py, timeout_s, |limit| {
            self.0.wait(limit).map_err(|e| errors::fault(Fault::Driver(e)))
        })
    }

    fn stop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, LoadOp::Stop {})
    }

    fn abort<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, LoadOp::Abort {})
    }

    fn progress<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, LoadOp::Progress {})
    }

    fn live_durations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, LoadOp::LiveDurations {})
    }

    fn backends<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, LoadOp::Backends {})
    }

    fn threads<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, LoadOp::Threads {})
    }

    #[expect(
        clippy::unused_self,
        reason = "a method in the protocol: in a virtual world the clock is the load's"
    )]
    fn now_ns(&self) -> i64 {
        dyno_model::now_ns()
    }

    fn tables<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, LoadOp::Tables {})
    }

    fn window_tables<'py>(&self, py: Python<'py>, window: usize) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, LoadOp::WindowTables { window })
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyLoad>()
}
