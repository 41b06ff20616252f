//! poll(2) of one descriptor.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, poll};

use crate::timespec;

/// Waits for `events` of a descriptor, at most `most_ns` (`None`: without limit); true if there were any. A signal ends
/// the wait early.
#[inline]
pub fn wait_for(fd: BorrowedFd<'_>, events: PollFlags, most_ns: Option<i64>) -> bool {
    let limit = most_ns.map(timespec);
    let mut polled = [PollFd::from_borrowed_fd(fd, events)];
    poll(&mut polled, limit.as_ref()).is_ok_and(|ready| ready > 0)
}

/// True if a read of the descriptor would not wait.
#[inline]
pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    wait_for(fd, PollFlags::IN, Some(0))
}
