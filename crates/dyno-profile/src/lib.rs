//! The CPU profile: a clock on each CPU samples the task it comes upon, with its stack. Those of the server's
//! tasks are unwound as they come, and named in the end.
//!
//! One event a CPU, never one a task: events of tasks are stopped and started with each switch, which costs a
//! half of the throughput of short calls.

mod book;
mod events;
#[cfg(test)]
mod golden_tests;
mod kallsyms;
mod maps;
mod objects;
mod profile;
mod records;
mod registers;
mod rights;
mod ring;
mod space;
mod symbols;
mod tables;

pub use profile::{Options, open};
