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
