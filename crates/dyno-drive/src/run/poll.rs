//! epoll(7), edge-triggered: after the set-up one system call for many ready sessions.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use dyno_model::{Error, Result, timespec};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

const BATCH: usize = 256;

/// Waits for many descriptors, each under a number of its own.
pub struct Poll {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
    /// The system takes time-outs in nanoseconds.
    precise: bool,
}

/// Events to wait for. Errors and hang-ups are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Readable.
    Read,
    /// Writable, or readable.
    Write,
}

impl Poll {
    /// An epoll instance without descriptors.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn new() -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|e| failed(&e.into()))?;
        Ok(Self {
            epoll,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; BATCH],
            precise: true,
        })
    }

    /// Adds a descriptor.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn add(&self, fd: BorrowedFd<'_>, number: usize) -> Result<()> {
        epoll::add(
            &self.epoll,
            fd,
            EventData::new_u64(number as u64),
            flags(Interest::Read),
        )
        .map_err(|e| failed(&e.into()))
    }

    /// Changes the events that a descriptor is waited for.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn change(&self, fd: BorrowedFd<'_>, number: usize, interest: Interest) -> Result<()> {
        epoll::modify(
            &self.epoll,
            fd,
            EventData::new_u64(number as u64),
            flags(interest),
        )
        .map_err(|e| failed(&e.into()))
    }

    /// Waits until something is ready, at most `timeout_ns` (-1: for ever, 0: only looks); how many are.
    ///
    /// # Errors
    /// When the operating system refuses.
    #[inline]
    pub fn wait(&mut self, timeout_ns: i64) -> Result<usize> {
        loop {
            let n = if timeout_ns > 0 && self.precise {
                self.wait_precisely(timeout_ns)
            } else {
                self.wait_ms(timeout_ns)
            };
            if n >= 0 {
                return Ok(n as usize);
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // Linux before 5.11, or a filter of system calls that does not know it.
                Some(libc::ENOSYS | libc::EPERM) if self.precise => self.precise = false,
                _ => return Err(failed(&error)),
            }
        }
    }

    fn wait_ms(&mut self, timeout_ns: i64) -> libc::c_int {
        let most = match timeout_ns {
            0.. => (timeout_ns as u64).div_ceil(1_000_000) as libc::c_int,
            _ => -1,
        };
        let (events, room) = (self.events.as_mut_ptr(), self.events.len() as libc::c_int);
        // SAFETY: `events` has room for so many.
        unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events, room, most) }
    }

    fn wait_precisely(&mut self, timeout_ns: i64) -> libc::c_int {
        let timeout = timespec(timeout_ns);
        let (events, room) = (self.events.as_mut_ptr(), self.events.len());
        let no_mask = std::ptr::null::<libc::sigset_t>();
        let epoll = self.epoll.as_raw_fd();
        let call = libc::SYS_epoll_pwait2; // older C libraries have no function for it
        // SAFETY: `events` has room for so many, and `timeout` is valid for reading.
        unsafe { libc::syscall(call, epoll, events, room, &raw const timeout, no_mask, 0) as libc::c_int }
    }

    /// Number of the `i`-th ready descriptor.
    #[inline]
    pub fn ready(&self, i: usize) -> usize {
        self.events[i].u64 as usize
    }
}

fn flags(interest: Interest) -> EventFlags {
    match interest {
        Interest::Read => EventFlags::IN | EventFlags::ET,
        Interest::Write => EventFlags::IN | EventFlags::ET | EventFlags::OUT,
    }
}

#[cold]
fn failed(error: &io::Error) -> Error {
    Error::Io(format!("epoll: {error}"))
}
