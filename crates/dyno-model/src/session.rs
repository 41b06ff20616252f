//! Interface of an engine for the driver's hot path: a connected session that makes one call after another.

use std::ops::Sub;
use std::os::fd::BorrowedFd;

use crate::{Breaker, Result, TaskId};

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEnd {
    /// It succeeded.
    Ok,
    /// The server returned an error; the session goes on.
    Failed {
        /// The server's code.
        code: [u8; 5],
        /// The server's message (kept only for the first of a code).
        message: String,
    },
    /// It was not begun, since it was too late when the session was ready. Nothing is counted.
    NotMade,
}

/// Progress of a call.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// Wait until the descriptor is readable, then call [`Session::advance`].
    Read,
    /// Wait until the descriptor is writable, then call [`Session::advance`].
    Write,
    /// The call pauses until this instant (ns of the one clock); then call [`Session::advance`].
    Sleep(i64),
    /// The call is over.
    Done(CallEnd),
}

/// Begin of a call, for the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Start {
    /// Now, ns of the one clock.
    pub now_ns: i64,
    /// Whether the call counts as measured.
    pub measured: bool,
    /// A call that failed is not tried again at or after this instant, or without limit if None.
    pub no_try_from_ns: Option<i64>,
}

/// Bytes of a protocol in both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Sent to the server.
    pub sent: u64,
    /// Received from it.
    pub received: u64,
}

impl Sub for Traffic {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            sent: self.sent - earlier.sent,
            received: self.received - earlier.received,
        }
    }
}

/// One connected, prepared session. The driver knows nothing else of an engine.
///
/// A call is begun by [`begin`](Self::begin) and carried on by [`advance`](Self::advance) until either
/// returns [`Progress::Done`]. Both may block only while the descriptor is in blocking mode. An `Err` means
/// that the session is lost. [`Progress::Read`] is returned only after the descriptor was read empty, and
/// [`Progress::Write`] only after it was filled: the driver waits for edges, not levels.
pub trait Session: Send {
    /// The descriptor to wait on.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Breaks off from another thread whatever the session waits on, on each of its connections.
    fn breaker(&self) -> Breaker;
    /// Puts the descriptor into blocking or non-blocking mode.
    ///
    /// # Errors
    /// When the operating system refuses.
    fn set_blocking(&mut self, blocking: bool) -> Result<()>;
    /// Sends the next call.
    ///
    /// # Errors
    /// When the session is lost.
    fn begin(&mut self, start: Start) -> Result<Progress>;
    /// Carries the call on after the descriptor became ready. `buffer` is the thread's scratch space (at
    /// least 4 KiB): one for all its sessions, so that it stays in the cache; it keeps nothing in between.
    ///
    /// # Errors
    /// When the session is lost.
    fn advance(&mut self, buffer: &mut [u8]) -> Result<Progress>;
    /// The server's task that serves this session, if known.
    fn backend(&self) -> Option<TaskId>;
    /// Messages that calls sent and waited for, since it was connected; `None`: not counted.
    fn round_trips(&self) -> Option<u64> {
        None
    }
    /// Bytes of the protocol that calls sent and received, since it was connected; `None`: not counted.
    fn traffic(&self) -> Option<Traffic> {
        None
    }
    /// How many scripts its calls are of; 0: it knows none, and its calls are not kept apart.
    fn scripts(&self) -> usize {
        0
    }
    /// Which of them the call that ended last (or is under way) was of.
    fn script(&self) -> usize {
        0
    }
    /// When the call that ended last did, in ns of the one clock, if the session has read that then. It is not read again.
    fn ended_ns(&self) -> Option<i64> {
        None
    }
    /// When the call that ended last was really begun, where that was later than [`begin`](Self::begin): what the session
    /// did before is no part of it. Paced calls are counted from when they were due all the same.
    fn started_ns(&self) -> Option<i64> {
        None
    }
    /// Tells whether the call that ended last was measured, once it has been counted.
    fn counted(&mut self, _measured: bool) {}
    /// How often the call that ended last was tried again.
    fn retries(&self) -> u64 {
        0
    }
    /// True once after its descriptor was replaced by another in the same mode (it connected again): the driver then
    /// waits on that one. Asked after each [`begin`](Self::begin) and [`advance`](Self::advance).
    fn fd_changed(&mut self) -> bool {
        false
    }
    /// Returns what came in place of an answer, in words, for a call that is given up.
    fn remark(&self) -> Option<String> {
        None
    }
}
