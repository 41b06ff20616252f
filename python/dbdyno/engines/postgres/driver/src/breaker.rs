//! Breaks connections off from another thread: `shutdown(2)` wakes whoever waits on the socket.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use dyno_model::{Error, Result};
use socket2::Socket;

/// Knows the sockets of many connections without keeping them open.
#[derive(Clone, Debug, Default)]
pub struct Breaker(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    broken: bool,
    sockets: Vec<Weak<Socket>>,
}

impl Breaker {
    /// Adds a socket.
    ///
    /// # Errors
    /// [`Error::Aborted`] when all was broken off already.
    pub fn watch(&self, socket: &Arc<Socket>) -> Result<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.broken {
            return Err(Error::Aborted);
        }
        if state.sockets.len() == state.sockets.capacity() {
            state.sockets.retain(|s| s.strong_count() > 0);
        }
        state.sockets.push(Arc::downgrade(socket));
        Ok(())
    }

    /// Breaks all connections, those to come included.
    pub fn abort(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.broken = true;
        for socket in state.sockets.drain(..).filter_map(|s| s.upgrade()) {
            // The other end may have closed it before: nothing to break then.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// True after [`abort`](Self::abort).
    pub fn is_broken(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).broken
    }
}
