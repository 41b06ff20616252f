//! Specification of a watch. The JSON form is in `docs/core.md`.

use dyno_model::TaskId;
use serde::Deserialize;

use crate::read::places::PlaceSpec;
use crate::sample::pace::Pace;
use crate::status::Status;
use crate::word::WordSpec;

/// A task besides the sessions'.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSpec {
    /// Process.
    pub pid: i64,
    /// Task.
    pub tid: i64,
    /// `driver`, or another role that the caller chooses.
    pub role: String,
}

/// A control group.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSpec {
    /// `server` or `driver`.
    pub scope: String,
    /// 1 or 2.
    pub version: i64,
    /// Its directory.
    pub path: String,
}

/// One watch, without its engine.
#[derive(Debug, Clone, Default)]
#[allow(clippy::struct_excessive_bools)] // each a choice of its own
pub struct Spec {
    /// (session, a task that serves it); a session may have several, and others later.
    pub sessions: Vec<(i64, TaskId)>,
    /// Driver threads and the like; always on this host.
    pub tasks: Vec<TaskSpec>,
    /// Whether the server's tasks are on this host.
    pub os: bool,
    /// Status of the server's tasks if they are not.
    pub unseen: Status,
    /// The server's main process.
    pub main_pid: Option<i64>,
    /// Whether its tasks are a tree: all that it has started, directly or not.
    pub tree: bool,
    /// Activity samples a second.
    pub sample_hz: f64,
    /// Samples may cost this share of the CPUs we may use, here and at the server; beyond it there are fewer.
    pub sample_budget: f64,
    /// The server's wait event word, to be read from its processes' memory.
    pub word: Option<WordSpec>,
    /// Samples of that word a second; 0 for none.
    pub memory_hz: f64,
    /// The same budget for samples of the word.
    pub memory_budget: f64,
    /// Whether client backends that the server calls chosen become sessions as they are met.
    pub adopt: bool,
    /// Seed of the sampling instants.
    pub seed: u64,
    /// Interval between reads of all tasks.
    pub task_interval_ns: i64,
    /// Groups to read.
    pub cgroups: Vec<GroupSpec>,
    /// Whether to read the host's figures.
    pub host: bool,
    /// Directories of the server, whose devices are read with the host.
    pub places: Vec<PlaceSpec>,
}

/// Rates below it make intervals that no sum of times holds.
const FEWEST_HZ: f64 = 1e-6;
const LONGEST_INTERVAL_NS: i64 = 86_400_000_000_000;
/// More than any kernel numbers processes (`PID_MAX_LIMIT`), and than any load has sessions.
const MOST_NUMBER: i64 = i32::MAX as i64;

impl Spec {
    /// # Errors
    /// The first field that is out of range.
    pub fn check(&self) -> Result<(), String> {
        if !(FEWEST_HZ..=1000.0).contains(&self.sample_hz) {
            return Err(format!(
                "sample_hz must be from {FEWEST_HZ} to 1000, not {}",
                self.sample_hz
            ));
        }
        if self.memory_hz != 0.0 && !(FEWEST_HZ..=1000.0).contains(&self.memory_hz) {
            return Err(format!(
                "memory_hz must be 0, or from {FEWEST_HZ} to 1000, not {}",
                self.memory_hz
            ));
        }
        budget("sample_budget", self.sample_budget)?;
        if self.samples_memory() {
            budget("memory_budget", self.memory_budget)?;
        }
        if !(10_000_000..=LONGEST_INTERVAL_NS).contains(&self.task_interval_ns) {
            return Err("task_interval_ms must be from 10 to 86400000, a day".to_owned());
        }
        if let Some((session, _)) = self.sessions.iter().find(|(n, _)| !(0..=MOST_NUMBER).contains(n)) {
            return Err(format!(
                "sessions are numbered from 0 to {MOST_NUMBER}, not {session}"
            ));
        }
        if let Some(pid) = self.main_pid.filter(|pid| !(1..=MOST_NUMBER).contains(pid)) {
            return Err(format!(
                "main_pid is a process, from 1 to {MOST_NUMBER}, not {pid}"
            ));
        }
        if let Some(group) = self.cgroups.iter().find(|g| !matches!(g.version, 1 | 2)) {
            return Err(format!("cgroup version must be 1 or 2, not {}", group.version));
        }
        PlaceSpec::check(&self.places)
    }

    /// Returns whether there is a word to be sampled.
    pub fn samples_memory(&self) -> bool {
        self.os && self.word.is_some() && self.memory_hz > 0.0
    }

    /// Returns the pace of activity samples.
    pub(crate) fn sql_pace(&self) -> Pace {
        Pace {
            interval_ns: (1e9 / self.sample_hz) as i64,
            budget: self.sample_budget,
            seed: self.seed,
        }
    }

    /// Returns the pace of samples of the word, with a seed of its own so that the instants differ.
    pub(crate) fn memory_pace(&self) -> Pace {
        Pace {
            interval_ns: (1e9 / self.memory_hz) as i64,
            budget: self.memory_budget,
            seed: !self.seed,
        }
    }
}

fn budget(name: &str, share: f64) -> Result<(), String> {
    if share > 0.0 && share <= 1.0 {
        return Ok(());
    }
    Err(format!("{name} must be above 0 and at most 1, not {share}"))
}
