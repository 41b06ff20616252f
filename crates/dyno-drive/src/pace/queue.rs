//! The queue of an open loop: first come, first served, by any of the load's sessions.
//!
//! A session that becomes free takes the next arrival at once, due or not, and waits for it. As sessions take arrivals
//! in the order in which they become free, arrival k starts when it is due or when the k-th session becomes free,
//! whichever is later. That is what a common queue before all sessions does (Kiefer and Wolfowitz 1955), and a session
//! that waits never has a later arrival than another that still works. The one thing shared is a count. Each thread goes
//! through the arrivals by itself: they are the same for all.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use crate::pace::arrivals::{ArrivalSpec, Arrivals};
use crate::sync::{AtomicU64, AtomicUsize, Mutex};

/// The threads' common position in the arrivals.
#[derive(Debug, Default)]
pub struct Queue {
    next: AtomicU64,
    /// Arrivals given back by sessions that ended while they waited: (due, index). Nearly always empty.
    returned: Mutex<Vec<Arrival>>,
    returned_len: AtomicUsize,
}

/// An arrival: a call to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    /// Number of arrivals due before it.
    pub index: u64,
    /// Instant at which it is due.
    pub due_ns: i64,
}

impl Queue {
    /// Gives back an arrival whose session has ended.
    pub fn give_back(&self, arrival: Arrival) {
        let mut returned = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        returned.push(arrival);
        self.returned_len.store(returned.len(), Relaxed);
    }

    #[cold]
    fn take_back(&self) -> Option<Arrival> {
        let mut returned = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        let first = (0..returned.len()).min_by_key(|&i| returned[i].index);
        let taken = first.map(|i| returned.swap_remove(i));
        self.returned_len.store(returned.len(), Relaxed);
        taken
    }

    /// Once all threads are done: calls `left` with when each arrival that was due before `end_ns` and has not been taken
    /// for a call was due. There may be more than memory holds.
    pub fn left(&self, spec: &ArrivalSpec, start_ns: i64, end_ns: i64, mut left: impl FnMut(i64)) {
        let returned = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        let due = returned.iter().map(|a| a.due_ns);
        due.filter(|&due_ns| due_ns < end_ns).for_each(&mut left);
        let mut arrivals = Arrivals::new(spec, start_ns);
        let taken = self.next.load(Relaxed);
        while arrivals.due_ns() < end_ns {
            if arrivals.index() >= taken {
                left(arrivals.due_ns());
            }
            arrivals.advance();
        }
    }
}

/// One thread's position in the arrivals.
#[derive(Debug)]
pub struct Line {
    /// Position at the arrival taken last, or before it.
    arrivals: Arrivals,
    /// Position at the first arrival that was not due when it was last asked.
    to_come: Arrivals,
}

impl Line {
    /// Position at the barrier.
    pub fn new(spec: &ArrivalSpec, start_ns: i64) -> Self {
        let arrivals = Arrivals::new(spec, start_ns);
        let to_come = arrivals.clone();
        Self { arrivals, to_come }
    }

    /// The next arrival, for a session that is free.
    #[inline]
    pub fn take(&mut self, queue: &Queue) -> Arrival {
        if queue.returned_len.load(Relaxed) > 0
            && let Some(arrival) = queue.take_back()
        {
            return arrival;
        }
        // Relaxed is enough: only the number is shared, and each thread computes the instant by itself.
        let index = queue.next.fetch_add(1, Relaxed);
        while self.arrivals.index() < index {
            self.arrivals.advance();
        }
        let due_ns = self.arrivals.due_ns();
        Arrival { index, due_ns }
    }

    /// Number of arrivals due at `now_ns`, from `arrival` on. Instants must not go back.
    #[inline]
    pub fn waiting(&mut self, arrival: Arrival, now_ns: i64) -> u64 {
        while self.to_come.due_ns() <= now_ns {
            self.to_come.advance();
        }
        self.to_come.index().saturating_sub(arrival.index)
    }
}

/// Backlog of a load while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// Calls that are due and not started.
    pub waiting: u64,
    /// Time since the first of them was due.
    pub oldest_ns: u64,
}

/// Looks at the queue from outside. Arrivals that were given back are left out.
#[derive(Debug)]
pub struct Lookout {
    line: Line,
    queue: Arc<Queue>,
}

impl Lookout {
    /// Position at the barrier.
    pub fn new(spec: &ArrivalSpec, start_ns: i64, queue: Arc<Queue>) -> Self {
        let line = Line::new(spec, start_ns);
        Self { line, queue }
    }

    /// Returns the backlog at `now_ns`. Instants must not go back.
    pub fn look(&mut self, now_ns: i64) -> Behind {
        let index = self.queue.next.load(Relaxed);
        let next = Arrival { index, due_ns: 0 };
        let waiting = self.line.waiting(next, now_ns);
        if waiting == 0 {
            return Behind::default();
        }
        while self.line.arrivals.index() < index {
            self.line.arrivals.advance();
        }
        let oldest_ns = (now_ns - self.line.arrivals.due_ns()).max(0) as u64;
        Behind { waiting, oldest_ns }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
