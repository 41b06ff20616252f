//! The common part of `dyno-trace` and `dyno-profile`: the rights that BPF takes, loading of programs, their memory, where
//! processes have the ids of statements, and the stacks of sleeps, which one takes and the other unwinds.

mod layout;
mod loading;
mod memory;
pub mod rights;
mod stacks;
mod statements;

pub use layout::{Asleep, OTHERS, PAGE, Plain, UNREAD, Woken};
pub use loading::{defect, kernel_types, load_refusal, load_uninterrupted, program_refusal, unsupported};
pub use memory::MappedArray;
pub use stacks::{SleepEvent, SleepStacks};
pub use statements::{Statement, Statements};
