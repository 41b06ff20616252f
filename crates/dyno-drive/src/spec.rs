//! The driver's part of a load's specification (docs/core.md); the rest is the engine's.

use serde::Deserialize;

/// How to drive.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spec {
    /// Driver threads; `None`: one a CPU of the affinity mask, at most one a session.
    pub threads: Option<usize>,
    /// Keep a record of each call.
    pub log_calls: bool,
    /// Of at most so many calls, all threads together: the first ones of each thread.
    pub log_limit: usize,
    /// With the CPU the backend last ran on and how often it was moved, where its process is here.
    pub log_cpu: bool,
    /// In rounds: all sessions begin a call together, and the next when all have ended. On one thread.
    pub rounds: bool,
    /// A session also ends after so many calls.
    pub max_calls: Option<u64>,
    /// From the end of a call to the start of the session's next.
    pub think_us: u64,
    /// A call still out this long after the end: its session is lost.
    pub grace_ms: u64,
}

impl Spec {
    /// Names of the keys that are the driver's.
    pub const KEYS: [&'static str; 8] = [
        "threads",
        "log_calls",
        "log_limit",
        "log_cpu",
        "rounds",
        "max_calls",
        "think_us",
        "grace_ms",
    ];
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            threads: None,
            log_calls: false,
            log_limit: 1_000_000,
            log_cpu: false,
            rounds: false,
            max_calls: None,
            think_us: 0,
            grace_ms: 30_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_those_of_the_struct() {
        let wrong = serde_json::from_str::<Spec>(r#"{"nonsense": 1}"#)
            .unwrap_err()
            .to_string();
        for key in Spec::KEYS {
            assert!(wrong.contains(&format!("`{key}`")), "{wrong}");
        }
        assert_eq!(wrong.matches('`').count(), 2 * (Spec::KEYS.len() + 1), "{wrong}");
    }
}
