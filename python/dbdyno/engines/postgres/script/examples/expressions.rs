//! Cost of evaluating an expression, in nanoseconds: the fastest and the median of many short rounds.
//!
//! ```text
//! expressions 'random(1, 100000 * :scale)' ...
//! ```

use std::hint::black_box;
use std::time::Instant;

use dyno_script::{Action, Frame, Names, Options, Rng, Value, read};

/// Evaluations in a round: so few that a round often ends before another program gets the CPU.
const EVALUATIONS: u32 = 10_000;
const ROUNDS: usize = 301;

fn main() {
    for expression in std::env::args().skip(1) {
        let mut times = rounds(&expression);
        times.sort_by(f64::total_cmp);
        println!(
            "{:.1} ns ({:.1} ns)  {expression}",
            times[0],
            times[times.len() / 2]
        );
    }
}

fn rounds(expression: &str) -> Vec<f64> {
    let mut names = Names::default();
    let text = format!("\\set x {expression}");
    let script = read("expression", &text, &Options::default(), &mut names).unwrap_or_else(|e| panic!("{e}"));
    let mut frame = Frame::new(&names, Rng::seeded(42, 0));
    frame.set(names.slot("scale"), Value::Int(10));
    frame.set(names.slot("default_seed"), Value::Int(42));
    let Action::Set(slot, program) = &script.commands[0].action else {
        panic!("no expression")
    };
    let round = |_| {
        let begin = Instant::now();
        for _ in 0..EVALUATIONS {
            let value = program.eval(&mut frame, &names).unwrap_or_else(|e| panic!("{e}"));
            frame.set(*slot, black_box(value));
        }
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(EVALUATIONS)
    };
    (0..ROUNDS).map(round).collect()
}
