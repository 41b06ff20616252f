//! The engine's part of the specification of a load of scripts (docs/core.md).

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::plan::{ProbeSpec, Protocol};
use crate::target::TargetSpec;

/// A load of scripts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptLoadSpec {
    /// Which server.
    pub target: TargetSpec,
    /// Scripts of the sessions.
    pub scripts: ScriptsSpec,
    /// Groups of equal sessions.
    pub sessions: Vec<ScriptSessionSpec>,
    /// Probe of a session's counters.
    #[serde(default)]
    pub probe: Option<ProbeSpec>,
}

/// Scripts, and how they are run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptsSpec {
    /// Scripts in the order of their numbers.
    pub files: Vec<FileSpec>,
    /// Set in each session at its start.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    /// Most tries of a transaction that meets a serialization failure or a deadlock; 0: until it succeeds.
    #[serde(default = "one")]
    pub max_tries: u64,
    /// Each call on a connection of its own.
    #[serde(default)]
    pub reconnect: bool,
    /// Whether scripts may run shell commands.
    #[serde(default)]
    pub allow_shell: bool,
    /// Seed of all random numbers.
    #[serde(default)]
    pub seed: u64,
    /// `client_id` of the first session.
    #[serde(default)]
    pub first_client: u64,
}

/// A script.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSpec {
    /// Its name in messages and tables.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Weight by which it is chosen; 0: never.
    #[serde(default = "one")]
    pub weight: u64,
}

/// `count` sessions that do the same.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptSessionSpec {
    /// Number of sessions.
    #[serde(default = "one_session")]
    pub count: usize,
    /// Simple queries, after each connecting.
    #[serde(default)]
    pub setup: Vec<String>,
    /// Protocol of the statements.
    #[serde(default)]
    pub protocol: Protocol,
    /// A statement that is sent before each statement.
    #[serde(default)]
    pub validation: Option<String>,
    /// Simple queries after preparing, the last before the barrier.
    #[serde(default)]
    pub warm: Vec<String>,
    /// A pause before them, milliseconds.
    #[serde(default)]
    pub pause_ms: u64,
}

fn one() -> u64 {
    1
}

fn one_session() -> usize {
    1
}
