//! PostgreSQL's wire client: the driver's hot path, and the activity probe.

mod activity;
mod authentication;
mod client;
mod collector;
mod engine;
mod frame;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
#[cfg(test)]
mod hostile_tests;
mod link;
mod loader;
mod machine;
#[cfg(test)]
mod machine_tests;
mod messages;
mod plan;
mod resolve;
mod script;
mod server;
mod server_error;
mod session;
#[cfg(test)]
mod session_tests;
mod socket;
mod startup;
mod target;
mod tls;
mod verify;
mod wire;
mod x509;

pub use activity::{Activity, ActivitySpec};
pub use client::{Client, Rows};
pub use engine::Postgres;
pub use loader::{ColumnSpec, Content, LoadProgress, Loader, LoaderSpec, StepSpec, Sum, TableSpec};
pub use plan::{CounterSpec, LoadSpec, ProbeSpec, Protocol, SessionSpec, StatementSpec};
pub use script::{FileSpec, ScriptLoadSpec, ScriptSession, ScriptSessionSpec, ScriptedPostgres, ScriptsSpec};
pub use session::PgSession;
pub use target::{AuthSpec, Binding, Method, TargetSpec, TcpSpec, TlsSpec, Verify, Version};
pub use tls::TlsSetup;
