//! `_core.Loader`: a specification in, progress and sums out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};

use dyno_core::Loader;
use dyno_model::{Error, spawn};
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
        let spec = py.detach(|| serde_json::from_str(spec).map_err(|e| Error::Spec(e.to_string())));
        let (spec, engine) = (spec.map_err(errors::driver)?, engine.to_owned());
        // Counting rows may take minutes: a thread does it, so that this one can check for signals.
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let stopped = stop.clone();
        spawn("loader rows", move || {
            // Nobody listens any more after a signal.
            let _ = sender.send(dyno_core::loader(&engine, spec, &stopped));
        })
        .map_err(errors::driver)?;
        let receiver = Mutex::new(receiver);
        let loader = Mutex::new(None);
        let waited = apart::wait(py, f64::INFINITY, |limit| {
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = match receiver.recv_timeout(limit) {
                Err(RecvTimeoutError::Timeout) => return Ok(false),
                Err(RecvTimeoutError::Disconnected) => Err(Error::Io("the loader panicked".to_owned())),
                Ok(answer) => answer,
            };
            *loader.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
            Ok(true)
        });
        if let Err(signal) = waited {
            stop.store(true, Ordering::Relaxed);
            return Err(signal);
        }
        let loader = loader.into_inner().unwrap_or_else(PoisonError::into_inner);
        let loader = loader.unwrap_or(Err(Error::Aborted));
        loader.map(Apart::new).map(Self).map_err(errors::driver)
    }

    fn wait(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        apart::wait(py, timeout_s, |limit| self.0.wait(limit).map_err(errors::driver))
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
