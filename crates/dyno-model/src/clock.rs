//! One clock for everything: `CLOCK_MONOTONIC`, in nanoseconds.

use rustix::time::Timespec;

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[inline]
pub fn now_ns() -> i64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since boot, those of suspension included.
pub fn boot_ns() -> i64 {
    clock_ns(libc::CLOCK_BOOTTIME)
}

/// CPU time of the calling thread, nanoseconds.
pub fn thread_cpu_ns() -> i64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// By the C library, which finds the vDSO in a static program, too; there rustix would make a system call.
#[inline]
fn clock_ns(clock: libc::clockid_t) -> i64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is valid for writing; these clocks exist since Linux 2.6.39.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// Returns a time for system calls.
#[inline]
pub fn timespec(ns: i64) -> Timespec {
    Timespec {
        tv_sec: ns / 1_000_000_000,
        tv_nsec: ns % 1_000_000_000,
    }
}

/// The time bracket of a read: what was read was true at some instant in `before_ns..=after_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bracket {
    /// Before the read.
    pub before_ns: i64,
    /// After the read.
    pub after_ns: i64,
}

impl Bracket {
    /// Runs `read` and brackets it.
    pub fn around<T>(read: impl FnOnce() -> T) -> (Self, T) {
        let before_ns = now_ns();
        let value = read();
        (
            Self {
                before_ns,
                after_ns: now_ns(),
            },
            value,
        )
    }

    /// The middle of the bracket.
    pub fn middle_ns(self) -> i64 {
        self.before_ns + (self.after_ns - self.before_ns) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_does_not_go_back_and_brackets_hold_their_middle() {
        let (bracket, inside) = Bracket::around(now_ns);
        assert!(bracket.before_ns <= inside && inside <= bracket.after_ns);
        assert!(bracket.before_ns <= bracket.middle_ns() && bracket.middle_ns() <= bracket.after_ns);
    }
}
