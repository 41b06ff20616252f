//! Missing samples: their number, time and reason.

use dyno_model::{now_ns, raw};
use dyno_observe::Status;

/// From this share of samples on a profile is limited.
const SMALL: f64 = 0.01;

/// Samples of one reason that are missing between two instants.
#[derive(Debug, PartialEq, Eq)]
struct Loss {
    from_ns: i64,
    to_ns: i64,
    reason: &'static str,
    lost: Lost,
}

/// Samples that are missing, and about how much sleep they stood for, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    pub count: u64,
    pub asleep_ns: u64,
}

impl From<u64> for Lost {
    /// Returns a loss of samples that stand for no length.
    fn from(count: u64) -> Self {
        Self { count, asleep_ns: 0 }
    }
}

impl Lost {
    /// Adds one that stood for this time asleep.
    pub fn add(&mut self, asleep_ns: u64) {
        self.count += 1;
        self.asleep_ns += asleep_ns;
    }
}

/// All losses of a profile, by rounds.
#[derive(Debug)]
pub struct Losses {
    /// Begin of the current round, `CLOCK_MONOTONIC`.
    since_ns: i64,
    /// By reason, up to the latest round.
    counted: Vec<(&'static str, Lost)>,
    rows: Vec<Loss>,
}

impl Losses {
    /// Counts from now on.
    pub fn new() -> Self {
        Self {
            since_ns: now_ns(),
            counted: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Ends a round. `totals` are by reason since the beginning.
    pub fn count(&mut self, totals: impl IntoIterator<Item = (&'static str, Lost)>) {
        let now = now_ns();
        for (reason, total) in totals {
            let at = self.counted.iter().position(|(r, _)| *r == reason);
            let at = at.unwrap_or_else(|| {
                self.counted.push((reason, Lost::default()));
                self.counted.len() - 1
            });
            let before = &mut self.counted[at].1;
            if total.count > before.count {
                self.rows.push(Loss {
                    from_ns: self.since_ns,
                    to_ns: now,
                    reason,
                    lost: Lost {
                        count: total.count - before.count,
                        asleep_ns: total.asleep_ns.saturating_sub(before.asleep_ns),
                    },
                });
                *before = total;
            }
        }
        self.since_ns = now;
    }

    /// Returns the number of missing samples.
    pub fn total(&self) -> u64 {
        self.counted.iter().map(|(_, lost)| lost.count).sum()
    }

    /// Returns the status of a profile of `taken` samples, and the reason if it is limited.
    pub fn status(&self, taken: usize) -> (Status, Option<String>) {
        let lost = self.total() as f64;
        let share = lost / (lost + taken as f64);
        if lost == 0.0 || share < SMALL {
            return (Status::Ok, None);
        }
        let parts = self.counted.iter().filter(|(_, lost)| lost.count > 0);
        let parts: Vec<String> = parts
            .map(|(reason, lost)| format!("{} {reason}", lost.count))
            .collect();
        let reason = format!(
            "{:.1} % are missing ({}), so shares are less certain: leave dbdyno a CPU, or ask for fewer",
            share * 100.0,
            parts.join(", ")
        );
        (Status::Limited, Some(reason))
    }

    /// Returns a row for each reason in each round that lost samples.
    pub fn profile_rows(&self) -> raw::ProfileLosses {
        raw::ProfileLosses {
            start_ns: self.rows.iter().map(|r| r.from_ns).collect(),
            end_ns: self.rows.iter().map(|r| r.to_ns).collect(),
            reason: self.rows.iter().map(|r| r.reason).collect(),
            lost: self.rows.iter().map(|r| r.lost.count as i64).collect(),
        }
    }

    /// Returns the same rows with the time asleep that the missing stacks stood for.
    pub fn sleep_rows(&self) -> raw::SleepLosses {
        let raw::ProfileLosses {
            start_ns,
            end_ns,
            reason,
            lost,
        } = self.profile_rows();
        raw::SleepLosses {
            start_ns,
            end_ns,
            reason,
            lost,
            asleep_ns: self.rows.iter().map(|r| r.lost.asleep_ns as i64).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_what_came_since_the_one_before() {
        let mut losses = Losses::new();
        losses.count([("a", Lost::from(3)), ("b", Lost::from(0))]);
        losses.count([("a", Lost::from(3)), ("b", Lost::from(2))]);
        losses.count([("a", Lost::from(2)), ("b", Lost::from(7))]); // an estimate may go back
        let rows: Vec<_> = losses.rows.iter().map(|r| (r.reason, r.lost.count)).collect();
        assert_eq!(rows, [("a", 3), ("b", 2), ("b", 5)]);
        assert!(losses.rows.is_sorted_by_key(|r| r.from_ns));
        assert!(losses.rows.iter().all(|r| r.from_ns <= r.to_ns));
        assert_eq!(losses.total(), 10);
    }

    #[test]
    fn a_small_share_is_ok_and_a_larger_one_is_limited_with_its_reasons() {
        let mut losses = Losses::new();
        assert_eq!(losses.status(0), (Status::Ok, None));
        losses.count([("lost", Lost::from(9))]);
        assert_eq!(losses.status(1000).0, Status::Ok);
        losses.count([("lost", Lost::from(9)), ("malformed", Lost::from(1))]);
        let (status, reason) = losses.status(90);
        assert_eq!(status, Status::Limited);
        assert!(
            reason
                .unwrap()
                .starts_with("10.0 % are missing (9 lost, 1 malformed)")
        );
    }
}
