//! The CPU profile: a clock on each CPU samples the task it comes upon, with its stack. Those of the server's
//! tasks are unwound as they come, and named in the end.
//!
//! A BPF program on these clocks (`bpf/label.bpf.c`, compiled by `tools/build_bpf.sh`) drops the samples of other
//! tasks and reads what the server's tasks wait for.
//!
//! One event a CPU, never one a task: events of tasks are stopped and started with each switch, which costs a
//! half of the throughput of short calls.

mod book;
mod events;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
#[cfg(test)]
mod golden_tests;
mod kallsyms;
mod labels;
mod losses;
mod maps;
mod objects;
mod profile;
mod records;
mod registers;
mod rights;
mod ring;
mod sleeps;
mod space;
mod symbols;
mod tables;

pub use profile::{Options, open};
pub use sleeps::{SOURCE as OFF_CPU, Sleeps};
