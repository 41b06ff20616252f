//! One measurement cut into windows, one after the other. A call belongs to the window in which it ends, its start and
//! its delay to the one in which it starts: what waits at the end of a window is begun, and counted, in the next.

use crate::Schedule;
use crate::run::control::Control;

/// A thread's position in the windows.
#[derive(Clone, Debug)]
pub struct Windows {
    /// Beginning of the next window; `i64::MAX` after the last.
    next_ns: i64,
    /// Beginnings of the windows after it, last first.
    later: Vec<i64>,
    /// Number of windows still to come.
    left: usize,
}

impl Windows {
    /// Windows of these lengths from t0 on; without lengths there is one.
    pub fn new(lengths_ns: &[i64], schedule: Schedule) -> Self {
        let mut windows = Self {
            next_ns: i64::MAX,
            later: schedules(lengths_ns, schedule)
                .iter()
                .map(|s| s.t0_ns)
                .rev()
                .collect(),
            left: lengths_ns.len(),
        };
        if !lengths_ns.is_empty() {
            windows.next_ns = windows.later.pop().unwrap_or(i64::MAX);
        }
        windows
    }

    /// Schedule by which a thread counts calls as measured. With several windows all calls count, since each window has
    /// counts of its own.
    pub fn counted(lengths_ns: &[i64], schedule: Schedule) -> Schedule {
        let t0_ns = if lengths_ns.is_empty() {
            schedule.t0_ns
        } else {
            schedule.start_ns
        };
        Schedule { t0_ns, ..schedule }
    }

    /// True if the next window has begun. None begins once no call may start any more.
    #[inline]
    pub fn is_over(&self, now_ns: i64) -> bool {
        now_ns >= self.next_ns
    }

    /// Beginning of the next window; `i64::MAX` after the last.
    pub fn next_ns(&self) -> i64 {
        self.next_ns
    }

    /// Goes on to the next window; false if none begins any more.
    pub fn next(&mut self, control: &Control) -> bool {
        let begins = self.next_ns < control.deadline_ns();
        self.next_ns = match self.later.pop() {
            Some(next_ns) if begins => next_ns,
            _ => i64::MAX,
        };
        self.left -= usize::from(begins);
        begins
    }

    /// Number of windows that never began.
    pub fn left(&self) -> usize {
        self.left
    }
}

/// Schedule of each window.
pub fn schedules(lengths_ns: &[i64], schedule: Schedule) -> Vec<Schedule> {
    if lengths_ns.is_empty() {
        return vec![schedule];
    }
    let mut t0_ns = schedule.t0_ns;
    lengths_ns
        .iter()
        .map(|&length_ns| {
            let t1_ns = t0_ns.saturating_add(length_ns);
            let window = Schedule {
                t0_ns,
                t1_ns,
                ..schedule
            };
            t0_ns = t1_ns;
            window
        })
        .collect()
}
