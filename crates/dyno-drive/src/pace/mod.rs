//! When calls begin: arrivals of an open loop and the queue before the sessions, think times of a closed one.

pub mod arrivals;
pub mod pacing;
pub mod queue;
pub mod think;
