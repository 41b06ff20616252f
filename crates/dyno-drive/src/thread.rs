//! Threads of the driver.

use std::thread::Builder;

pub use dyno_model::spawn;

/// Sleeps of the calling thread end when they are to, not up to 50 us later to spare wake-ups (the kernel's default).
pub fn wake_precisely() {
    const SLACK_NS: libc::c_ulong = 1000;
    // SAFETY: changes an attribute of the calling thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS) };
}

/// Sleeps until `at_ns` of the one clock, or a signal.
pub fn sleep_until(at_ns: i64) {
    let until = timespec(at_ns);
    // SAFETY: `until` is valid for reading; the remaining time is not asked for.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const until,
            std::ptr::null_mut(),
        )
    };
}

/// For the system's calls.
pub fn timespec(ns: i64) -> libc::timespec {
    libc::timespec {
        tv_sec: ns / 1_000_000_000,
        tv_nsec: ns % 1_000_000_000,
    }
}

/// The calling thread's id, as in `/proc/self/task`.
pub fn tid() -> i64 {
    // SAFETY: has no arguments and cannot fail.
    i64::from(unsafe { libc::gettid() })
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
