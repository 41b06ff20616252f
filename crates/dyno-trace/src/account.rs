//! Sums of a task from one read of its slot, the current state included. Pure.

use dyno_bpf::{OTHERS, UNREAD};

use crate::layout::{Slot, Wait, doing};

/// Time of one task since it was first watched, in nanoseconds: `run + runq + sleep` is all of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// On a CPU.
    pub run_ns: i64,
    /// Runnable without a CPU, throttled time included.
    pub runq_ns: i64,
    /// Part of `runq_ns` that was throttled by a quota.
    pub throttled_ns: i64,
    /// Asleep: from switch-out to wake-up.
    pub sleep_ns: i64,
    /// Part of `sleep_ns` that was uninterruptible.
    pub blocked_ns: i64,
    /// Switches into sleep.
    pub voluntary: i64,
    /// Switches away while runnable.
    pub involuntary: i64,
    /// Labels that found no room, and missed events that could not be reconstructed.
    pub lost: i64,
    /// Missed events that were reconstructed from the kernel's own sums.
    pub mended: i64,
}

/// A label in a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    /// The wait event word, or None if it could not be read.
    pub code: Option<u32>,
    /// Id of the statement; 0 if there is none or it was not read, [`OTHERS`] for several that found no room.
    pub query: u64,
}

impl Name {
    /// Returns whether it stands for several statements.
    pub fn others(&self) -> bool {
        self.query == OTHERS
    }
}

/// Time under one label in one statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    pub name: Name,
    /// Asleep.
    pub sleep_ns: i64,
    /// In the run queue, throttled time included.
    pub runq_ns: i64,
    /// Part of `runq_ns` that was throttled.
    pub throttled_ns: i64,
    /// Part of `runq_ns` after a wait for the next statement, to which it moves once that statement's id is known.
    pub open_ns: i64,
    /// Number of times it fell asleep.
    pub sleeps: i64,
    /// Number of waits. Consecutive sleeps in one system call are one wait.
    pub begun: i64,
    /// Sleeps for which it is not known whether they continue a wait.
    pub unclear: i64,
    /// Number of times it lost its CPU while runnable.
    pub preempted: i64,
    /// Clock ticks that found it on a CPU.
    pub run_samples: i64,
    /// Time on a CPU in slices that ended under this label.
    pub run_ns: i64,
    /// Part of `run_ns` in slices that began in another statement.
    pub came_ns: i64,
    /// Time on a CPU in slices that began in this statement and ended in another.
    pub left_ns: i64,
}

/// State of a task when it was first watched, used until its first event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seed {
    /// Running, or about to.
    Runnable,
    /// Asleep.
    Asleep,
    /// Asleep and uninterruptible.
    Blocked,
}

impl Seed {
    /// Returns the state for a state letter of `/proc/PID/stat`.
    pub fn from_state(state: char) -> Self {
        match state {
            'R' => Self::Runnable,
            'D' => Self::Blocked,
            _ => Self::Asleep,
        }
    }
}

/// Returns the sums of a slot at `now_ns`, the current state included. The sums of its labels add up to those of the
/// task. `throttled_now_ns` is the throttled part of the current wait in the run queue.
pub fn sums(slot: &Slot, seed: Seed, now_ns: u64, throttled_now_ns: u64) -> (Sums, Vec<Label>) {
    let mut sums = Sums {
        run_ns: slot.run_ns as i64,
        runq_ns: slot.runq_ns as i64,
        throttled_ns: slot.throttled_ns as i64,
        sleep_ns: slot.sleep_ns as i64,
        blocked_ns: slot.blocked_ns as i64,
        voluntary: slot.voluntary as i64,
        involuntary: slot.involuntary as i64,
        lost: slot.lost as i64,
        mended: slot.mended as i64,
    };
    let mut waits = slot.waits;
    let wait = slot.wait as usize % waits.len();
    let mut open_ns = slot.owed_ns;
    waits[wait].runq_ns += slot.owed_ns;
    waits[wait].throttled_ns += slot.owed_throttled_ns;
    let ns = now_ns.saturating_sub(slot.since_ns);
    match (slot.doing, seed) {
        (doing::RUNNING, _) => {
            sums.run_ns += ns as i64;
            waits[wait].run_ns += ns;
        }
        (doing::UNKNOWN, Seed::Runnable) => {
            sums.run_ns += ns as i64;
            at_seed(&mut waits, slot, |w| w.run_ns += ns);
        }
        (doing::QUEUED | doing::ASLEEP | doing::WOKEN, _) => {
            let asleep_ns = match slot.doing {
                doing::QUEUED => 0,
                doing::ASLEEP => ns,
                _ => slot.woken_ns.saturating_sub(slot.since_ns).min(ns),
            };
            let queued_ns = ns - asleep_ns;
            let throttled_ns = throttled_now_ns.min(queued_ns);
            sums.sleep_ns += asleep_ns as i64;
            sums.blocked_ns += if slot.blocked == 0 { 0 } else { asleep_ns as i64 };
            sums.runq_ns += queued_ns as i64;
            sums.throttled_ns += throttled_ns as i64;
            let wait = &mut waits[wait];
            wait.sleep_ns += asleep_ns;
            wait.runq_ns += queued_ns;
            wait.throttled_ns += throttled_ns;
            if slot.query != 0 && wait.label == slot.idle {
                open_ns += queued_ns;
            }
        }
        (doing::UNKNOWN, _) => {
            sums.sleep_ns += ns as i64;
            sums.blocked_ns += if seed == Seed::Blocked { ns as i64 } else { 0 };
            at_seed(&mut waits, slot, |w| w.sleep_ns += ns);
        }
        _ => {} // ended
    }
    let with_open = |(n, w): (usize, &Wait)| label(w, if n == wait { open_ns } else { 0 });
    (sums, waits.iter().enumerate().filter_map(with_open).collect())
}

/// Returns whether a copy of a slot is consistent: all time since the task was first watched is in one of three sums,
/// and under one label. The program writes both in the same event, so they are equal to the nanosecond.
pub fn adds_up(slot: &Slot) -> bool {
    let label_sum = |part: fn(&Wait) -> u64| slot.waits.iter().map(part).fold(0, u64::wrapping_add);
    let all = slot.run_ns.wrapping_add(slot.runq_ns).wrapping_add(slot.sleep_ns);
    all == slot.since_ns.wrapping_sub(slot.first_ns)
        && label_sum(|w| w.sleep_ns) == slot.sleep_ns
        && label_sum(|w| w.runq_ns).wrapping_add(slot.owed_ns) == slot.runq_ns
        // a slice whose end was not seen has no label, and is counted as lost
        && (slot.lost > 0 || label_sum(|w| w.run_ns) == slot.run_ns)
}

/// Returns whether a task was ready to run when it was first watched and has had no event and no clock tick since: it
/// may be on a CPU or in the run queue.
pub fn undecided(slot: &Slot, seed: Seed) -> bool {
    let met = || slot.waits.iter().any(|w| w.run_samples > 0);
    slot.doing == doing::UNKNOWN && seed == Seed::Runnable && !met()
}

fn at_seed(waits: &mut [Wait], slot: &Slot, add: impl FnOnce(&mut Wait)) {
    let (label, query) = (slot.seed_label, slot.seed_query);
    let of_label = waits
        .iter()
        .position(|w| w.used != 0 && w.label == label && w.query == query);
    let place = of_label.or_else(|| waits.iter().position(|w| w.used == 0));
    if let Some(wait) = place.map(|n| &mut waits[n]) {
        (wait.label, wait.query, wait.used) = (label, query, 1);
        add(wait);
    }
}

fn name(wait: &Wait) -> Name {
    Name {
        code: (wait.label != UNREAD).then_some(wait.label),
        query: wait.query,
    }
}

fn label(wait: &Wait, open_ns: u64) -> Option<Label> {
    let time_ns = wait.sleep_ns + wait.runq_ns + wait.run_ns + wait.left_ns;
    let something = time_ns + wait.sleeps + wait.preempted + wait.run_samples > 0;
    (wait.used != 0 && something).then(|| Label {
        name: name(wait),
        sleep_ns: wait.sleep_ns as i64,
        runq_ns: wait.runq_ns as i64,
        throttled_ns: wait.throttled_ns as i64,
        open_ns: open_ns as i64,
        sleeps: wait.sleeps as i64,
        begun: wait.begun as i64,
        unclear: wait.unclear as i64,
        preempted: wait.preempted as i64,
        run_samples: wait.run_samples as i64,
        run_ns: wait.run_ns as i64,
        came_ns: wait.came_ns as i64,
        left_ns: wait.left_ns as i64,
    })
}

/// Number of waits of one label and statement in one bucket of durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duration {
    pub name: Name,
    /// Whether the wait was in the run queue, else asleep.
    pub queue: bool,
    /// Lower bound of the bucket in ns, or None for a current wait. There are four buckets for each power of two.
    pub from_ns: Option<i64>,
    pub count: i64,
}

/// Returns the histograms of a slot, the current waits included. Waits that began before the task was watched are left
/// out.
pub fn durations(slot: &Slot) -> Vec<Duration> {
    let duration = |n: usize, queue: bool, from_ns: Option<i64>, count: u32| Duration {
        name: name(&slot.waits[n % slot.waits.len()]),
        queue,
        from_ns,
        count: i64::from(count),
    };
    let cells = slot.cells.iter().zip(&slot.counts).filter(|&(_, &n)| n > 0);
    let mut all: Vec<Duration> = cells
        .filter_map(|(&cell, &count)| {
            let cell = usize::from(cell).checked_sub(1)?;
            Some(duration(
                cell >> 8,
                cell & 0x80 != 0,
                Some(from_ns(cell & 0x7f)),
                count,
            ))
        })
        .collect();
    let wait = slot.wait as usize;
    let asleep = matches!(slot.doing, doing::ASLEEP | doing::WOKEN);
    if slot.seeded == 0 {
        all.extend(asleep.then(|| duration(wait, false, None, 1)));
        all.extend(
            (asleep || slot.doing == doing::QUEUED || slot.owes != 0).then(|| duration(wait, true, None, 1)),
        );
    }
    all
}

/// Returns the lower bound of bucket `n`, the inverse of `bucket_of` in the program.
pub fn from_ns(n: usize) -> i64 {
    match n.checked_sub(1) {
        None => 0,
        Some(n) => (4 + (n as i64 & 3)) << (n / 4 + 8),
    }
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
