//! Threads of the driver.

use std::num::NonZero;
use std::thread::Builder;

pub use dyno_model::spawn;
use dyno_model::timespec;
use rustix::thread::{ClockId, clock_nanosleep_absolute, gettid, set_current_timer_slack};

/// Sleeps of the calling thread end when they are to, not up to 50 us later to spare wake-ups (the kernel's default).
pub fn wake_precisely() {
    const SLACK_NS: NonZero<u64> = NonZero::new(1000).unwrap();
    let _ = set_current_timer_slack(Some(SLACK_NS)); // refused, sleeps are less precise
}

/// Sleeps until `at_ns` of the one clock, or a signal.
pub fn sleep_until(at_ns: i64) {
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &timespec(at_ns)); // an error is a signal
}

/// The calling thread's id, as in `/proc/self/task`.
pub fn tid() -> i64 {
    i64::from(gettid().as_raw_pid())
}

/// Runs `work` on so many threads at once and waits for all of them.
pub fn crew(threads: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for number in 1..threads {
            let started = Builder::new()
                .name(format!("dyno-crew-{number}"))
                .spawn_scoped(scope, &work);
            if started.is_err() {
                // Fewer threads do the same work.
                break;
            }
        }
        work();
    });
}
