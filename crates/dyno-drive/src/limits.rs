//! What the process may use: CPUs, descriptors.

use dyno_model::{Error, Result};

/// Descriptors for all else: epoll, logs, Python's own.
const SPARE_DESCRIPTORS: u64 = 64;

/// CPUs of the affinity mask.
pub fn cpus() -> usize {
    // SAFETY: a cpu_set_t of zeros is valid, and written within its size.
    let count = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        match libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) {
            0 => libc::CPU_COUNT(&set),
            _ => 0,
        }
    };
    // More than 1024 CPUs do not fit into the set.
    if count > 0 {
        count as usize
    } else {
        std::thread::available_parallelism().map_or(1, Into::into)
    }
}

/// Raises the soft limit of open descriptors so that `more` fit.
///
/// # Errors
/// [`Error::Io`] where the hard limit is too low.
pub fn make_room_for_descriptors(more: usize) -> Result<()> {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let needed = (open + more) as u64 + SPARE_DESCRIPTORS;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid for writing.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 || limit.rlim_cur >= needed {
        return Ok(());
    }
    let hard = limit.rlim_max;
    limit.rlim_cur = needed.min(hard);
    // SAFETY: `limit` is valid for reading.
    let raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == 0;
    if raised && limit.rlim_cur >= needed {
        return Ok(());
    }
    Err(Error::Io(format!(
        "{needed} open files are needed and the hard limit is {hard}; raise it (ulimit -Hn, or LimitNOFILE) \
         or ask for fewer sessions"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_cpu_and_room_for_a_few_descriptors_but_not_for_all() {
        assert!(cpus() >= 1);
        assert_eq!(make_room_for_descriptors(10), Ok(()));
        let error = make_room_for_descriptors(usize::MAX / 4).unwrap_err();
        assert!(error.to_string().contains("hard limit"), "{error}");
    }
}
