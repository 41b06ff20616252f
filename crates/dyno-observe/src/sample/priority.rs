//! A real-time priority for a sampler's thread, so that its instants do not depend on who leaves a CPU.
//! sched(7), "Scheduling policies".

use std::io;

use crate::status::{Refusal, Status};

/// Gives the calling thread `SCHED_FIFO` 1, not inherited by threads it makes.
///
/// # Errors
/// The missing right; the thread goes on as it was.
pub fn raise() -> Result<(), Refusal> {
    let priority: libc::c_int = 1; // the kernel's sched_param
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `priority` is valid for reading; 0 is the calling thread. A system call, since musl has none of that name.
    if unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    let root = rustix::process::geteuid().is_root();
    let cure = if root {
        "the CPU control group grants no real-time time (cpu.rt_runtime_us), or CAP_SYS_NICE was taken away"
    } else {
        "give dbdyno CAP_SYS_NICE, or its user a real-time limit: the line 'USER - rtprio 1' in \
         /etc/security/limits.conf, then a new login; until then samples come late when all CPUs are busy"
    };
    Err(Refusal::new(Status::from_error(&error), cure))
}
