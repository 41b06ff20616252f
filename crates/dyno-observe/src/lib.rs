//! The operating system's data sources and the loops that read them. Knows no engine: who waits for what is
//! asked through [`dyno_model::ActivityProbe`].
//!
//! Each source is one file with a pure `parse(&str)`; [`file::ProcFile`] is the one thin reader under all.

pub mod cpu_stat;
pub mod elf;
pub mod file;
pub mod freezers;
pub mod groups;
pub mod host;
pub mod maps;
pub mod mountinfo;
pub mod names;
pub mod once;
pub mod page_cache;
pub mod parse;
pub mod profiler;
pub mod psi;
pub mod pulse;
pub mod schedstat;
pub mod stat;
pub mod status;
pub mod switches;
pub mod task;
pub mod tracer;
pub mod word;

mod blocked;
mod cgroup_rows;
mod host_rows;
mod membership;
mod memory;
mod memory_rows;
mod pace;
mod priority;
mod reader;
mod roster;
mod sample_rows;
mod sample_tables;
mod sampler;
mod schedule;
mod shared;
mod signal;
mod spec;
mod task_rows;
mod watch;
mod word_state;

pub use names::Names;
pub use profiler::Profiler;
pub use shared::UNSEEN;
pub use spec::{GroupSpec, Spec, TaskSpec};
pub use status::{Granted, Refusal, Status};
pub use tracer::Tracer;
pub use watch::{Probe, Watch};
pub use word::{StatementSpec, Word, WordFinder, WordSpec, behind, read_behind};
