//! Samples at random instants: activity, which the server shows, and the wait event word, read from its memory.

pub mod blocked;
pub mod memory;
pub mod memory_rows;
pub mod pace;
pub mod priority;
pub mod rows;
pub mod sampler;
pub mod tables;
