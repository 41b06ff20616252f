//! Loads, watches and pulses by number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dyno_drive::Phases;
use dyno_observe::pulse::Pulse;

use crate::reply::Fault;
use crate::spooled::Spooled;

/// Upper bound of the handles, each of which has threads of its own.
const MOST: usize = 1000;

/// A load, watch or pulse that a client has made.
#[derive(Clone)]
pub enum Handle {
    Load(Arc<dyn Phases>),
    Watch(Arc<Spooled>),
    Pulse(Arc<Pulse>),
}

/// All handles by number.
#[derive(Default)]
pub struct Handles(Mutex<(u64, HashMap<u64, Handle>)>);

impl Handles {
    fn inner(&self) -> MutexGuard<'_, (u64, HashMap<u64, Handle>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, handle: Handle) -> Result<u64, Fault> {
        let mut inner = self.inner();
        if inner.1.len() >= MOST {
            drop(inner);
            end(&handle);
            return Err(Fault::agent(
                "busy",
                "too many loads, watches and pulses at a time",
            ));
        }
        inner.0 += 1;
        let number = inner.0;
        inner.1.insert(number, handle);
        Ok(number)
    }

    fn get(&self, number: u64) -> Option<Handle> {
        self.inner().1.get(&number).cloned()
    }

    pub fn load(&self, number: u64) -> Result<Arc<dyn Phases>, Fault> {
        match self.get(number) {
            Some(Handle::Load(load)) => Ok(load),
            _ => Err(none("load", number)),
        }
    }

    pub fn watch(&self, number: u64) -> Result<Arc<Spooled>, Fault> {
        match self.get(number) {
            Some(Handle::Watch(watch)) => Ok(watch),
            _ => Err(none("watch", number)),
        }
    }

    pub fn pulse(&self, number: u64) -> Result<Arc<Pulse>, Fault> {
        match self.get(number) {
            Some(Handle::Pulse(pulse)) => Ok(pulse),
            _ => Err(none("pulse", number)),
        }
    }

    /// Removes one. A load is aborted, a watch stopped.
    pub fn remove(&self, number: u64) -> Result<(), Fault> {
        let removed = self.inner().1.remove(&number);
        removed
            .map(|handle| end(&handle))
            .ok_or_else(|| none("thing", number))
    }

    /// Ends all: aborts the loads, then waits for them, at most for `most`.
    pub fn end(&self, most: Duration) {
        let handles: Vec<Handle> = self.inner().1.drain().map(|(_, handle)| handle).collect();
        let until = Instant::now() + most;
        let loads = handles.iter().filter_map(|handle| match handle {
            Handle::Load(load) => Some(load),
            _ => None,
        });
        loads.clone().for_each(|load| load.abort());
        for load in loads {
            // A failure is an end, too.
            let _ = load.wait(until.saturating_duration_since(Instant::now()));
        }
    }
}

fn end(handle: &Handle) {
    match handle {
        Handle::Load(load) => load.abort(),
        Handle::Watch(spooled) => spooled.watch.stop(),
        Handle::Pulse(_) => (),
    }
}

fn none(what: &str, number: u64) -> Fault {
    Fault::agent("unknown", format!("there is no {what} {number}"))
}
