//! Random numbers have the distributions that pgbench draws.

use dyno_script::{Action, Frame, Names, Options, Rng, Value, read};

/// Counts of pgbench's draws; its head says how they were made.
const THEIRS: &str = include_str!("../../../../../../tests/golden/pgbench/draws.txt");
const DRAWS: usize = 50_000;

/// How often each number from `low` on is drawn; the last of `bins` counts all above it.
fn ours(expression: &str, bins: usize) -> Vec<f64> {
    let mut names = Names::default();
    let script = read(
        "t",
        &format!("\\set x {expression}"),
        &Options::default(),
        &mut names,
    )
    .expect(expression);
    let Action::Set(_, program) = &script.commands[0].action else {
        panic!("no expression")
    };
    let low = expression
        .split(['(', ','])
        .nth(1)
        .and_then(|low| low.parse::<i64>().ok())
        .expect("a lower bound");
    let mut frame = Frame::new(&names, Rng::seeded(20_240_601, 0));
    let mut counts = vec![0.0; bins];
    for _ in 0..DRAWS {
        match program.eval(&mut frame, &names) {
            Ok(Value::Int(drawn)) => counts[((drawn - low) as usize).min(bins - 1)] += 1.0,
            other => panic!("{expression}: {other:?}"),
        }
    }
    counts
}

/// Chi-square of two samples by its quantile at p = 0.001 (Wilson and Hilferty 1931): above 1 they differ.
/// Bins are joined until they hold 20 draws.
fn difference(one: &[f64], other: &[f64]) -> f64 {
    let (ones, others): (f64, f64) = (one.iter().sum(), other.iter().sum());
    let (mut square, mut bins, mut a, mut b) = (0.0, 0.0, 0.0, 0.0);
    for (x, y) in one.iter().zip(other) {
        (a, b) = (a + x, b + y);
        if a + b >= 20.0 {
            square += (a * (others / ones).sqrt() - b * (ones / others).sqrt()).powi(2) / (a + b);
            bins += 1.0;
            (a, b) = (0.0, 0.0);
        }
    }
    let freedom: f64 = bins - 1.0;
    let spread = 2.0 / (9.0 * freedom);
    square / (freedom * (1.0 - spread + 3.09 * spread.sqrt()).powi(3))
}

fn theirs() -> Vec<(&'static str, Vec<f64>)> {
    let lines = THEIRS.lines().filter(|line| !line.starts_with('#'));
    let parts = lines.map(|line| line.split_once(": ").expect("counts"));
    parts
        .map(|(expression, counts)| {
            (
                expression,
                counts.split(' ').map(|n| n.parse().expect("a count")).collect(),
            )
        })
        .collect()
}

#[test]
fn distributions_are_those_of_pgbench() {
    let theirs = theirs();
    assert_eq!(theirs.len(), 12);
    for (expression, counts) in theirs {
        let found = difference(&counts, &ours(expression, counts.len()));
        assert!(found < 1.0, "{expression}: {found}");
    }
}

#[test]
fn another_parameter_is_seen() {
    let theirs = theirs();
    for (expression, other) in [
        ("random(1, 10)", "random(1, 11)"),
        ("random_gaussian(1, 100, 5)", "random_gaussian(1, 100, 4.8)"),
        ("random_exponential(1, 100, 3)", "random_exponential(1, 100, 3.1)"),
        ("random_zipfian(1, 100, 1.07)", "random_zipfian(1, 100, 1.1)"),
    ] {
        let (_, counts) = theirs
            .iter()
            .find(|(name, _)| *name == expression)
            .expect(expression);
        let found = difference(counts, &ours(other, counts.len()));
        assert!(found > 1.0, "{expression}, {other}: {found}");
    }
}
