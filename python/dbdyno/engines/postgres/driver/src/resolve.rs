//! Addresses of host names by a deadline. getaddrinfo(3) has none and cannot be broken off: it runs on a thread of its
//! own, which is left behind where it takes too long.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dyno_model::{Breakable, Breaker, Error, Result, spawn};

/// Threads of this process that may be at it, those left behind included.
const MOST: usize = 64;
/// Interval at which a look-up without room tries again.
const ROUND: Duration = Duration::from_millis(10);

static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// The inner error: the name has no address, or none was given by the deadline.
///
/// # Errors
/// [`Error::Aborted`], [`Error::Io`] where no thread can be started.
pub fn addresses(
    host: &str,
    port: u16,
    deadline: Instant,
    breaker: &Breaker,
) -> Result<io::Result<Vec<SocketAddr>>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(Ok(vec![SocketAddr::new(address, port)]));
    }
    let host = host.to_owned();
    let look_up = move || Ok((host.as_str(), port).to_socket_addrs()?.collect());
    by(deadline, breaker, look_up)
}

fn by(
    deadline: Instant,
    breaker: &Breaker,
    look_up: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> Result<io::Result<Vec<SocketAddr>>> {
    let waiting = Arc::new(Lookup::default());
    breaker.watch(&waiting)?;
    let Some(room) = room(deadline, breaker) else {
        let words = format!("{MOST} look-ups of host names are not answered: check the system's resolver");
        return aborted(breaker).map(|()| Err(io::Error::other(words)));
    };
    let answered = waiting.clone();
    spawn("dyno-resolve", move || {
        let answer = look_up();
        answered.state().answer = Some(answer);
        answered.changed.notify_all();
        drop(room);
    })?;
    let answer = waiting.wait(deadline);
    aborted(breaker)?;
    let late = || io::Error::other("its name was not resolved in time: check the system's resolver");
    Ok(answer.unwrap_or_else(|| Err(late())))
}

fn aborted(breaker: &Breaker) -> Result<()> {
    if breaker.is_broken() {
        return Err(Error::Aborted);
    }
    Ok(())
}

/// A lookup under way, shared with the thread that waits for the resolver.
#[derive(Default)]
struct Lookup {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    answer: Option<io::Result<Vec<SocketAddr>>>,
    broken: bool,
}

impl Lookup {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, deadline: Instant) -> Option<io::Result<Vec<SocketAddr>>> {
        let left = deadline.saturating_duration_since(Instant::now());
        let open = |state: &mut State| state.answer.is_none() && !state.broken;
        let waited = self.changed.wait_timeout_while(self.state(), left, open);
        waited.unwrap_or_else(PoisonError::into_inner).0.answer.take()
    }
}

impl Breakable for Lookup {
    fn break_off(&self) {
        self.state().broken = true;
        self.changed.notify_all();
    }
}

/// One of [`MOST`].
struct Room;

impl Drop for Room {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Relaxed);
    }
}

/// `None`: at the deadline, or broken off.
fn room(deadline: Instant, breaker: &Breaker) -> Option<Room> {
    let more = |n: usize| (n < MOST).then_some(n + 1);
    while UNDER_WAY.fetch_update(Relaxed, Relaxed, more).is_err() {
        if Instant::now() >= deadline || breaker.is_broken() {
            return None;
        }
        std::thread::sleep(ROUND);
    }
    Some(Room)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Answers when the sender is dropped.
    fn slow() -> (mpsc::Sender<()>, impl FnOnce() -> io::Result<Vec<SocketAddr>>) {
        let (release, wait) = mpsc::channel::<()>();
        (release, move || {
            let _ = wait.recv();
            Ok(Vec::new())
        })
    }

    fn words(done: Result<io::Result<Vec<SocketAddr>>>) -> String {
        done.unwrap().unwrap_err().to_string()
    }

    #[test]
    fn an_address_and_a_name_of_this_machine_are_found() {
        let deadline = Instant::now() + Duration::from_secs(30);
        for host in ["127.0.0.1", "::1", "localhost"] {
            let resolved = addresses(host, 5, deadline, &Breaker::default());
            let resolved = resolved.unwrap().unwrap();
            assert!(resolved.iter().all(|a| a.ip().is_loopback() && a.port() == 5) && !resolved.is_empty());
        }
    }

    /// In one test, because the limit is the process's.
    #[test]
    fn a_name_that_is_not_resolved_ends_with_the_deadline_or_the_load() {
        let far = Instant::now() + Duration::from_secs(600);
        let soon = || Instant::now() + Duration::from_millis(20);
        let (release, look_up) = slow();
        assert!(words(by(soon(), &Breaker::default(), look_up)).contains("not resolved in time"));
        drop(release);

        let breaker = Breaker::default();
        let (release, look_up) = slow();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| by(far, &breaker, look_up));
            std::thread::sleep(Duration::from_millis(20));
            breaker.abort();
            assert_eq!(waiting.join().unwrap().unwrap_err(), Error::Aborted);
        });
        drop(release);

        let mut left_behind = Vec::new();
        let full = (0..=MOST).any(|_| {
            let (release, look_up) = slow();
            left_behind.push(release);
            words(by(soon(), &Breaker::default(), look_up)).contains("are not answered")
        });
        assert!(full);
        left_behind.clear();
        let resolved = by(far, &Breaker::default(), || Ok(Vec::new()));
        assert!(
            resolved.unwrap().unwrap().is_empty(),
            "those that have ended make room"
        );
    }
}
