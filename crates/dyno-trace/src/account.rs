//! What one read of a task says: its sums, with what is under way. Pure.

use crate::layout::{Slot, UNREAD, Wait, doing};

/// Time of one task since it was first watched, in nanoseconds: `run + runq + sleep` is all of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// On a CPU.
    pub run_ns: i64,
    /// Runnable without a CPU, throttled time included.
    pub runq_ns: i64,
    /// Of which throttled by a quota.
    pub throttled_ns: i64,
    /// Asleep: from switch-out to wake-up.
    pub sleep_ns: i64,
    /// Of which uninterruptible.
    pub blocked_ns: i64,
    /// Switches into sleep.
    pub voluntary: i64,
    /// Switches away while runnable.
    pub involuntary: i64,
    /// Labels that found no room, events that were not seen and could not be made good.
    pub lost: i64,
    /// Events that were not seen, and made good from the kernel's own sums.
    pub mended: i64,
}

/// Time off the CPU under one label, and how often it was met on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// The wait event word; `None`: it could not be read.
    pub code: Option<u32>,
    /// Asleep.
    pub sleep_ns: i64,
    /// In the run queue, throttled time included.
    pub runq_ns: i64,
    /// Of which throttled.
    pub throttled_ns: i64,
    /// How often it fell asleep so.
    pub sleeps: i64,
    /// How often it lost its CPU so while runnable.
    pub preempted: i64,
    /// Clock ticks that found it on a CPU so.
    pub run_samples: i64,
}

/// What was under way when a task was first watched, for one that has had no event since.
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
    /// From the state letter of `/proc/PID/stat`.
    pub fn of(state: char) -> Self {
        match state {
            'R' => Self::Runnable,
            'D' => Self::Blocked,
            _ => Self::Asleep,
        }
    }
}

/// The sums of a slot at `now_ns`, with what is under way. `throttled_now_ns`: how much of the wait in the
/// queue that is under way was throttled.
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
    let ns = now_ns.saturating_sub(slot.since_ns);
    match (slot.doing, seed) {
        (doing::RUNNING, _) | (doing::UNKNOWN, Seed::Runnable) => sums.run_ns += ns as i64,
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
            let wait = &mut waits[slot.wait as usize % waits.len()];
            wait.sleep_ns += asleep_ns;
            wait.runq_ns += queued_ns;
            wait.throttled_ns += throttled_ns;
        }
        (doing::UNKNOWN, _) => {
            sums.sleep_ns += ns as i64;
            sums.blocked_ns += if seed == Seed::Blocked { ns as i64 } else { 0 };
            add_sleep(&mut waits, slot.seed_label, ns);
        }
        _ => {} // ended
    }
    (sums, waits.iter().filter_map(label).collect())
}

fn add_sleep(waits: &mut [Wait], label: u32, ns: u64) {
    let of_label = waits.iter().position(|w| w.used != 0 && w.label == label);
    let place = of_label.or_else(|| waits.iter().position(|w| w.used == 0));
    if let Some(wait) = place.map(|n| &mut waits[n]) {
        wait.label = label;
        wait.used = 1;
        wait.sleep_ns += ns;
    }
}

fn label(wait: &Wait) -> Option<Label> {
    let something = wait.sleep_ns + wait.runq_ns + wait.sleeps + wait.preempted + wait.run_samples > 0;
    (wait.used != 0 && something).then(|| Label {
        code: (wait.label != UNREAD).then_some(wait.label),
        sleep_ns: wait.sleep_ns as i64,
        runq_ns: wait.runq_ns as i64,
        throttled_ns: wait.throttled_ns as i64,
        sleeps: wait.sleeps as i64,
        preempted: wait.preempted as i64,
        run_samples: wait.run_samples as i64,
    })
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
