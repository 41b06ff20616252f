use super::*;
use proptest::prelude::*;

const SECOND: f64 = 1e9;

fn spec(kind: ArrivalKind, rate: Vec<(f64, f64, f64)>, seed: u64) -> ArrivalSpec {
    ArrivalSpec {
        kind,
        rate,
        seed,
        latency_limit_us: None,
        part: None,
    }
}

fn due(spec: &ArrivalSpec, until_s: f64) -> Vec<f64> {
    let mut arrivals = Arrivals::new(spec, 0);
    let mut all = Vec::new();
    while (arrivals.due_ns() as f64) < until_s * SECOND {
        assert_eq!(arrivals.index(), all.len() as u64);
        all.push(arrivals.due_ns() as f64 / SECOND);
        arrivals.advance();
    }
    all
}

/// Arrivals expected from 0 to `at_s`, summed by the trapezium rule over each piece: exact for linear rates.
fn expected(rate: &[(f64, f64, f64)], at_s: f64) -> f64 {
    let (mut start, mut sum) = (0.0, 0.0);
    for &(seconds, from, to) in rate {
        let inside = (at_s - start).clamp(0.0, seconds);
        sum += inside * (from + from + (to - from) * inside / seconds) / 2.0;
        start += seconds;
    }
    sum + (at_s - start).max(0.0) * rate.last().unwrap().2
}

fn rates() -> impl Strategy<Value = Vec<(f64, f64, f64)>> {
    let level = prop_oneof![Just(0.0), 1.0..500.0];
    prop::collection::vec((0.05..2.0, level.clone(), level), 1..5)
}

proptest! {
    #[test]
    fn constant_arrivals_come_when_the_rate_has_made_them(rate in rates(), more in 0.0..2.0) {
        let until = rate.iter().map(|p| p.0).sum::<f64>() + more;
        let all = due(&spec(ArrivalKind::Constant, rate.clone(), 1), until);
        for (k, &at) in all.iter().enumerate() {
            // Where the rate is 0 its integral stands still, and where it is high a nanosecond is 5e-7 of an arrival.
            prop_assert!((expected(&rate, at) - (k as f64 + 0.5)).abs() < 1e-4, "{k} at {at}");
        }
        prop_assert!((all.len() as f64 - expected(&rate, until)).abs() <= 0.5 + 1e-4);
    }

    #[test]
    fn arrivals_are_in_order_and_depend_on_the_seed_alone(rate in rates(), seed: u64) {
        let spec = spec(ArrivalKind::Poisson, rate, seed);
        let all = due(&spec, 5.0);
        prop_assert!(all.windows(2).all(|w| w[0] <= w[1]));
        prop_assert_eq!(&all, &due(&spec, 5.0));
        let mut later = Arrivals::new(&spec, 1_000_000_000);
        for at in all.iter().take(100) {
            prop_assert_eq!(later.due_ns(), (at * SECOND).round() as i64 + 1_000_000_000);
            later.advance();
        }
    }
}

/// Over all pieces: in the time that the integral of the rate makes, gaps are exponential of mean 1. Kolmogorov's
/// distance at 30,000 gaps: 0.0113 is its 0.1 % point (1.949 / sqrt(n)).
#[test]
fn gaps_of_poisson_arrivals_are_exponential_at_every_rate() {
    let rate = vec![
        (10.0, 0.0, 1000.0),
        (10.0, 1000.0, 1000.0),
        (5.0, 3000.0, 100.0),
        (1.0, 0.0, 0.0),
        (60.0, 400.0, 400.0),
    ];
    let all = due(&spec(ArrivalKind::Poisson, rate.clone(), 42), 60.0);
    let mut gaps: Vec<f64> = all
        .windows(2)
        .map(|w| expected(&rate, w[1]) - expected(&rate, w[0]))
        .collect();
    gaps.sort_by(f64::total_cmp);
    let n = gaps.len() as f64;
    assert!(n > 30_000.0, "{n}");
    let distance = gaps
        .iter()
        .enumerate()
        .map(|(i, g)| (1.0 - (-g).exp() - (i as f64 + 0.5) / n).abs());
    assert!(distance.fold(0.0, f64::max) < 0.0113);
}

/// Counts in 1,000 slots of equal expectation 20 are Poisson: their index of dispersion times 999 is chi-square with
/// 999 degrees of freedom, 0.1 % of it below 865 and above 1143 (Wilson and Hilferty's approximation).
#[test]
fn counts_of_poisson_arrivals_vary_as_they_mean() {
    let all = due(&spec(ArrivalKind::Poisson, vec![(1.0, 2000.0, 2000.0)], 3), 10.0);
    let mut slots = [0.0_f64; 1000];
    for at in &all {
        slots[(at * 100.0) as usize] += 1.0;
    }
    let mean = all.len() as f64 / 1000.0;
    let chi2: f64 = slots.iter().map(|n| (n - mean).powi(2) / mean).sum();
    assert!((865.0..1143.0).contains(&chi2), "{chi2}");
    assert!((mean - 20.0).abs() < 3.3 * (20.0_f64 / 1000.0).sqrt(), "{mean}");
}

#[test]
fn after_the_last_piece_the_rate_stays_and_at_0_nothing_comes() {
    let rising = due(&spec(ArrivalKind::Constant, vec![(1.0, 0.0, 100.0)], 1), 3.0);
    assert_eq!(rising.len(), 50 + 200);
    let ended = spec(
        ArrivalKind::Constant,
        vec![(1.0, 100.0, 100.0), (1.0, 0.0, 0.0)],
        1,
    );
    assert_eq!(due(&ended, 1e9).len(), 100);
    let mut arrivals = Arrivals::new(&ended, 5);
    (0..200).for_each(|_| arrivals.advance());
    assert_eq!(arrivals.due_ns(), i64::MAX);
}

#[test]
fn seeds_differ() {
    let first = |seed| Arrivals::new(&spec(ArrivalKind::Poisson, vec![(1.0, 9.0, 9.0)], seed), 0).due_ns();
    assert_ne!(first(1), first(2));
}

proptest! {
    #[test]
    fn the_parts_of_several_drivers_are_all_arrivals(sizes in prop::collection::vec(1_u64..40, 1..6), seed: u64) {
        let of = sizes.iter().sum();
        let whole = spec(ArrivalKind::Poisson, vec![(1.0, 400.0, 400.0)], seed);
        let mut first = 0;
        let mut all = Vec::new();
        for size in sizes {
            let part = Some(Part { first, end: first + size, of });
            first += size;
            let instants = due(&ArrivalSpec { part, ..whole.clone() }, 2.0);
            let share = instants.len() as f64 - due(&whole, 2.0).len() as f64 * size as f64 / of as f64;
            prop_assert!(share.abs() < 6.0, "{share} more than its share");
            all.extend(instants);
        }
        all.sort_by(f64::total_cmp);
        prop_assert_eq!(all, due(&whole, 2.0));
    }
}

#[test]
fn a_part_comes_evenly() {
    let part = |first, end, of| Some(Part { first, end, of });
    let constant = spec(ArrivalKind::Constant, vec![(1.0, 1000.0, 1000.0)], 1);
    let instants = due(
        &ArrivalSpec {
            part: part(0, 500, 1000),
            ..constant.clone()
        },
        1.0,
    );
    let longest = instants.windows(2).map(|w| w[1] - w[0]).fold(0.0, f64::max);
    assert!(
        instants.len() == 500 && longest < 0.0041,
        "{} arrivals, {longest} s",
        instants.len()
    );
    assert!(
        ArrivalSpec {
            part: part(2, 2, 3),
            ..constant.clone()
        }
        .check()
        .is_err()
    );
    assert!(
        ArrivalSpec {
            part: part(0, 4, 3),
            ..constant
        }
        .check()
        .is_err()
    );
}
