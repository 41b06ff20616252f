//! The exact tier: a BPF program on the scheduler's tracepoints that keeps, for each watched task, its time on
//! a CPU, in the run queue and asleep, the latter two by the wait event word it had set when it left the CPU.
//! The program is `bpf/sched.bpf.c`, compiled by `tools/build_bpf.sh`; here it is loaded and read.

mod account;
mod book;
mod idle;
mod layout;
mod load;
mod rows;
mod stacks;
mod system_calls;
mod trace;

pub use trace::{Opened, Options, open};
