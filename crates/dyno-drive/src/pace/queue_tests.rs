use super::*;
use crate::pace::arrivals::ArrivalKind;
use crate::pace::pacing::{Claim, Pace, Turn};
use crate::{Durations, Schedule};
use dyno_model::SplitMix64;
use proptest::prelude::*;
use std::sync::Arc;

const SECOND: i64 = 1_000_000_000;

fn poisson(rate: f64, seed: u64, limit: Option<u64>) -> ArrivalSpec {
    ArrivalSpec {
        kind: ArrivalKind::Poisson,
        rate: vec![(1.0, rate, rate)],
        seed,
        latency_limit_us: limit,
        part: None,
    }
}

/// Simulates the driver on a clock of its own: sessions, and their threads, in the order in which they become free.
/// Start of each call by its arrival; the lags; the threads' tallies.
struct Simulated {
    starts: Vec<(i64, i64)>,
    lag: Durations,
    parts: Vec<Pace>,
    queue: Arc<Queue>,
}

fn simulate(
    spec: &ArrivalSpec,
    sessions: usize,
    threads: usize,
    end_ns: i64,
    mut service_ns: impl FnMut() -> i64,
) -> Simulated {
    let queue = Arc::new(Queue::default());
    let schedule = Schedule::new(0, 0, end_ns).unwrap();
    let mut parts: Vec<_> = (0..threads)
        .map(|_| Pace::new(spec, queue.clone(), schedule))
        .collect();
    let mut claims: Vec<Option<Claim>> = vec![None; sessions];
    // (next event, session): free, or its arrival is due.
    let mut events: Vec<(i64, usize)> = (0..sessions).map(|i| (0, i)).collect();
    let (mut starts, mut lag) = (Vec::new(), Durations::default());
    while let Some(at) = (0..events.len()).min_by_key(|&e| events[e]) {
        let (now, i) = events.swap_remove(at);
        if now >= end_ns {
            if let Some(claim) = claims[i].take() {
                queue.give_back(claim.arrival);
            }
            continue;
        }
        match parts[i % threads].turn(&mut claims[i], now) {
            Turn::Wait(due_ns) => events.push((due_ns, i)),
            Turn::Start(due_ns) => {
                starts.push((due_ns, now));
                lag.add((now - due_ns) as u64);
                events.push((now + service_ns(), i));
            }
        }
    }
    Simulated {
        starts,
        lag,
        parts,
        queue,
    }
}

fn arrivals_before(spec: &ArrivalSpec, end_ns: i64) -> Vec<i64> {
    let mut arrivals = Arrivals::new(spec, 0);
    let mut all = Vec::new();
    while arrivals.due_ns() < end_ns {
        all.push(arrivals.due_ns());
        arrivals.advance();
    }
    all
}

/// The recursion of Kiefer and Wolfowitz: each arrival goes to the server that is free first.
fn recursion(due: &[i64], servers: usize, service_ns: i64) -> Vec<(i64, i64)> {
    let mut free = vec![0; servers];
    due.iter()
        .map(|&due_ns| {
            let first = (0..servers).min_by_key(|&s| free[s]).unwrap();
            let start = due_ns.max(free[first]);
            free[first] = start + service_ns;
            (due_ns, start)
        })
        .collect()
}

proptest! {
    #[test]
    fn it_is_one_queue_whatever_the_threads(
        sessions in 1_usize..6, threads in 1_usize..4, seed: u64, rate in 50.0..1500.0, service in 100_000_i64..20_000_000
    ) {
        let spec = poisson(rate, seed, None);
        let end = SECOND / 5;
        let made = simulate(&spec, sessions, threads.min(sessions), end, || service);
        let due = arrivals_before(&spec, end);
        let wanted: Vec<_> = recursion(&due, sessions, service).into_iter().filter(|w| w.1 < end).collect();
        prop_assert_eq!(&made.starts, &wanted);
        // Each arrival was started or is left, once.
        let mut all: Vec<_> = made.starts.iter().map(|s| s.0).collect();
        made.queue.left(&spec, 0, end, |due_ns| all.push(due_ns));
        all.sort_unstable();
        prop_assert_eq!(all, due.clone());
        // Most that waited at once, from the starts: due by then, not started before.
        let waited = |k: usize, start: i64| due.iter().filter(|&&d| d <= start).count() - k;
        let most = wanted.iter().enumerate().filter(|(_, w)| w.1 > w.0).map(|(k, w)| waited(k, w.1)).max();
        let found = made.parts.iter().map(|p| p.part.tally.backlog_max).max().unwrap();
        prop_assert_eq!(found, most.unwrap_or(0) as u64);
        // The driver of this clock is never late.
        prop_assert!(made.parts.iter().all(|p| p.part.tally.driver_lag.sum_ns == 0));
    }

    #[test]
    fn nothing_starts_later_than_the_limit(seed: u64, rate in 50.0..1500.0, limit_us in 0_u64..50_000) {
        let spec = poisson(rate, seed, Some(limit_us));
        let made = simulate(&spec, 2, 2, SECOND / 5, || 10_000_000);
        prop_assert!(made.lag.max_ns.unwrap_or(0) <= limit_us * 1000);
        let dropped: u64 = made.parts.iter().map(|p| p.part.tally.dropped).sum();
        let mut left = 0;
        made.queue.left(&spec, 0, SECOND / 5, |_| left += 1);
        prop_assert_eq!(made.starts.len() as u64 + dropped + left, arrivals_before(&spec, SECOND / 5).len() as u64);
    }
}

/// Mean wait of M/D/1 at load 0.8: rho / (2 (1 - rho)) = 2 services (Pollaczek and Khinchine); of M/M/1: rho / (1 - rho) = 4;
/// of M/M/2 at 0.8: C / (2 (1 - rho)) with Erlang's C(2, 1.6) = 0.7111: 1.7778. 400,000 arrivals are within 5 %.
#[test]
#[cfg_attr(miri, ignore = "more than a million arrivals")]
fn waits_are_those_of_theory() {
    let service = 1_000_000.0;
    let mean_wait = |sessions: usize, rate: f64, exponential: bool| {
        let mut rng = SplitMix64::new(11);
        let end = (400_000.0 / rate * 1e9) as i64;
        let made = simulate(&poisson(rate, 5, None), sessions, sessions, end, || {
            let factor = if exponential {
                -(1.0 - rng.unit()).ln()
            } else {
                1.0
            };
            (service * factor) as i64
        });
        made.lag.sum_ns as f64 / made.lag.count as f64 / service
    };
    for (found, theory) in [
        (mean_wait(1, 800.0, false), 2.0),
        (mean_wait(1, 800.0, true), 4.0),
        (mean_wait(2, 1600.0, true), 1.7778),
    ] {
        assert!((found / theory - 1.0).abs() < 0.05, "{found} against {theory}");
    }
}

#[test]
fn a_lookout_counts_calls_that_are_due_and_not_taken() {
    let spec = poisson(100.0, 7, None);
    let queue = Arc::new(Queue::default());
    let (mut line, mut lookout) = (Line::new(&spec, 0), Lookout::new(&spec, 0, queue.clone()));
    let due: Vec<_> = std::iter::repeat_with(|| line.take(&queue).due_ns)
        .take(3)
        .collect();
    assert_eq!(
        lookout.look(due[2]),
        Behind::default(),
        "all that is due is taken"
    );
    let behind = lookout.look(SECOND);
    let mut arrivals = Arrivals::new(&spec, 0);
    let mut expected = Vec::new();
    while arrivals.due_ns() <= SECOND {
        expected.push(arrivals.due_ns());
        arrivals.advance();
    }
    assert_eq!(behind.waiting, expected.len() as u64 - 3);
    assert_eq!(behind.oldest_ns, (SECOND - expected[3]) as u64);
}
