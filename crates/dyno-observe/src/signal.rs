//! How the caller and the two observer threads tell each other things.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dyno_model::now_ns;

/// Progress of the threads, and whether they shall end.
#[derive(Debug, Default)]
pub struct State {
    /// Whether the threads shall end.
    pub stop: bool,
    /// Number of threads that have done their first read.
    pub ready: usize,
    /// Number of threads that have ended.
    pub ended: usize,
}

/// A state with a condition variable that announces its changes.
#[derive(Debug, Default)]
pub struct Signal {
    state: Mutex<State>,
    bell: Condvar,
}

/// Locks a mutex, also one whose holder panicked: rows are whole, as each is pushed in one step.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Signal {
    /// Changes the state and wakes all waiting threads.
    pub fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.bell.notify_all();
    }

    /// Returns whether the threads shall end.
    pub fn stopped(&self) -> bool {
        lock(&self.state).stop
    }

    /// Sleeps until `due_ns`, or until the threads shall end. Returns whether they shall.
    pub fn sleep_until(&self, due_ns: i64) -> bool {
        self.wait_until(due_ns, |s| s.stop)
    }

    /// Waits until `enough` holds, or until `due_ns`. Returns whether it holds.
    pub fn wait_until(&self, due_ns: i64, enough: impl Fn(&State) -> bool) -> bool {
        let mut state = lock(&self.state);
        loop {
            let left = due_ns - now_ns();
            if enough(&state) || left <= 0 {
                return enough(&state);
            }
            let left = Duration::from_nanos(left as u64);
            state = self
                .bell
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}
