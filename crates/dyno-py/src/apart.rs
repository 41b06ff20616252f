//! What the core does must not hold Python up: other threads run meanwhile, and signals are heard.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// How long Python may be deaf to signals.
const DEAF: Duration = Duration::from_millis(100);

/// Something that takes a while to end: dropped while other threads of Python run.
pub struct Apart<T: Send>(ManuallyDrop<T>);

impl<T: Send> Apart<T> {
    pub fn new(inner: T) -> Self {
        Self(ManuallyDrop::new(inner))
    }
}

impl<T: Send> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send> Drop for Apart<T> {
    fn drop(&mut self) {
        // SAFETY: it is not used again.
        let mut inner = Some(unsafe { ManuallyDrop::take(&mut self.0) });
        // An interpreter that is going away lets nobody in: what is left is dropped as it is.
        Python::try_attach(|py| py.detach(|| drop(inner.take())));
    }
}

/// Waits until `done` is true, at most `timeout_s`. Each wait takes as long as it is told, or less.
///
/// # Errors
/// `ValueError` for a time that is none; those of `done`; what a signal's handler raises.
pub fn wait(
    py: Python<'_>,
    timeout_s: f64,
    done: impl Fn(Duration) -> PyResult<bool> + Sync,
) -> PyResult<bool> {
    if timeout_s.is_nan() {
        return Err(PyValueError::new_err(
            "timeout_s must be a number of seconds, not nan",
        ));
    }
    // One that does not fit has no end.
    let timeout = Duration::try_from_secs_f64(timeout_s.max(0.0)).ok();
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map_or(DEAF, |at| at.saturating_duration_since(Instant::now()));
        if py.detach(|| done(left.min(DEAF)))? {
            return Ok(true);
        }
        py.check_signals()?;
        if left <= DEAF && deadline.is_some() {
            return Ok(false);
        }
    }
}
