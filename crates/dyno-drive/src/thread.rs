//! Threads of the driver.

use std::thread::{Builder, JoinHandle};

use dyno_model::{Error, Result};

/// Starts a thread that no signal is delivered to: they are for the main thread, which waits for Ctrl-C.
///
/// # Errors
/// When the operating system has no thread left.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let old = mask(libc::SIG_SETMASK, None);
    let thread = Builder::new().name(name.to_owned()).spawn(work);
    mask(libc::SIG_SETMASK, Some(old));
    thread.map_err(|e| Error::Io(format!("cannot start a thread: {e}")))
}

/// Sets the calling thread's signal mask (`None`: all signals), which threads inherit; the one before.
fn mask(how: libc::c_int, set: Option<libc::sigset_t>) -> libc::sigset_t {
    // SAFETY: both sets are valid; filling and setting a mask has no other effect.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(how, &raw const *set.as_ref().unwrap_or(&all), &raw mut old);
        old
    }
}

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
