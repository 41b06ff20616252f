//! Common to all crates: one clock, brackets, tables, the error tree, and the traits an engine fills.
//! Knows no engine and no room.

mod activity;
mod breaker;
mod clock;
mod engine;
mod error;
mod limits;
pub mod poll;
pub mod proc;
pub mod raw;
mod rng;
mod session;
mod table;
mod texts;
mod thread;

pub use activity::{
    ActivityProbe, ActivityRow, BLOCKED_NUMBERS, BLOCKED_TEXTS, BlockedRow, EndedTask, TaskId,
};
pub use breaker::{Breakable, Breaker};
pub use clock::{Bracket, boot_ns, now_ns, thread_cpu_ns, timespec};
pub use engine::{Counter, Engine, Reading, count_sessions};
pub use error::{Error, Refusal, Result};
pub use limits::{OpenFiles, raise_open_files};
pub use rng::SplitMix64;
pub use session::{CallEnd, Progress, Session, Start, Traffic};
pub use table::{Column, Nullable, Table};
pub use texts::{Coded, NullableTexts, Strings, Texts};
pub use thread::spawn;
