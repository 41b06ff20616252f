//! Keeps Python responsive while the core works: other threads run, and signals are handled.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Longest time without a look for signals.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

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
        // A finalizing interpreter cannot be attached to: then the value is dropped without it.
        Python::try_attach(|py| py.detach(|| drop(inner.take())));
    }
}

/// Waits until `done` returns true, at most `timeout_s` seconds. `done` may wait for the time that it is given.
///
/// # Errors
/// `ValueError` if `timeout_s` is not a number; errors of `done`; exceptions of signal handlers.
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
    // A timeout that does not fit is unlimited.
    let timeout = Duration::try_from_secs_f64(timeout_s.max(0.0)).ok();
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map_or(LONGEST_WAIT, |at| at.saturating_duration_since(Instant::now()));
        if py.detach(|| done(left.min(LONGEST_WAIT)))? {
            return Ok(true);
        }
        py.check_signals()?;
        if left <= LONGEST_WAIT && deadline.is_some() {
            return Ok(false);
        }
    }
}
