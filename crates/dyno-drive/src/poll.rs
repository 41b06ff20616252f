//! epoll(7), edge-triggered: after the set-up one system call for many ready sessions.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use dyno_model::{Error, Result};

const BATCH: usize = 256;

/// Waits for many descriptors, each under a number of its own.
pub struct Poll {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

/// What to wait for. Errors and hang-ups are always told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Readable.
    Read,
    /// Writable, or readable.
    Write,
}

impl Poll {
    /// Nothing to wait for yet.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn new() -> Result<Self> {
        // SAFETY: the descriptor is new and ours.
        let epoll = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                return Err(failed());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Self {
            epoll,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; BATCH],
        })
    }

    /// Waits for `fd` too.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn add(&self, fd: RawFd, number: usize) -> Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, number, Interest::Read)
    }

    /// Waits for something else of `fd`.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn change(&self, fd: RawFd, number: usize, interest: Interest) -> Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, number, interest)
    }

    fn control(&self, what: libc::c_int, fd: RawFd, number: usize, interest: Interest) -> Result<()> {
        let write = if interest == Interest::Write {
            libc::EPOLLOUT
        } else {
            0
        };
        let events = (libc::EPOLLIN | libc::EPOLLET | write) as u32;
        let mut event = libc::epoll_event {
            events,
            u64: number as u64,
        };
        // SAFETY: `event` is valid for reading.
        match unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), what, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(failed()),
        }
    }

    /// Waits until something is ready, at most `timeout_ms` (-1: for ever, 0: only looks); how many are.
    ///
    /// # Errors
    /// When the operating system refuses.
    #[inline]
    pub fn wait(&mut self, timeout_ms: i32) -> Result<usize> {
        loop {
            let (events, room) = (self.events.as_mut_ptr(), self.events.len() as libc::c_int);
            // SAFETY: `events` has room for so many.
            let n = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events, room, timeout_ms) };
            if n >= 0 {
                return Ok(n as usize);
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return Err(failed());
            }
        }
    }

    /// Number of the `i`-th ready descriptor.
    #[inline]
    pub fn ready(&self, i: usize) -> usize {
        self.events[i].u64 as usize
    }
}

#[cold]
fn failed() -> Error {
    Error::Io(format!("epoll: {}", io::Error::last_os_error()))
}
