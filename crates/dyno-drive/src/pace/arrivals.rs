//! When calls are due in an open loop: one process of arrivals for the whole load, the same for every number of threads.
//!
//! The rate is piecewise linear. Its integral runs on as a clock of its own on which arrivals come at rate 1, one
//! after another (constant) or after exponential gaps (Poisson; Cinlar 1975, "Introduction to Stochastic Processes",
//! chapter 4.7); each is put back into real time.

use std::sync::Arc;

use dyno_model::{Error, Result, SplitMix64};
use serde::Deserialize;

use crate::pace::think::{exponential, stream};

/// More than any driver begins. Every thread goes through all arrivals, and has to go faster than they come.
const MOST_A_SECOND: f64 = 1e7;
/// Sessions of all drivers together; a thread goes past the arrivals of as many to find the next that is its own.
const MOST_SHARING: u64 = 10_000_000;
/// Arrivals that may be due when a load begins: each thread goes through them first.
const MOST_DUE: f64 = 1e7;
/// Longest piece of a rate: a century.
const LONGEST_S: f64 = 3.2e9;

/// Specification of a load's arrivals.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ArrivalSpec {
    /// Law of the arrivals.
    pub kind: ArrivalKind,
    /// Pieces of (seconds, arrivals a second at the beginning, at the end), from the barrier on. After the last one the
    /// rate stays at its end.
    pub rate: Vec<(f64, f64, f64)>,
    /// Seed: the same one gives the same arrivals.
    #[serde(default)]
    pub seed: u64,
    /// An arrival that has waited longer than this for a session is dropped, and calls that end later are counted.
    #[serde(default)]
    pub latency_limit_us: Option<u64>,
    /// This driver's part, if several share the arrivals.
    #[serde(default)]
    pub part: Option<Part>,
}

/// The arrivals that fall to sessions `first..end` of `of`. Arrivals go round all sessions in steps of about the
/// golden section, so that each part's come evenly.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The first session.
    pub first: u64,
    /// The one after the last.
    pub end: u64,
    /// Number of sessions.
    pub of: u64,
}

impl Part {
    fn has(self, arrival: u64, stride: u64) -> bool {
        let session = u128::from(arrival) * u128::from(stride) % u128::from(self.of);
        (u128::from(self.first)..u128::from(self.end)).contains(&session)
    }

    /// Near the golden section of `of`, with no divisor in common with it: all sessions are met in one round.
    fn stride(self) -> u64 {
        let golden = (self.of as f64 * 0.618_033_988_749_895) as u64;
        let below = (1..=golden)
            .rev()
            .find(|&stride| common_divisor(stride, self.of) == 1);
        below.unwrap_or(1)
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// The law of arrivals.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ArrivalKind {
    /// A Poisson process: many users who know nothing of each other.
    Poisson,
    /// One arrival whenever the integral of the rate has grown by 1; the first after half of that.
    Constant,
}

impl ArrivalSpec {
    /// Refuses pieces without length, rates out of range, and a load without arrivals.
    ///
    /// # Errors
    /// [`Error::Spec`] otherwise.
    pub fn check(&self) -> Result<()> {
        let fits = |&(s, from, to): &(f64, f64, f64)| {
            let rates = 0.0..=MOST_A_SECOND;
            s > 0.0 && s <= LONGEST_S && rates.contains(&from) && rates.contains(&to)
        };
        if let Some(piece) = self.rate.iter().find(|piece| !fits(piece)) {
            return Err(Error::Spec(format!(
                "arrivals: {piece:?} is not a piece of a rate; give (seconds above 0, from, to) with rates from 0 to \
                 {MOST_A_SECOND} a second"
            )));
        }
        if self.part.is_some_and(|p| p.first >= p.end || p.end > p.of) {
            let words = "arrivals: a part is that of sessions first..end of all";
            return Err(Error::Spec(words.to_owned()));
        }
        if self.part.is_some_and(|p| p.of > MOST_SHARING) {
            let words = format!("arrivals: at most {MOST_SHARING} sessions share them");
            return Err(Error::Spec(words));
        }
        if self.rate.iter().all(|&(_, from, to)| from == 0.0 && to == 0.0) {
            let words = "arrivals: no arrival would ever come; give a rate above 0 for some of the time";
            return Err(Error::Spec(words.to_owned()));
        }
        Ok(())
    }
}

impl ArrivalSpec {
    /// Whether a load that began at `start_ns` can catch up with what is due at `now_ns`.
    ///
    /// # Errors
    /// [`Error::Spec`] otherwise.
    pub fn check_start(&self, start_ns: i64, now_ns: i64) -> Result<()> {
        let ago_s = now_ns.saturating_sub(start_ns).max(0) as f64 / 1e9;
        let mut left_s = ago_s;
        let mut due = 0.0;
        for &(seconds, from, to) in &self.rate {
            let s = left_s.min(seconds);
            due += s * (from + (to - from) * s / seconds / 2.0);
            left_s -= s;
        }
        due += left_s * self.rate.last().map_or(0.0, |last| last.2);
        if due <= MOST_DUE {
            return Ok(());
        }
        Err(Error::Spec(format!(
            "arrivals: the load is to begin {ago_s:.0} s ago, and some {due:.0} calls are due already; begin it now"
        )))
    }
}

/// A stretch of time in which the rate is linear.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start_s: f64,
    /// Rate at its start, 1/s.
    from: f64,
    /// Growth of the rate, 1/s2.
    slope: f64,
    /// Arrivals expected in it.
    area: f64,
}

impl Piece {
    /// Instant at which `area` arrivals have been expected: the root of from t + slope t^2 / 2 = area that does not cancel.
    fn time_of(&self, area: f64) -> f64 {
        let under = (self.from * self.from + 2.0 * self.slope * area).max(0.0);
        self.start_s + 2.0 * area / (self.from + under.sqrt())
    }
}

fn pieces(rate: &[(f64, f64, f64)]) -> Arc<[Piece]> {
    let mut start_s = 0.0;
    let mut all = Vec::new();
    for &(seconds, from, to) in rate {
        all.push(Piece {
            start_s,
            from,
            slope: (to - from) / seconds,
            area: seconds * (from + to) / 2.0,
        });
        start_s += seconds;
    }
    let from = rate.last().map_or(0.0, |last| last.2);
    let area = if from > 0.0 { f64::INFINITY } else { 0.0 };
    all.push(Piece {
        start_s,
        from,
        slope: 0.0,
        area,
    });
    all.into()
}

/// The arrivals one by one. Cheap enough (some 20 ns each) for each thread to go through all of them by itself.
#[derive(Clone, Debug)]
pub struct Arrivals {
    pieces: Arc<[Piece]>,
    kind: ArrivalKind,
    rng: SplitMix64,
    start_ns: i64,
    piece: usize,
    /// Arrivals expected in this piece so far.
    area: f64,
    index: u64,
    due_ns: i64,
    /// This driver's part, with its stride.
    part: Option<(Part, u64)>,
    /// Number of arrivals before this one, those of other parts included.
    passed: u64,
}

impl Arrivals {
    /// Arrivals from the barrier at `start_ns` on, at the first one.
    pub fn new(spec: &ArrivalSpec, start_ns: i64) -> Self {
        let mut arrivals = Self {
            pieces: pieces(&spec.rate),
            kind: spec.kind,
            rng: stream(spec.seed, u64::MAX),
            start_ns,
            piece: 0,
            area: 0.0,
            index: 0,
            due_ns: start_ns,
            part: spec.part.map(|part| (part, part.stride())),
            passed: 0,
        };
        let first = match spec.kind {
            // In the middle of the first interval, so that the expected count at any instant is the integral.
            ArrivalKind::Constant => 0.5,
            ArrivalKind::Poisson => exponential(&mut arrivals.rng),
        };
        arrivals.due_ns = arrivals.after(first);
        arrivals.skip();
        arrivals
    }

    /// Instant at which this arrival is due; `i64::MAX` after the last one.
    #[inline]
    pub fn due_ns(&self) -> i64 {
        self.due_ns
    }

    /// Number of arrivals due before it.
    #[inline]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Goes on to the next arrival.
    #[inline]
    pub fn advance(&mut self) {
        self.index += 1;
        self.step();
        self.skip();
    }

    #[inline]
    fn step(&mut self) {
        let gap = match self.kind {
            ArrivalKind::Constant => 1.0,
            ArrivalKind::Poisson => exponential(&mut self.rng),
        };
        self.passed += 1;
        self.due_ns = self.after(gap);
    }

    /// Skips arrivals of other parts.
    #[inline]
    fn skip(&mut self) {
        let others = |all: &Self| {
            all.part
                .is_some_and(|(part, stride)| !part.has(all.passed, stride))
        };
        while self.due_ns < i64::MAX && others(self) {
            self.step();
        }
    }

    fn after(&mut self, gap: f64) -> i64 {
        self.area += gap;
        while self.area >= self.pieces[self.piece].area {
            if self.piece + 1 == self.pieces.len() {
                return i64::MAX;
            }
            self.area -= self.pieces[self.piece].area;
            self.piece += 1;
        }
        let after_ns = self.pieces[self.piece].time_of(self.area) * 1e9;
        self.start_ns.saturating_add(after_ns as i64)
    }
}

#[cfg(test)]
#[path = "arrivals_tests.rs"]
mod tests;
