//! The driver: N sessions on a barrier, started together, counted exactly, stopped by themselves.
//!
//! It knows no engine: an engine gives it sessions whose next call is a matter of bytes
//! ([`dyno_model::Engine`], [`dyno_model::Session`]). Many sessions share a thread (one epoll loop each); a
//! thread with one session blocks on it, which is cheaper. The way of a load:
//!
//! [`Load::connect`] (`connect`) → [`Fleet::park`] → [`Load::start`] → [`worker`] → [`Outcome`] →
//! [`Load::finish`] (`probe`) → [`Load::tables`].

mod arrivals;
mod call_log;
mod connect;
mod control;
mod errors;
mod fleet;
mod histogram;
mod limits;
mod load;
mod pace;
mod paced_tables;
mod phases;
mod poll;
mod probe;
mod queue;
mod schedule;
mod script;
mod script_tables;
mod seat;
mod spec;
mod tables;
mod tally;
mod think;
mod thread;
mod windows;
mod worker;

pub use arrivals::{ArrivalKind, ArrivalSpec};
pub use call_log::{CallLog, LoggedCall};
pub use control::{Control, Progress};
pub use errors::{ErrorTally, LOST};
pub use fleet::{Fleet, Outcome};
pub use histogram::Latency;
pub use load::Load;
pub use pace::{PaceTally, Paced};
pub use phases::{Failure, Phases};
pub use schedule::Schedule;
pub use script::{ScriptCalls, ScriptTally};
pub use seat::{End, Record};
pub use spec::Spec;
pub use tally::{Durations, Tally, Times};
pub use think::Think;
