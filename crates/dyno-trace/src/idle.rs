//! Programs that are loaded and attached to nothing: the trace of the next window takes one of them, as loading costs ten
//! times as much as attaching. Their memory is large, so they are closed after a while.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use dyno_bpf::rights;
use dyno_observe::Granted;

use crate::load::{Loaded, Wanted, fresh};

static IDLE: Mutex<Idle<Wanted, Loaded>> = Mutex::new(Idle::new());
/// Two, as a window may be opened before the previous one is closed.
const MOST: usize = 2;
/// Longer than the pause between two windows of a run.
const KEPT: Duration = Duration::from_secs(20);
/// Interval between two searches for programs to close.
const LOOK: Duration = Duration::from_secs(5);
/// Pause after detaching, as the program may still run on another CPU.
const SETTLED: Duration = Duration::from_millis(20);

/// Idle values by kind, and since when each is idle.
struct Idle<K, T> {
    all: Vec<(K, Instant, T)>,
    /// Whether a thread runs that closes those that are idle for too long.
    swept: bool,
}

impl<K: PartialEq, T> Idle<K, T> {
    const fn new() -> Self {
        Self {
            all: Vec::new(),
            swept: false,
        }
    }

    fn put(&mut self, kind: K, now: Instant, thing: T) -> Vec<T> {
        let (kept, mut others): (Vec<_>, _) = std::mem::take(&mut self.all)
            .into_iter()
            .partition(|(k, ..)| *k == kind);
        self.all = kept;
        if self.all.len() < MOST {
            self.all.push((kind, now, thing));
        } else {
            others.push((kind, now, thing));
        }
        others.into_iter().map(|(_, _, thing)| thing).collect()
    }

    /// Takes one of this kind, and returns it with the time since when it was idle.
    fn take(&mut self, kind: &K) -> Option<(Instant, T)> {
        let place = self.all.iter().position(|(k, ..)| k == kind)?;
        let (_, since, thing) = self.all.swap_remove(place);
        Some((since, thing))
    }

    /// Takes those that were idle for too long.
    fn take_old(&mut self, now: Instant) -> Vec<T> {
        let (old, kept): (Vec<_>, _) = std::mem::take(&mut self.all)
            .into_iter()
            .partition(|(_, since, _)| now.saturating_duration_since(*since) >= KEPT);
        self.all = kept;
        old.into_iter().map(|(_, _, thing)| thing).collect()
    }
}

fn with_idle<R>(work: impl FnOnce(&mut Idle<Wanted, Loaded>) -> R) -> R {
    work(&mut IDLE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A program that is attached until the lease is dropped, and idle from then on.
pub struct Lease(Wanted, Option<Loaded>);

impl Deref for Lease {
    type Target = Loaded;

    fn deref(&self) -> &Loaded {
        self.1.as_ref().expect("taken only when it is dropped")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Loaded {
        self.1.as_mut().expect("taken only when it is dropped")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(mut loaded) = self.1.take() else { return };
        loaded.detach();
        let (closed, sweep) = with_idle(|idle| {
            let closed = idle.put(self.0.clone(), Instant::now(), loaded);
            (closed, !std::mem::replace(&mut idle.swept, true))
        });
        drop(closed);
        let named = thread::Builder::new().name("dbdyno-idle".to_owned());
        if sweep && named.spawn(sweep_idle).is_err() {
            drop(with_idle(|idle| {
                idle.swept = false;
                std::mem::take(&mut idle.all)
            }));
        }
    }
}

/// Closes programs that are idle for too long, until there is none.
fn sweep_idle() {
    loop {
        thread::sleep(LOOK);
        let (old, done) = with_idle(|idle| {
            let old = idle.take_old(Instant::now());
            idle.swept = !idle.all.is_empty();
            (old, !idle.swept)
        });
        drop(old); // outside of the lock: it takes a while
        if done {
            return;
        }
    }
}

/// Attaches an idle program, or loads one if there is none.
///
/// # Errors
/// Not permitted or not supported, with the kernel's words.
pub fn load(wanted: Wanted, main_pid: Option<i64>) -> Granted<Lease> {
    rights::check(main_pid)?;
    rights::check_order()?;
    let mut loaded = match with_idle(|idle| idle.take(&wanted)) {
        Some((since, mut loaded)) => {
            thread::sleep(SETTLED.saturating_sub(since.elapsed()));
            loaded.book.clear();
            loaded.missed_before += loaded.missed();
            loaded
        }
        None => fresh(&wanted)?,
    };
    loaded.attach(wanted.calls.is_some())?;
    Ok(Lease(wanted, Some(loaded)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_one_kind_are_kept_and_at_most_two() {
        let (mut idle, now) = (Idle::new(), Instant::now());
        assert_eq!(idle.put("a", now, 1), []);
        assert_eq!(idle.put("a", now, 2), []);
        assert_eq!(idle.put("a", now, 3), [3]);
        assert_eq!(idle.take(&"b"), None);
        assert_eq!(idle.take(&"a"), Some((now, 1)));
        assert_eq!(idle.put("b", now, 4), [2]);
    }

    #[test]
    fn those_that_nobody_took_for_a_while_are_closed() {
        let (mut idle, now) = (Idle::new(), Instant::now());
        idle.put("a", now, 1);
        idle.put("a", now + LOOK, 2);
        assert_eq!(idle.take_old(now + LOOK), []);
        assert_eq!(idle.take_old(now + KEPT), [1]);
        assert_eq!(idle.take_old(now + KEPT + LOOK), [2]);
        assert!(idle.all.is_empty());
    }
}
