//! Scripts in pgbench's language over the wire.

mod commands;
mod engine;
pub(crate) mod out;
pub(crate) mod plan;
mod rows;
mod run;
pub(crate) mod session;
#[cfg(test)]
mod session_tests;
mod shell;
mod spec;
mod statement;

pub use engine::ScriptedPostgres;
pub use session::ScriptSession;
pub use spec::{FileSpec, ScriptLoadSpec, ScriptSessionSpec, ScriptsSpec};
