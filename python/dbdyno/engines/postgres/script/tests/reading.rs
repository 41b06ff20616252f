//! Scripts are read as pgbench reads them; mistakes are named.

use dyno_script::{
    AUTOMATIC, Action, Duration, Frame, Into, Names, Options, Rng, Script, Sql, Value, builtin,
    copies_with_client, read,
};

const SIMPLE: Options = Options {
    protocol_simple: true,
    allow_shell: false,
};
const EXTENDED: Options = Options {
    protocol_simple: false,
    allow_shell: false,
};

fn script(text: &str, options: &Options) -> (Script, Names) {
    let mut names = Names::default();
    (
        read("t.sql", text, options, &mut names).unwrap_or_else(|e| panic!("{e}")),
        names,
    )
}

fn statements(text: &str) -> Vec<Sql> {
    let of = |command: dyno_script::Command| match command.action {
        Action::Sql(sql) => Some(sql),
        _ => None,
    };
    script(text, &SIMPLE)
        .0
        .commands
        .into_iter()
        .filter_map(of)
        .collect()
}

fn sent(text: &str) -> Vec<String> {
    statements(text).iter().map(|sql| sql.parametrised().0).collect()
}

#[test]
fn a_statement_ends_at_a_semicolon_outside_of_quotes_comments_and_parentheses() {
    assert_eq!(
        sent("SELECT 1; SELECT ';' ;SELECT (2;3);"),
        ["SELECT 1", "SELECT ';'", "SELECT (2;3)"]
    );
    assert_eq!(
        sent("SELECT E'\\';', 'a'';', $$;$$, $a$;$$;$a$, \"x;\"\n"),
        ["SELECT E'\\';', 'a'';', $$;$$, $a$;$$;$a$, \"x;\""]
    );
    assert_eq!(
        sent("-- one;\nSELECT /* ; /* ; */ ; */ 1 -- two;\n+ 2;\n-- three\n"),
        ["SELECT /* ; /* ; */ ; */ 1 \n+ 2"]
    );
    let body = "create function f() returns int begin atomic select case when true then 1 end; select 2; end";
    assert_eq!(sent(&format!("{body}; SELECT 1")), [body, "SELECT 1"]);
    assert_eq!(sent("begin; select 1; end;"), ["begin", "select 1", "end"]);
    assert_eq!(sent("; ;"), ["", ""], "an empty query is sent, too");
}

#[test]
fn a_backslash_in_a_statement() {
    let joined = statements("SELECT 1 \\; SELECT 2 \\gset p_\nSELECT 3");
    assert_eq!(
        (joined[0].statements, &joined[0].into),
        (2, &Into::Gset("p_".into()))
    );
    assert_eq!(joined[0].parametrised().0, "SELECT 1 ; SELECT 2");
    assert_eq!(
        sent("SELECT 1 \\set x 5\nSELECT 2 \\gset\n"),
        ["SELECT 1", "SELECT 2"]
    );
    assert_eq!(
        statements("SELECT 1 AS a; \\aset")[0].into,
        Into::Aset(String::new())
    );
    assert_eq!(
        statements("\\; SELECT 1 \\; \\; SELECT 2 \\gset")[0].statements,
        2
    );
}

#[test]
fn variables_are_found_by_the_text() {
    let (made, names) = script(
        "\\set x 5\nSELECT :x, :x::int, ':x', 12:30, :12a, a[1:2], :y;",
        &SIMPLE,
    );
    let mut frame = Frame::new(&names, Rng::seeded(1, 0));
    frame.set(names.find("x").expect("x"), Value::Int(5));
    let Action::Sql(sql) = &made.commands[1].action else {
        panic!("no statement")
    };
    let mut text = Vec::new();
    sql.write(&frame, &names, &mut text);
    assert_eq!(
        String::from_utf8(text).unwrap(),
        "SELECT 5, 5::int, '5', 12:30, :12a, a[1:2], :y"
    );
    let (text, slots) = sql.parametrised();
    assert_eq!(text, "SELECT $1, $2::int, '$3', 12:30, :12a, a[1:2], $4");
    assert_eq!(
        slots.iter().map(|&slot| names.name(slot)).collect::<Vec<_>>(),
        ["x", "x", "x", "y"]
    );
}

#[test]
fn quoted_text_has_no_parameters() {
    let (made, _) = script("SELECT '{\"a\":true}', :b;", &EXTENDED);
    let Action::Sql(sql) = &made.commands[0].action else {
        panic!("no statement")
    };
    assert_eq!(sql.parametrised().0, "SELECT '{\"a\":true}', $1");
    let error = read(
        "t.sql",
        "\\set x 1\nSELECT ':x';",
        &EXTENDED,
        &mut Names::default(),
    )
    .unwrap_err();
    assert_eq!((error.line, error.column), (2, 9));
}

#[test]
fn conditions_become_jumps() {
    let text = "\\if 1\nA;\n\\elif 2\nB;\n\\else\nC;\n\\endif\nD;";
    let (made, _) = script(text, &SIMPLE);
    let jumps = made.commands.iter().map(|command| match &command.action {
        Action::Unless(_, to) => format!("unless {to}"),
        Action::Jump(to) => format!("jump {to}"),
        Action::Sql(sql) => sql.parametrised().0,
        other => format!("{other:?}"),
    });
    assert_eq!(
        jumps.collect::<Vec<_>>(),
        ["unless 3", "A", "jump 7", "unless 6", "B", "jump 7", "C", "D"]
    );
}

#[test]
fn times_to_sleep() {
    for (text, number, micros) in [
        ("10 ms", 10, 1000),
        ("10ms", 10, 1000),
        ("1us", 1, 1),
        ("-5 US", -5, 1),
        ("3", 3, 1_000_000),
        ("2s", 2, 1_000_000),
    ] {
        match script(&format!("\\sleep {text}"), &SIMPLE).0.commands[0].action {
            Action::Sleep(Duration::Number(n), unit) => assert_eq!((n, unit), (number, micros), "{text}"),
            ref other => panic!("{other:?}"),
        }
    }
}

#[test]
fn lines_go_on_behind_a_backslash() {
    let (made, _) = script("\\set x 1 \\\r\n + \\\n 2\n  SELECT 1;", &SIMPLE);
    assert_eq!(made.commands[0].text, "\\set x 1 + 2");
    assert_eq!(made.commands[1].line, 4);
}

/// Script, line, column and message of each mistake.
const MISTAKES: &[(&str, u32, u32, &str)] = &[
    ("SELECT 1;\n\\foo", 2, 1, "unknown command \\foo"),
    ("\\sett x 1", 1, 1, "unknown command \\sett"),
    ("\\ ", 1, 1, "a backslash without a command"),
    ("\\set", 1, 5, "the name of a variable is missing"),
    ("\\set x", 1, 7, "an expression is missing"),
    ("\\set x-y 1", 1, 6, "\"x-y\" is not a name for a variable"),
    ("\\set x 1;", 1, 9, "unexpected ';' in an expression"),
    ("\\set x 1 +", 1, 11, "the expression ends too early"),
    ("\\set x 1 -- note", 1, 13, "unexpected note"),
    ("\\set x y", 1, 8, "unexpected y"),
    ("\\set x foo(1)", 1, 8, "unknown function foo()"),
    ("\\set x abs(1, 2)", 1, 8, "abs() has 2 arguments"),
    ("\\set x 1 < 2 < 3", 1, 14, "a comparison of a comparison"),
    (
        "\\set x 9223372036854775808",
        1,
        8,
        "9223372036854775808 is too large for 64 bits",
    ),
    ("\\set x 1 \\\n  * )", 2, 5, "unexpected )"),
    ("\\if", 1, 4, "a condition is missing"),
    ("\\if 1\nSELECT 1;", 1, 1, "\\if without \\endif"),
    ("\\else", 1, 1, "\\else without \\if"),
    ("\\elif 1", 1, 1, "\\elif without \\if"),
    ("\\endif", 1, 1, "\\endif without \\if"),
    ("\\if 1\n\\else\n\\elif 1\n\\endif", 3, 1, "\\elif after \\else"),
    ("\\if 1\n\\else\n\\else\n\\endif", 3, 1, "\\else after \\else"),
    ("\\if 1\n\\endif x", 2, 8, "too many arguments for \\endif"),
    ("\\sleep", 1, 7, "the time is missing"),
    ("\\sleep x", 1, 8, "\"x\" is not a whole number"),
    ("\\sleep 1 m", 1, 10, "unknown unit of time \"m\""),
    ("\\sleep 1 ms x", 1, 13, "too many arguments for \\sleep"),
    ("\\gset", 1, 1, "\\gset without a statement before it"),
    (
        "SELECT 1 \\gset \n\\gset",
        2,
        1,
        "\\gset without a statement before it",
    ),
    ("SELECT 1 \\gset a b", 1, 18, "too many arguments for \\gset"),
    (
        "SELECT 1 \\aset a-",
        1,
        16,
        "\"a-\" cannot begin the name of a variable",
    ),
    (
        "\\shell echo",
        1,
        1,
        "\\shell runs a program on this machine, which is not allowed by default",
    ),
    ("\\endpipeline", 1, 1, "no pipeline is open"),
    ("\\syncpipeline", 1, 1, "no pipeline is open"),
    (
        "\\startpipeline\n\\startpipeline",
        2,
        1,
        "a pipeline is open already",
    ),
    (
        "SELECT 1;\n\\startpipeline\nSELECT 2;",
        2,
        1,
        "a pipeline without an end",
    ),
    (
        "\\startpipeline\nSELECT 1 \\gset\n\\endpipeline",
        2,
        10,
        "\\gset in a pipeline",
    ),
    (
        "SELECT 1 \\; SELECT 2;",
        1,
        1,
        "several statements in one query need the simple protocol",
    ),
    (
        "\\set x 1\nSELECT ':x';",
        2,
        9,
        "variable :x stands in quotes or in a comment",
    ),
    (
        "SELECT 1 AS b \\gset a_\nSELECT ':a_b';",
        2,
        9,
        "variable :a_b stands in quotes or in a comment",
    ),
    (
        "\\set p 1\nSELECT * FROM part_:p;",
        2,
        20,
        "variable :p is part of a name",
    ),
    (
        "CREATE TABLE t:client_id$x (i int);",
        1,
        15,
        "variable :client_id is part of a name",
    ),
    (
        "SELECT :scale:client_id;",
        1,
        14,
        "variable :client_id is part of a name",
    ),
    ("SELECT 'a;", 1, 8, "quoted text without an end"),
    ("SELECT $a$;", 1, 8, "quoted text without an end"),
    ("SELECT /* 1;", 1, 8, "comment without an end"),
    ("SELECT (1;", 1, 8, "parenthesis without an end"),
    ("-- nothing\n", 1, 1, "the script is empty"),
];

#[test]
fn every_mistake_has_its_place_and_a_cure() {
    for &(text, line, column, message) in MISTAKES {
        let mut names = Names::default();
        for name in AUTOMATIC {
            names.slot(name);
        }
        let error = read("t.sql", text, &EXTENDED, &mut names).expect_err(text);
        assert_eq!(
            (error.line, error.column, error.message.as_str()),
            (line, column, message),
            "{text}"
        );
        assert!(!error.cure.is_empty() && error.shown.ends_with('^'), "{text}");
    }
}

#[test]
fn a_slice_of_an_array_is_no_variable() {
    let (made, _) = script("SELECT a[lo:hi] FROM t;", &EXTENDED);
    let Action::Sql(sql) = &made.commands[0].action else {
        panic!("no statement")
    };
    assert_eq!(sql.parametrised(), ("SELECT a[lo:hi] FROM t".to_owned(), vec![]));
}

#[test]
fn setrandom_of_old_scripts_is_shown_as_it_is_written_today() {
    for (line, cure) in [
        (
            "\\setrandom aid 1 :naccounts",
            "Write \\set aid random(1, :naccounts)",
        ),
        (
            "\\setrandom x 1 :n gaussian 3.0",
            "Write \\set x random_gaussian(1, :n, 3.0)",
        ),
        ("\\SETRANDOM", "Write \\set aid random(1, 100000)"),
    ] {
        let error = read("t.sql", line, &SIMPLE, &mut Names::default()).unwrap_err();
        assert_eq!(error.cure, cure);
    }
}

#[test]
fn only_copy_between_client_and_server_is_known_as_such() {
    for query in [
        "COPY t FROM STDIN",
        "/* x */ -- y\ncopy t (a, b) to /* all */ stdout with (format csv)",
        "COPY (SELECT 'a' FROM b) TO STDOUT",
        "COPY BINARY t FROM STDIN",
        "SELECT 1; /* ; */ COPY t TO STDOUT",
    ] {
        assert!(copies_with_client(query), "{query}");
    }
    for query in [
        "COPY t TO '/dev/null'",
        "COPY t FROM '/tmp/x' WITH (FORMAT csv)",
        "COPY (SELECT a FROM stdin) TO PROGRAM 'cat >/dev/null'",
        "COPY stdin FROM '/tmp/from stdin'",
        "SELECT 'COPY t FROM STDIN'",
        "-- COPY t TO STDOUT\nSELECT copy FROM stdin",
        "COPY t FROM '",
    ] {
        assert!(!copies_with_client(query), "{query}");
    }
}

#[test]
fn an_error_shows_its_line() {
    let error = read(
        "a.sql",
        "SELECT 1;\n\tSELECT 'é' \\gst\n",
        &SIMPLE,
        &mut Names::default(),
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "a.sql:2:13: unknown command \\gst\n SELECT 'é' \\gst\n            ^\nDid you mean \\gset?"
    );
    let error = read("a.sql", "\\startpipeline", &SIMPLE, &mut Names::default()).unwrap_err();
    assert_eq!(error.message, "a pipeline cannot use the simple protocol");
    let many = format!("SELECT {}", vec![":x"; 256].join(","));
    let error = read("a.sql", &many, &EXTENDED, &mut Names::default()).unwrap_err();
    assert_eq!(
        error.message,
        "256 variables in one statement; at most 255 are allowed"
    );
}

#[test]
fn shell_commands_where_they_are_allowed() {
    let options = Options {
        protocol_simple: true,
        allow_shell: true,
    };
    let (made, names) = script("\\setshell x echo :y ::z 'a", &options);
    let Action::Shell(Some(target), words) = &made.commands[0].action else {
        panic!("no command")
    };
    assert_eq!((names.name(*target), words.len()), ("x", 4));
}

#[test]
fn built_in_scripts() {
    for (name, commands) in [("tpcb-like", 11), ("simple-update", 9), ("select-only", 2)] {
        let (full, text) = builtin(&name[..2]).expect(name);
        assert_eq!((full, script(text, &EXTENDED).0.commands.len()), (name, commands));
    }
    assert!(builtin("s").is_none() && builtin("x").is_none());
}
