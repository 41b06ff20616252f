//! State that the sessions of a load share: jobs, the next job to run, room for output.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::protocol::{Job, Printed};

/// Kept of what all executions of a load print; later ones are counted only.
const KEPT_BYTES: usize = 64 << 20;

/// State that the sessions of a load share.
#[derive(Debug)]
pub struct Plan {
    /// Jobs of the load.
    pub jobs: Vec<Job>,
    in_turn: bool,
    begun: AtomicU64,
    kept: AtomicUsize,
}

impl Plan {
    /// A plan of jobs of which none has run.
    pub fn new(jobs: Vec<Job>, in_turn: bool) -> Self {
        Self {
            jobs,
            in_turn,
            begun: AtomicU64::new(0),
            kept: AtomicUsize::new(0),
        }
    }

    /// Returns the index of the job that a session runs after `number` others.
    pub fn next_job(&self, session: usize, number: i64) -> usize {
        let turn = if self.in_turn {
            self.begun.fetch_add(1, Relaxed)
        } else {
            // Session n begins with job n: all jobs run from the start.
            session as u64 + number as u64
        };
        (turn % self.jobs.len() as u64) as usize
    }

    /// Counts an output; true if there is room to keep it.
    pub fn room_for(&self, printed: Option<&[Printed; 2]>) -> bool {
        let bytes: usize = printed.into_iter().flatten().map(|p| p.text.len()).sum();
        self.kept.fetch_add(bytes, Relaxed) + bytes <= KEPT_BYTES
    }
}
