//! Commands as calls. One launcher process starts and reaps them all; a session of the driver is a socket to it.

mod activity;
pub mod contain;
mod engine;
mod launcher;
mod netlink;
mod plan;
mod proc;
mod protocol;
mod session;
mod tables;
mod taskstats;
mod tree;
mod wchan;

pub use activity::{Activity, ActivitySpec};
pub use engine::{CommandSpec, Commands};
pub use launcher::{Find, launch};
pub use session::CommandSession;
