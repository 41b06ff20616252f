//! `_core.Loader`: a specification in, progress and sums out.

use dyno_core::Loader;
use dyno_model::Error;
use pyo3::prelude::*;

use crate::apart::{self, Apart};
use crate::errors;

/// Longest wait for the end of an aborted load, whose connections are cancelled and broken off.
const ENDING_S: f64 = 10.0;

/// See `dbdyno._core.Loader`.
#[pyclass(name = "Loader", frozen)]
struct PyLoader(Apart<Loader>);

#[pymethods]
impl PyLoader {
    #[new]
    fn new(py: Python<'_>, engine: &str, spec: &str) -> PyResult<Self> {
        let made = py.detach(|| {
            let spec = serde_json::from_str(spec).map_err(|e| Error::Spec(e.to_string()))?;
            dyno_core::loader(engine, spec)
        });
        made.map(Apart::new)
            .map(Self)
            .map_err(|e| errors::driver(&e, None))
    }

    fn wait(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        apart::wait(py, timeout_s, |limit| {
            self.0.wait(limit).map_err(|e| errors::driver(&e, None))
        })
    }

    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.abort());
        apart::wait(py, ENDING_S, |limit| Ok(self.0.has_ended(limit))).map(drop)
    }

    /// (step, rows, bytes).
    fn progress(&self, py: Python<'_>) -> (usize, u64, u64) {
        let progress = py.detach(|| self.0.progress());
        (progress.step, progress.rows, progress.bytes)
    }

    fn total_rows(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.0.total_rows())
    }

    /// table -> (rows, bytes, checksum).
    fn sums(&self, py: Python<'_>) -> Vec<(String, (u64, u64, u64))> {
        let sums = py.detach(|| self.0.sums());
        sums.into_iter()
            .map(|(name, s)| (name, (s.rows, s.bytes, s.checksum)))
            .collect()
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyLoader>()
}
