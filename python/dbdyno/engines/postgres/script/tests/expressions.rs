//! Expressions, with values that pgbench 15 gave.

use dyno_script::{Action, EvalError, Frame, Names, Options, Rng, Value, read};

fn value(text: &str) -> Result<Value, EvalError> {
    let mut names = Names::default();
    let script = read("t", &format!("\\set x {text}"), &Options::default(), &mut names).expect(text);
    let Action::Set(_, program) = &script.commands[0].action else {
        panic!("no expression")
    };
    let mut frame = Frame::new(&names, Rng::seeded(1, 0));
    frame.set(names.slot("default_seed"), Value::Int(42));
    program.eval(&mut frame, &names)
}

#[test]
fn permutations_are_those_of_pgbench() {
    for (text, wanted) in [
        ("permute(2, 1000003, 9223372036854775807)", 454_670),
        ("permute(1e3, 64, -7)", 34),
        ("permute(0, 9223372036854775807, 1)", 7_485_801_521_101_948_831),
        ("permute(64, 10)", 3),
        ("permute(-7, 10, 0)", 5),
        ("permute(-9223372036854775808, 1000003, 0.5)", 930_423),
        (
            "hash_murmur2(0, permute(2.0, 1000003, 3))",
            -5_107_226_806_823_453_283,
        ),
    ] {
        assert_eq!(value(text), Ok(Value::Int(wanted)), "{text}");
    }
}

#[test]
fn what_has_no_value() {
    for (text, message) in [
        ("1 / 0", "division by zero"),
        (
            "9223372036854775807 + 1",
            "the result of + is too large for 64 bits",
        ),
        ("random(2, 1)", "the range from 2 to 1 is empty"),
        (
            "random_zipfian(1, 2, 1)",
            "the parameter must be from 1.001 to 1000, not 1",
        ),
        (":y", "variable :y is not set: set it with \\set or -D"),
    ] {
        assert_eq!(value(text).expect_err(text).message, message, "{text}");
    }
}

#[test]
fn cases_are_evaluated_lazily() {
    assert_eq!(
        value("case when false then 1 / 0 when true then 2 else 1 / 0 end"),
        Ok(Value::Int(2))
    );
    assert_eq!(value("false and 1 / 0 = 1"), Ok(Value::Bool(false)));
    assert_eq!(value("not null is null"), Ok(Value::Bool(false)));
}

#[test]
fn null_on_the_left_of_and_and_or_is_the_result() {
    for text in [
        "null and false",
        "null or true",
        "null and 1 / 0 = 1",
        "(null) or (7) | 2e30",
        "null and :y",
    ] {
        assert_eq!(value(text), Ok(Value::Null), "{text}");
    }
    assert_eq!(value("false or null"), Ok(Value::Null));
    assert_eq!(value("false and :y"), Ok(Value::Bool(false)));
    for text in ["1 and null", "1 or 1 / 0 = 1", "true and 7"] {
        let message = value(text).expect_err(text).message;
        assert_eq!(
            message, "an integer is not a boolean: compare it, for example with <> 0",
            "{text}"
        );
    }
}

#[test]
fn texts_are_taken_for_values() {
    let mut names = Names::default();
    let script = read("t", "\\set x :v", &Options::default(), &mut names).expect("script");
    let Action::Set(_, program) = &script.commands[0].action else {
        panic!("no expression")
    };
    let mut frame = Frame::new(&names, Rng::seeded(1, 0));
    for (text, wanted) in [
        ("Null", Some(Value::Null)),
        ("TR", Some(Value::Bool(true))),
        ("of", Some(Value::Bool(false))),
        (" +7", Some(Value::Int(7))),
        ("-9223372036854775808", Some(Value::Int(i64::MIN))),
        ("1e3", Some(Value::Double(1000.0))),
        ("inf", Some(Value::Double(f64::INFINITY))),
        ("1e400", None),
        ("99999999999999999999", None),
        ("null ", None),
        ("1 ", None),
        ("o", None),
        ("", None),
    ] {
        frame.set(names.slot("v"), Value::Text(text.into()));
        assert_eq!(program.eval(&mut frame, &names).ok(), wanted, "{text:?}");
    }
}

#[test]
fn extremes_beside_what_is_no_number() {
    assert_eq!(value("least(sqrt(-1), 7)"), Ok(Value::Double(7.0)));
    assert_eq!(value("greatest(7, sqrt(-1), 6)"), Ok(Value::Double(6.0)));
    assert_eq!(value("least(7, sqrt(-1)) = 7"), Ok(Value::Bool(false)));
}

#[test]
fn an_error_has_its_place() {
    for text in ["7 + 1 / 0", "true and 1 / 0 = 1", "case when true then 1 / 0 end"] {
        let offset = value(text).expect_err(text).offset;
        assert_eq!(
            Some(offset),
            text.find('/').map(|at| "\\set x ".len() + at),
            "{text}"
        );
    }
}
