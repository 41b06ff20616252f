//! `_core.Loader`: a specification in, progress and sums out.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dyno_core::Loader;
use dyno_model::Error;
use pyo3::prelude::*;

use crate::errors;

/// See `dbdyno._core.Loader`.
#[pyclass(name = "Loader", frozen)]
struct PyLoader(Mutex<Loader>);

impl PyLoader {
    fn loader(&self) -> MutexGuard<'_, Loader> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyLoader {
    #[new]
    fn new(engine: &str, spec: &str) -> PyResult<Self> {
        let spec = serde_json::from_str(spec).map_err(|e| Error::Spec(e.to_string()));
        spec.and_then(|spec| dyno_core::loader(engine, spec))
            .map(|loader| Self(Mutex::new(loader)))
            .map_err(|e| errors::driver(&e, None))
    }

    fn wait(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let timeout = Duration::try_from_secs_f64(timeout_s.max(0.0)).unwrap_or(Duration::MAX);
        py.detach(|| self.loader().wait(timeout))
            .map_err(|e| errors::driver(&e, None))
    }

    fn abort(&self, py: Python<'_>) {
        py.detach(|| self.loader().abort());
    }

    /// (step, rows, bytes).
    fn progress(&self, py: Python<'_>) -> (usize, u64, u64) {
        let progress = py.detach(|| self.loader().progress());
        (progress.step, progress.rows, progress.bytes)
    }

    fn total_rows(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.loader().total_rows())
    }

    /// table -> (rows, bytes, checksum).
    fn sums(&self, py: Python<'_>) -> Vec<(String, (u64, u64, u64))> {
        let sums = py.detach(|| self.loader().sums());
        sums.into_iter()
            .map(|(name, s)| (name, (s.rows, s.bytes, s.checksum)))
            .collect()
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyLoader>()
}
