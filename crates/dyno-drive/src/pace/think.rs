//! Think times: pauses of a session between two calls.

use dyno_model::{Error, Result, SplitMix64};
use serde::Deserialize;

/// A distribution of think times, in microseconds.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "kind")]
pub enum Think {
    /// Always the same.
    Constant {
        /// The think time.
        mean_us: f64,
    },
    /// Exponential, as between customers who know nothing of each other.
    Exponential {
        /// Its mean.
        mean_us: f64,
    },
    /// Each value from `low_us` to `high_us` is as likely.
    Uniform {
        /// The shortest think time.
        low_us: f64,
        /// The longest think time.
        high_us: f64,
    },
}

impl Think {
    /// Refuses times that are not finite, below zero, or out of order.
    ///
    /// # Errors
    /// [`Error::Spec`] otherwise.
    pub fn check(&self) -> Result<()> {
        let (low, high) = match *self {
            Self::Constant { mean_us } | Self::Exponential { mean_us } => (mean_us, mean_us),
            Self::Uniform { low_us, high_us } => (low_us, high_us),
        };
        if 0.0 <= low && low <= high && high.is_finite() {
            return Ok(());
        }
        Err(Error::Spec(format!(
            "think: {low} to {high} us is not a range of times; give finite times from 0 on, the shorter one first"
        )))
    }

    /// The next think time, ns.
    pub fn draw_ns(&self, rng: &mut SplitMix64) -> i64 {
        let us = match *self {
            Self::Constant { mean_us } => mean_us,
            Self::Exponential { mean_us } => mean_us * exponential(rng),
            Self::Uniform { low_us, high_us } => low_us + (high_us - low_us) * rng.unit(),
        };
        (us * 1000.0) as i64
    }
}

/// An exponential variate of mean 1, by the inverse of its distribution function.
pub fn exponential(rng: &mut SplitMix64) -> f64 {
    -(1.0 - rng.unit()).ln()
}

/// Returns one of many generators of the same seed: a session's, or that of the arrivals.
pub fn stream(seed: u64, number: u64) -> SplitMix64 {
    // Mixed twice: neighbouring numbers must not give streams that are shifted copies of each other.
    let mut seeds = SplitMix64::new(seed ^ SplitMix64::new(number).next_u64());
    SplitMix64::new(seeds.next_u64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = 20_000;

    fn drawn(think: Think) -> Vec<f64> {
        let mut rng = stream(7, 1);
        (0..MANY).map(|_| think.draw_ns(&mut rng) as f64).collect()
    }

    /// Kolmogorov's distance to a distribution function; at 20,000 values 0.0138 is its 0.1 % point (1.949 / sqrt(n)).
    fn distance(mut values: Vec<f64>, law: impl Fn(f64) -> f64) -> f64 {
        values.sort_by(f64::total_cmp);
        let n = values.len() as f64;
        let steps = values.iter().enumerate().map(|(i, &v)| {
            let p = law(v);
            (p - i as f64 / n).abs().max(((i + 1) as f64 / n - p).abs())
        });
        steps.fold(0.0, f64::max)
    }

    #[test]
    fn think_times_follow_their_law() {
        let constant = Think::Constant { mean_us: 10.0 };
        assert_eq!(constant.draw_ns(&mut stream(7, 1)), 10_000);
        let exponential = drawn(Think::Exponential { mean_us: 10.0 });
        assert!(distance(exponential, |v| 1.0 - (-v / 10_000.0).exp()) < 0.0138);
        let uniform = drawn(Think::Uniform {
            low_us: 5.0,
            high_us: 15.0,
        });
        assert!(distance(uniform, |v| (v - 5_000.0) / 10_000.0) < 0.0138);
    }

    #[test]
    fn a_seed_gives_the_same_times_and_each_session_has_its_own() {
        let think = Think::Exponential { mean_us: 1000.0 };
        let first = |seed, session| think.draw_ns(&mut stream(seed, session));
        assert_eq!(first(1, 0), first(1, 0));
        assert_ne!(first(1, 0), first(1, 1));
        assert_ne!(first(1, 0), first(2, 0));
    }

    #[test]
    fn nonsense_is_refused_with_the_cure() {
        for text in [
            r#"{"kind": "constant", "mean_us": -1}"#,
            r#"{"kind": "uniform", "low_us": 2, "high_us": 1}"#,
        ] {
            let think: Think = serde_json::from_str(text).unwrap();
            assert!(
                think
                    .check()
                    .unwrap_err()
                    .to_string()
                    .contains("shorter one first")
            );
        }
        assert!(serde_json::from_str::<Think>(r#"{"kind": "uniform", "mean_us": 2}"#).is_err());
        assert!(serde_json::from_str::<Think>(r#"{"kind": "constant", "mean_us": 2, "x": 1}"#).is_err());
    }
}
