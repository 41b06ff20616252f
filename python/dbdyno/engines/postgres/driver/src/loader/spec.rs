//! Specification and progress of a loader.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::table::TableSpec;
use crate::target::TargetSpec;

/// Specification of a loader.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoaderSpec {
    /// The server.
    pub target: TargetSpec,
    /// Connections.
    pub workers: usize,
    /// Seed of all random content.
    pub seed: u64,
    /// Statements that each connection begins with.
    #[serde(default)]
    pub setup: Vec<String>,
    /// Steps, one after the other.
    pub steps: Vec<StepSpec>,
}

/// Jobs that may be done at the same time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    /// Name of the step in progress and errors.
    pub name: String,
    /// Tables to be filled.
    #[serde(default)]
    pub tables: Vec<TableSpec>,
    /// Statements; those of an entry run on one connection, in order.
    #[serde(default)]
    pub statements: Vec<Vec<String>>,
    /// By name of a table that is filled: what follows when all of it is there, while others are still filled.
    /// The first entry, then the others beside each other.
    #[serde(default)]
    pub after: BTreeMap<String, Vec<Vec<String>>>,
}

/// Progress of a loader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadProgress {
    /// The step under way, from 0.
    pub step: usize,
    /// Rows sent.
    pub rows: u64,
    /// Bytes of COPY data sent.
    pub bytes: u64,
}
