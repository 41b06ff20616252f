//! One measurement cut into windows, one after the other. A call belongs to the window in which it ends, its start and
//! its delay to the one in which it starts: what waits at the end of a window is begun, and counted, in the next.

use crate::Schedule;
use crate::run::control::Control;

/// How one thread goes from window to window.
#[derive(Clone, Debug)]
pub struct Windows {
    /// Where the next one begins; the end of time when there is none.
    next_ns: i64,
    /// Where the others after it begin, last first.
    later: Vec<i64>,
    /// How many there are still to come.
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

    /// What a thread counts as measured: with several windows all there is, as each keeps its own.
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

    /// On to the next one, if it still begins.
    pub fn next(&mut self, control: &Control) -> bool {
        let begins = self.next_ns < control.deadline_ns();
        self.next_ns = match self.later.pop() {
            Some(next_ns) if begins => next_ns,
            _ => i64::MAX,
        };
        self.left -= usize::from(begins);
        begins
    }

    /// How many never began.
    pub fn left(&self) -> usize {
        self.left
    }
}

/// When each window is.
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
