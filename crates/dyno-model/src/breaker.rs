//! Breaks waits off from another thread.
//!
//! Numbers of descriptors are not passed between threads: the owner may have closed one, and the process may have
//! reused its number for another file. A breaker refers to what is waited on, and is sure that it is still open.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::net::{Shutdown, shutdown};

use crate::{Error, Result};

/// Something that a thread waits on and another may end.
pub trait Breakable: Send + Sync {
    /// Ends the wait that is under way, and those to come.
    fn break_off(&self);
}

/// A socket: shutdown(2) wakes whoever waits on it.
impl<S: AsFd + Send + Sync> Breakable for S {
    fn break_off(&self) {
        let _ = shutdown(self, Shutdown::Both); // refused where the other end is gone
    }
}

/// Knows what a session, or a whole load, waits on, without keeping it open. Clones are the same breaker.
#[derive(Clone, Default)]
pub struct Breaker(Arc<Shared>);

#[derive(Default)]
struct Shared(Mutex<State>);

#[derive(Default)]
struct State {
    broken: bool,
    watched: Vec<Weak<dyn Breakable>>,
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Breakable for Shared {
    fn break_off(&self) {
        let mut state = self.state();
        state.broken = true;
        for target in state.watched.drain(..).filter_map(|w| w.upgrade()) {
            target.break_off();
        }
    }
}

impl Breaker {
    /// A breaker of its own that is also broken with this one.
    ///
    /// # Errors
    /// [`Error::Aborted`] after [`abort`](Self::abort).
    pub fn child(&self) -> Result<Self> {
        let child = Self::default();
        self.watch(&child.0)?;
        Ok(child)
    }

    /// Breaks `target` off, too, as long as it exists.
    ///
    /// # Errors
    /// [`Error::Aborted`] after [`abort`](Self::abort).
    pub fn watch<B: Breakable + 'static>(&self, target: &Arc<B>) -> Result<()> {
        let mut state = self.0.state();
        if state.broken {
            return Err(Error::Aborted);
        }
        if state.watched.len() == state.watched.capacity() {
            state.watched.retain(|w| w.strong_count() > 0);
        }
        let target: Weak<B> = Arc::downgrade(target);
        state.watched.push(target);
        Ok(())
    }

    /// Breaks all off, what is to come included.
    pub fn abort(&self) {
        self.0.break_off();
    }

    /// Returns whether [`abort`](Self::abort) was called.
    pub fn is_broken(&self) -> bool {
        self.0.state().broken
    }

    /// Returns whether any of its targets exists.
    pub fn is_in_use(&self) -> bool {
        self.0.state().watched.iter().any(|w| w.strong_count() > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::{AsRawFd, OwnedFd, RawFd};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// No other test has so many files open.
    const FREE: RawFd = 900;

    /// The same socket under the lowest free number from `number` on.
    fn at(socket: &UnixStream, number: RawFd) -> UnixStream {
        rustix::io::fcntl_dupfd_cloexec(socket, number).unwrap().into()
    }

    #[test]
    fn a_number_that_is_in_use_again_is_left_alone() {
        let breaker = Breaker::default();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let ours = Arc::new(at(&ours, FREE));
        breaker.watch(&ours).unwrap();
        let number = ours.as_raw_fd();
        drop(ours);
        let (witness, mut peer) = UnixStream::pair().unwrap();
        let witness = at(&witness, number);
        assert_eq!(witness.as_raw_fd(), number);
        breaker.abort();
        peer.set_nonblocking(true).unwrap();
        let read = peer.read(&mut [0]).map_err(|e| e.kind());
        assert_eq!(
            read,
            Err(std::io::ErrorKind::WouldBlock),
            "the witness was shut down"
        );
    }

    #[test]
    fn all_is_broken_with_the_parent_and_nothing_follows() {
        let breaker = Breaker::default();
        let child = breaker.child().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = Arc::new(OwnedFd::from(ours));
        child.watch(&ours).unwrap();
        assert!(child.is_in_use() && !child.is_broken());
        breaker.abort();
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
        assert!(child.is_broken());
        assert_eq!(child.watch(&ours), Err(Error::Aborted));
        assert!(matches!(breaker.child(), Err(Error::Aborted)));
    }

    #[test]
    fn a_child_leaves_its_parent_whole() {
        let breaker = Breaker::default();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = Arc::new(ours);
        breaker.watch(&ours).unwrap();
        breaker.child().unwrap().abort();
        assert!(!breaker.is_broken());
        theirs.set_nonblocking(true).unwrap();
        assert!(theirs.read(&mut [0]).is_err());
    }
}
