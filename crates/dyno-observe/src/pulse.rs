//! Detects periods in which this process did not run: a thread that does nothing but wake looks for holes in its own
//! time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use dyno_model::{Error, Result, boot_ns, now_ns};

use crate::read::schedstat;
use crate::signal::{Signal, lock};

const BEAT_NS: i64 = 50_000_000;

/// Shortest hole. A thread that waits for a CPU is in the run queue, which is no part of a hole.
const HOLE_NS: i64 = 500_000_000;

/// When all threads go on after a hole, another may ask before this one has seen it: it waits for so long.
const PATIENCE_NS: i64 = 5_000_000_000;

/// Time in which this process did not run though it wanted to, and was in no run queue either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// `CLOCK_MONOTONIC`: it was seen last.
    pub from_ns: i64,
    /// And seen again.
    pub to_ns: i64,
    /// It was stopped (SIGSTOP, a debugger, a freezer, a paused virtual machine) for so long.
    pub stopped_ns: i64,
    /// The machine was suspended for so long: `CLOCK_BOOTTIME` went on, `CLOCK_MONOTONIC` did not.
    pub suspended_ns: i64,
}

/// Looks for holes until it is dropped.
pub struct Pulse {
    signal: Arc<Signal>,
    holes: Arc<Mutex<Vec<Hole>>>,
    /// When the thread woke last.
    woke_ns: Arc<AtomicI64>,
}

/// One wake-up of the thread.
#[derive(Debug, Clone, Copy, Default)]
#[allow(clippy::struct_field_names)] // units belong to names
struct Beat {
    at_ns: i64,
    /// The same by the boot clock, which counts time in which the machine was suspended.
    boot_ns: i64,
    /// On a CPU or in the run queue, up to now.
    ready_ns: i64,
}

impl Pulse {
    /// Starts the thread.
    ///
    /// # Errors
    /// When no thread can be made.
    pub fn new() -> Result<Self> {
        let pulse = Self {
            signal: Arc::default(),
            holes: Arc::default(),
            woke_ns: Arc::new(AtomicI64::new(now_ns())),
        };
        let (signal, holes) = (Arc::clone(&pulse.signal), Arc::clone(&pulse.holes));
        let woke_ns = Arc::clone(&pulse.woke_ns);
        thread::Builder::new()
            .name("dbdyno-pulse".to_owned())
            .spawn(move || {
                let mut last = Beat::now();
                while !signal.sleep_until(last.at_ns + BEAT_NS) {
                    let now = Beat::now();
                    lock(&holes).extend(hole(last, now));
                    woke_ns.store(now.at_ns, Ordering::Release);
                    last = now;
                }
            })
            .map_err(|e| Error::Io(format!("cannot start a thread: {e}")))?;
        Ok(pulse)
    }

    /// Returns the holes up to now.
    pub fn holes(&self) -> Vec<Hole> {
        let until_ns = now_ns() + PATIENCE_NS;
        while now_ns() - self.woke_ns.load(Ordering::Acquire) > HOLE_NS && now_ns() < until_ns {
            thread::sleep(Duration::from_millis(5));
        }
        lock(&self.holes).clone()
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.signal.update(|s| s.stop = true);
    }
}

impl Beat {
    fn now() -> Self {
        let read = std::fs::read_to_string("/proc/thread-self/schedstat");
        let sched = read.ok().and_then(|text| schedstat::parse(&text).ok());
        Self {
            at_ns: now_ns(),
            boot_ns: boot_ns(),
            ready_ns: sched.map_or(0, |s| s.run_ns + s.runq_ns),
        }
    }
}

fn hole(last: Beat, now: Beat) -> Option<Hole> {
    let gone_ns = now.at_ns - last.at_ns;
    let stopped_ns = gone_ns - BEAT_NS - (now.ready_ns - last.ready_ns);
    let suspended_ns = now.boot_ns - last.boot_ns - gone_ns;
    let real = |ns: i64| if ns >= HOLE_NS { ns } else { 0 };
    (real(stopped_ns) + real(suspended_ns) > 0).then_some(Hole {
        from_ns: last.at_ns,
        to_ns: now.at_ns,
        stopped_ns: real(stopped_ns),
        suspended_ns: real(suspended_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn after(gone_ns: i64, ready_ns: i64, suspended_ns: i64) -> Option<(i64, i64)> {
        let last = Beat {
            at_ns: 5 * S,
            boot_ns: 7 * S,
            ready_ns: S,
        };
        let now = Beat {
            at_ns: last.at_ns + gone_ns,
            boot_ns: last.boot_ns + gone_ns + suspended_ns,
            ready_ns: last.ready_ns + ready_ns,
        };
        hole(last, now).map(|h| (h.stopped_ns, h.suspended_ns))
    }

    #[test]
    fn who_waits_for_a_cpu_was_not_stopped() {
        assert_eq!(after(BEAT_NS, 0, 0), None);
        assert_eq!(after(BEAT_NS + S / 5, 0, 0), None, "late by 200 ms");
        assert_eq!(after(BEAT_NS + 10 * S, 10 * S, 0), None, "starved");
        assert_eq!(after(BEAT_NS + 10 * S, S, 0), Some((9 * S, 0)));
        assert_eq!(after(BEAT_NS, 0, 10 * S), Some((0, 10 * S)));
        assert_eq!(after(BEAT_NS + 2 * S, 0, 3 * S), Some((2 * S, 3 * S)));
    }

    #[test]
    fn a_process_that_runs_has_no_holes() {
        let pulse = Pulse::new().unwrap();
        thread::sleep(std::time::Duration::from_millis(200));
        assert_eq!(pulse.holes(), []);
    }
}
