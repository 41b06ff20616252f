//! The driver: N sessions on a barrier, started together, counted exactly, stopped by themselves.
//!
//! It knows no engine: an engine gives it sessions whose next call is a matter of bytes
//! ([`dyno_model::Engine`], [`dyno_model::Session`]). Many sessions share a thread (one epoll loop each); a
//! thread with one session blocks on it, which is cheaper. The way of a load:
//!
//! [`Phases::connect`] (`load`) → [`Fleet::park`] → [`Phases::start`] → `run::worker` → [`Outcome`] →
//! [`Phases::finish`] → [`Phases::tables`].
//!
//! `load` has the phases, `run` the threads that make calls, `pace` when calls begin, `count` what is counted of them,
//! `tables` the results.

mod count;
mod limits;
mod load;
#[cfg(all(test, loom))]
mod loom_models;
mod pace;
mod run;
mod schedule;
mod spec;
mod sync;
mod tables;
mod thread;

pub use count::call_log::{CallLog, LoggedCall};
pub use count::errors::{ErrorTally, LOST};
pub use count::histogram::Latency;
pub use count::script::{ScriptCalls, ScriptTally};
pub use count::seconds::SecondCounts;
pub use count::tally::{Durations, Tally, Times};
pub use load::Load;
pub use load::phases::{Failure, Phases};
pub use pace::arrivals::{ArrivalKind, ArrivalSpec};
pub use pace::pacing::{PaceTally, Paced};
pub use pace::think::Think;
pub use run::control::{Control, Progress};
pub use run::fleet::{Fleet, Outcome};
pub use run::seat::{End, Record};
pub use schedule::Schedule;
pub use spec::Spec;
