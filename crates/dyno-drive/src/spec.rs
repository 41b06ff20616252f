//! The driver's part of a load's specification (docs/core.md); the rest is the engine's.

use dyno_model::{Error, Result};
use serde::Deserialize;

use crate::{ArrivalSpec, Think};

/// Each thread keeps counts for each.
const MOST_WINDOWS: usize = 10_000;
/// Calls in a log: it has 48 bytes for each, reserved before the load starts.
const MOST_LOGGED: usize = 100_000_000;

/// The driver's half of a specification.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spec {
    /// Driver threads; `None`: one a CPU of the affinity mask, at most one a session.
    pub threads: Option<usize>,
    /// Keep a record of each call.
    pub log_calls: bool,
    /// Most calls in the log, all threads together: the first ones of each thread.
    pub log_limit: usize,
    /// Log the CPU that the backend last ran on and its migrations, if its process is on this machine.
    pub log_cpu: bool,
    /// Run in rounds on one thread: all sessions begin a call together, and the next when all have ended.
    pub rounds: bool,
    /// A session also ends after so many calls.
    pub max_calls: Option<u64>,
    /// All sessions together begin at most so many calls.
    pub shared_calls: Option<u64>,
    /// Time from the end of a call to the start of the session's next.
    pub think_us: u64,
    /// A distribution of think times, in place of `think_us`.
    pub think: Option<Think>,
    /// Calls are begun when they are due, not when the one before has ended: an open loop.
    pub arrivals: Option<ArrivalSpec>,
    /// Lengths of the windows that the measurement is cut into, ns; none: it is one.
    pub windows_ns: Vec<i64>,
    /// Seed of the think times: the same seed gives each session the same ones.
    pub seed: u64,
    /// The number of its first session among those of several drivers, for what depends on the number.
    pub first_session: u64,
    /// A call still out this long after the end: its session is lost.
    pub grace_ms: u64,
}

impl Spec {
    /// Names of the keys that are the driver's.
    pub const KEYS: [&'static str; 14] = [
        "threads",
        "log_calls",
        "log_limit",
        "log_cpu",
        "rounds",
        "max_calls",
        "shared_calls",
        "think_us",
        "think",
        "arrivals",
        "windows_ns",
        "seed",
        "first_session",
        "grace_ms",
    ];

    /// Refuses what cannot be driven together.
    ///
    /// # Errors
    /// [`Error::Spec`] with the cure.
    pub fn check(&self) -> Result<()> {
        let refuse = |words: &str| Err(Error::Spec(words.to_owned()));
        if self.think.is_some() && self.think_us > 0 {
            return refuse("think and think_us: give one of them");
        }
        if self.arrivals.is_some() && self.rounds {
            return refuse(
                "arrivals and rounds: calls begin when they are due, or together; leave out one of them",
            );
        }
        if self.arrivals.is_some() && (self.think.is_some() || self.think_us > 0) {
            return refuse("arrivals and think: the arrivals set when calls begin; leave out one of them");
        }
        if self.arrivals.is_some() && self.shared_calls.is_some() {
            return refuse(
                "arrivals and shared_calls: the arrivals set how many calls begin; leave out one of them",
            );
        }
        if self.windows_ns.iter().any(|&length_ns| length_ns <= 0) {
            return refuse("windows_ns: give lengths above 0");
        }
        if self.windows_ns.len() > MOST_WINDOWS {
            return Err(Error::Spec(format!("windows_ns: give at most {MOST_WINDOWS}")));
        }
        if self.log_calls && self.log_limit > MOST_LOGGED {
            return Err(Error::Spec(format!(
                "log_limit: give at most {MOST_LOGGED} calls"
            )));
        }
        self.think.as_ref().map_or(Ok(()), Think::check)?;
        self.arrivals.as_ref().map_or(Ok(()), ArrivalSpec::check)
    }

    /// The distribution of think times. `None` if sessions do not think.
    pub(crate) fn thinks(&self) -> Option<Think> {
        let mean_us = self.think_us as f64;
        self.think
            .or((self.think_us > 0).then_some(Think::Constant { mean_us }))
    }
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
            shared_calls: None,
            think_us: 0,
            think: None,
            arrivals: None,
            windows_ns: Vec::new(),
            seed: 1,
            first_session: 0,
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

    fn spec(text: &str) -> Spec {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_cannot_be_driven_together_is_refused_with_the_cure() {
        let paced = r#""arrivals": {"kind": "poisson", "rate": [[1, 5, 5]]}"#;
        for (more, cure) in [
            (r#""rounds": true"#, "leave out one"),
            (r#""think_us": 1"#, "leave out one"),
            (r#""think": {"kind": "constant", "mean_us": 1}"#, "leave out one"),
            (
                r#""think_us": 1, "arrivals": null, "think": {"kind": "constant", "mean_us": 1}"#,
                "give one",
            ),
        ] {
            let paced = if more.contains("arrivals") {
                r#""seed": 1"#
            } else {
                paced
            };
            let error = spec(&format!("{{{paced}, {more}}}"))
                .check()
                .unwrap_err()
                .to_string();
            assert!(error.contains(cure), "{error}");
        }
        assert_eq!(spec(&format!("{{{paced}}}")).check(), Ok(()));
    }

    #[test]
    fn a_rate_without_an_arrival_or_of_nonsense_is_refused() {
        for rate in ["[]", "[[1, 0, 0]]", "[[0, 5, 5]]", "[[1, -1, 5]]"] {
            let text = format!(r#"{{"arrivals": {{"kind": "constant", "rate": {rate}}}}}"#);
            let error = spec(&text).check().unwrap_err().to_string();
            assert!(error.contains("give"), "{error}");
        }
    }

    #[test]
    fn a_constant_think_time_is_one_of_the_distributions() {
        assert_eq!(
            spec(r#"{"think_us": 5}"#).thinks(),
            Some(Think::Constant { mean_us: 5.0 })
        );
        assert_eq!(spec("{}").thinks(), None);
    }
}
