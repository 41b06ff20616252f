//! Threads of the core.

use std::thread::{Builder, JoinHandle};

use crate::{Error, Result};

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
