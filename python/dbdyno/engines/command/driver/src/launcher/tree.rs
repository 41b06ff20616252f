//! The processes of an execution besides its first: those of its process group, and those that came to the launcher
//! (a child subreaper) when who started them ended.

use std::time::Duration;

use rustix::process::Signal;

use crate::{contain, proc};

/// A process that ignores this many rounds of SIGKILL cannot be killed (it is in the kernel, uninterruptibly).
const ROUNDS: usize = 50;
const REAPED_AT_ONCE: usize = 2000;
/// Time between two rounds.
pub const ROUND: Duration = Duration::from_millis(2);

/// Asks all processes below it to end, in groups of their own too, and those that are stopped. They are looked for
/// first: below whoever has ended there is nobody.
pub fn ask_to_end(leader: i32, mark: &str) {
    let mut all: Vec<_> = contain::with_descendants(leader).into_iter().collect();
    all.extend(orphans().into_iter().filter(|&pid| belongs(pid, leader, mark)));
    proc::signal_group(leader, Signal::TERM);
    for pid in all {
        for signal in [Signal::TERM, Signal::CONT] {
            proc::signal(pid, signal);
        }
    }
}

/// True if something has outlived the first process of an execution.
pub fn has_left_over(leader: i32, mark: &str) -> bool {
    orphans().into_iter().any(|pid| belongs(pid, leader, mark))
}

/// Kills what outlived the first process of an execution; how many those were. `mark`: `DBDYNO_SESSION=n`.
pub fn kill_left_over(leader: i32, mark: &str) -> i64 {
    let mut killed = std::collections::BTreeSet::new();
    for _ in 0..ROUNDS {
        let left: Vec<_> = orphans()
            .into_iter()
            .filter(|&pid| belongs(pid, leader, mark))
            .collect();
        if left.is_empty() {
            break;
        }
        proc::signal_group(leader, Signal::KILL); // at once, so that no fork escapes
        for pid in left {
            // A child of ours that has not been waited for, unless it ended just now; then its number is free, and not
            // used again so soon.
            proc::signal(pid, Signal::KILL);
            killed.insert(pid);
        }
        std::thread::sleep(ROUND);
    }
    killed.len() as i64
}

/// Living processes that came to the main thread (Documentation/filesystems/proc.rst, 3.7): it starts none itself.
pub fn orphans() -> Vec<i32> {
    let mut children = proc::children(std::process::id(), std::process::id());
    children.retain(|pid| proc::stat(pid).is_some_and(|stat| stat.is_alive()));
    children
}

fn belongs(pid: i32, leader: i32, mark: &str) -> bool {
    proc::stat(pid).is_some_and(|stat| stat.session == leader) || proc::has_entry(pid, mark)
}

/// Waits for orphans that have ended.
pub fn reap_orphans() {
    // Whoever forks without end makes zombies as fast: other things have to be looked at.
    for _ in 0..REAPED_AT_ONCE {
        if !proc::reap_one() {
            break;
        }
    }
}
