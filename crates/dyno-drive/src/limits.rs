//! Limits of the process: CPUs, descriptors.

use dyno_model::{Error, OpenFiles, Result, raise_open_files};
use rustix::thread::sched_getaffinity;

/// Descriptors for all else: epoll, logs, Python's own.
const SPARE_DESCRIPTORS: u64 = 64;
/// More at a time only make the server's listener queue.
const MOST_SIDE_BY_SIDE: usize = 16;

/// Number of CPUs in the affinity mask.
pub fn cpus() -> usize {
    // More than 1024 CPUs do not fit into the set.
    match sched_getaffinity(None).map(|set| set.count()) {
        Ok(count @ 1..) => count as usize,
        _ => std::thread::available_parallelism().map_or(1, Into::into),
    }
}

/// Number of sessions that are connected, or probed, at a time.
pub fn side_by_side(sessions: usize) -> usize {
    (2 * cpus()).clamp(4, MOST_SIDE_BY_SIDE).min(sessions)
}

/// Raises the soft limit of open descriptors so that `more` fit.
///
/// # Errors
/// [`Error::Io`] where the hard limit is too low.
pub fn make_room_for_descriptors(more: usize) -> Result<()> {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    // Descriptors that are open already count against the limit, too.
    let needed = (open + more) as u64 + SPARE_DESCRIPTORS;
    let OpenFiles { soft, hard, .. } = raise_open_files(needed);
    if soft >= needed {
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
