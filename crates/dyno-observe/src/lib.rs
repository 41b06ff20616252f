//! The operating system's data sources and the loops that read them. Knows no engine: who waits for what is
//! asked through [`dyno_model::ActivityProbe`].
//!
//! `read` has the texts of the operating system, `sample` the threads that sample waits, `word` the wait event word.
//! The modules beside them are the watch that runs them all.

mod profiler;
pub mod pulse;
mod read;
mod reader;
mod roster;
mod sample;
mod schedule;
mod shared;
mod signal;
mod spec;
pub mod status;
mod tracer;
mod watch;
pub mod word;

pub use places::PlaceSpec;
pub use profiler::Profiler;
pub use read::{
    block, cpu_stat, device_rows, file, freezers, groups, host, maps, mountinfo, once, page_cache, parse,
    places, psi, schedstat, stat, switches, task,
};
pub use shared::UNSEEN;
pub use spec::{GroupSpec, Spec, TaskSpec};
pub use status::{Granted, Refusal, Status};
pub use tracer::Tracer;
pub use watch::{Probe, Watch};
pub use word::names::Names;
pub use word::{StatementSpec, Word, WordFinder, WordSpec, behind, elf, names, read_behind};
