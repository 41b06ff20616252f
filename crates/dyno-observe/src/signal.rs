//! How the caller and the two observer threads tell each other things.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dyno_model::now_ns;

/// How far the threads are.
#[derive(Debug, Default)]
pub struct State {
    /// They shall end.
    pub stop: bool,
    /// Threads that have done their first read.
    pub ready: usize,
    /// Threads that have ended.
    pub ended: usize,
}

/// A state under a lock, and a bell.
#[derive(Debug, Default)]
pub struct Signal {
    state: Mutex<State>,
    bell: Condvar,
}

/// A lock whose holder panicked is still a lock: its rows are whole, as each is pushed in one step.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Signal {
    /// Changes the state and wakes all who wait.
    pub fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.bell.notify_all();
    }

    /// True once the threads shall end.
    pub fn stopped(&self) -> bool {
        lock(&self.state).stop
    }

    /// Sleeps until `due_ns`; true if it was woken because the threads shall end.
    pub fn sleep_until(&self, due_ns: i64) -> bool {
        self.wait_until(due_ns, |s| s.stop)
    }

    /// Waits until `enough`, or `due_ns`; what `enough` says then.
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
