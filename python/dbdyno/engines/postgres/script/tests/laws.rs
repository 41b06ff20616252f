//! Properties of any text and any numbers.

use dyno_script::{Action, EvalError, Frame, Names, Options, Program, Rng, Value, read};
use proptest::prelude::*;

fn compiled(text: &str) -> (Program, Names) {
    let mut names = Names::default();
    let mut script = read("t", &format!("\\set x {text}"), &Options::default(), &mut names).expect(text);
    match script.commands.remove(0).action {
        Action::Set(_, program) => (program, names),
        _ => panic!("no expression"),
    }
}

/// Its value with these variables.
fn with(text: &str, variables: &[(&str, Value)], rng: Rng) -> Result<Value, EvalError> {
    let (program, mut names) = compiled(text);
    let mut frame = Frame::new(&names, rng);
    for (name, value) in variables {
        frame.set(names.slot(name), value.clone());
    }
    program.eval(&mut frame, &names)
}

/// Words of the language, so that random texts go deeper than their first character.
fn script() -> impl Strategy<Value = String> {
    const WORDS: [&str; 54] = [
        "\\set ",
        "x ",
        "\\if ",
        "\\elif ",
        "\\else",
        "\\endif",
        "\\gset ",
        "\\aset ",
        "\\sleep ",
        "\\shell ",
        "\\setshell ",
        "\\startpipeline",
        "\\syncpipeline",
        "\\endpipeline",
        "\\;",
        "\\:",
        "\\\n",
        "\\",
        ";",
        "\n",
        "\r\n",
        " ",
        "\t",
        "select ",
        "1 ",
        "9223372036854775808",
        "1e5",
        ".5",
        ":x",
        "::",
        ":",
        "'",
        "\"",
        "e'",
        "$$",
        "$a$",
        "--",
        "/*",
        "*/",
        "(",
        ")",
        ",",
        "case ",
        "when ",
        "then ",
        "end ",
        "and ",
        "not ",
        "is null ",
        "random(",
        "permute(",
        "ä",
        "\u{2003}",
        "\u{1f600}",
    ];
    let word = prop_oneof![9 => prop::sample::select(&WORDS[..]).prop_map(str::to_owned), 1 => "\\PC{0,4}"];
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

/// Expressions of two variables; some have no value.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(&[":a", ":b", "0", "7", "-3", "2.5", "null", "true"][..]);
    leaf.prop_map(str::to_owned).prop_recursive(4, 24, 3, |inner| {
        let two = prop::sample::select(&["+", "*", "/", "%", "<", "and", "or"][..]);
        prop_oneof![
            4 => (inner.clone(), two, inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            2 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("random({a}, {b})")),
            1 => inner.clone().prop_map(|a| format!("debug({a})")),
            1 => (inner.clone(), inner.clone(), inner)
                .prop_map(|(a, b, c)| format!("case when {a} then {b} else {c} end")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_has_a_mistake_within_it(text in prop_oneof![script(), any::<String>()], simple: bool) {
        let options = Options { protocol_simple: simple, allow_shell: true };
        match read("t", &text, &options, &mut Names::default()) {
            Ok(script) => {
                let lines = text.split('\n').count();
                prop_assert!(script.commands.iter().all(|c| (1..=lines).contains(&(c.line as usize))));
                let end = script.commands.len();
                for command in &script.commands {
                    if let Action::Unless(_, to) | Action::Jump(to) = command.action {
                        prop_assert!(to <= end);
                    }
                }
            }
            Err(error) => {
                let line = text.split('\n').nth(error.line as usize - 1);
                prop_assert!(line.is_some(), "{error}");
                let length = line.unwrap_or("").chars().count();
                prop_assert!((1..=length + 1).contains(&(error.column as usize)), "{error}");
            }
        }
    }

    #[test]
    fn what_is_read_can_be_evaluated(text in script()) {
        let mut names = Names::default();
        if let Ok(script) = read("t", &format!("\\set x {text}"), &Options::default(), &mut names) {
            let mut frame = Frame::new(&names, Rng::seeded(1, 0));
            for command in &script.commands {
                if let Action::Set(slot, program) = &command.action
                    && let Ok(value) = program.eval(&mut frame, &names)
                {
                    frame.set(*slot, value);
                }
            }
        }
    }

    #[test]
    fn permutations_reach_every_place_once(size in 1_i64..300, seed: i64) {
        let (program, mut names) = compiled("permute(:i, :size, :seed)");
        let mut frame = Frame::new(&names, Rng::seeded(1, 0));
        frame.set(names.slot("size"), Value::Int(size));
        frame.set(names.slot("seed"), Value::Int(seed));
        let mut reached = vec![0; size as usize];
        for place in 0..size {
            frame.set(names.slot("i"), Value::Int(place));
            match program.eval(&mut frame, &names) {
                Ok(Value::Int(to)) if (0..size).contains(&to) => reached[to as usize] += 1,
                other => prop_assert!(false, "{other:?}"),
            }
        }
        prop_assert_eq!(reached, vec![1; size as usize]);
    }

    #[test]
    fn large_permutations_stay_within_their_size(value: i64, size in 1..=i64::MAX, seed: i64) {
        let numbers = [("i", Value::Int(value)), ("size", Value::Int(size)), ("seed", Value::Int(seed))];
        let made = with("permute(:i, :size, :seed)", &numbers, Rng::seeded(1, 0));
        prop_assert!(matches!(made, Ok(Value::Int(to)) if (0..size).contains(&to)), "{made:?}");
    }

    #[test]
    fn what_is_known_before_changes_no_value_no_error_and_no_random_number(
        text in expression(), a in -9_i64..9, b in prop_oneof![Just("x"), Just("12"), Just("off")], both: bool,
    ) {
        let (program, mut names) = compiled(&text);
        let (slot_a, slot_b) = (names.slot("a"), names.slot("b"));
        let mut frame = Frame::new(&names, Rng::seeded(3, 1));
        frame.set(slot_a, Value::Int(a));
        frame.set(slot_b, Value::Text(b.into()));
        let (mut bound, mut other) = (program.clone(), frame.clone());
        bound.bind(|slot| frame.get(slot).filter(|_| both || slot == slot_a).cloned());
        for _ in 0..3 {
            let (left, right) = (program.eval(&mut frame, &names), bound.eval(&mut other, &names));
            prop_assert_eq!(format!("{left:?}"), format!("{right:?}"));
        }
        prop_assert_eq!(frame.rng.bits(), other.rng.bits());
        prop_assert_eq!(frame.notes, other.notes);
    }

    #[test]
    fn random_numbers_keep_their_bounds(low: i64, high: i64, near in 0_i64..5, seed: u64, parameter in 2.0..1000.0) {
        let parameter: f64 = parameter;
        for high in [high, low.saturating_add(near)] {
            for name in ["random", "random_gaussian", "random_exponential", "random_zipfian"] {
                let more = if name == "random" { "" } else { ", :p" };
                let numbers = [("a", Value::Int(low)), ("b", Value::Int(high)), ("p", Value::Double(parameter))];
                let drawn = with(&format!("{name}(:a, :b{more})"), &numbers, Rng::seeded(seed, 0));
                let width = i128::from(high) - i128::from(low);
                if (0..i128::from(i64::MAX)).contains(&width) {
                    prop_assert!(matches!(drawn, Ok(Value::Int(x)) if (low..=high).contains(&x)), "{drawn:?}");
                } else {
                    prop_assert!(drawn.is_err(), "{drawn:?}");
                }
            }
        }
    }
}
