//! A script's text: read, planned, evaluated, and its statements written.

use dyno_script::{Action, Names, Options, copies_with_client, read};

use super::{messages, specs};
use crate::plan::Protocol;
use crate::script::out::Out;
use crate::script::plan::Plan;

/// The first byte chooses the protocol and whether shell commands are allowed, the rest is the text. A mistake is within the
/// text; commands and jumps are, too; a statement is written as whole messages that ask for one answer.
pub fn script(data: &[u8]) {
    let Some((choice, text)) = data.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let protocol = [Protocol::Prepared, Protocol::Extended, Protocol::Simple][usize::from(choice % 3)];
    let allow_shell = *choice >= 128;
    let options = Options {
        protocol_simple: protocol == Protocol::Simple,
        allow_shell,
    };
    let _ = copies_with_client(text);
    let script = match read("t", text, &options, &mut Names::default()) {
        Ok(script) => script,
        Err(error) => {
            let line = text.split('\n').nth(error.line as usize - 1).expect("the line");
            assert!(
                (1..=line.chars().count() + 1).contains(&(error.column as usize)),
                "{error}"
            );
            assert!(plan(text, protocol, allow_shell).is_err());
            return;
        }
    };
    let (lines, commands) = (text.split('\n').count(), script.commands.len());
    for command in &script.commands {
        assert!((1..=lines).contains(&(command.line as usize)));
        if let Action::Unless(_, to) | Action::Jump(to) = command.action {
            assert!(to <= commands);
        }
    }
    // A zero byte in a statement is refused only here.
    if let Ok(plan) = plan(text, protocol, allow_shell) {
        assert_eq!(plan.commands.len(), commands);
        run(&plan);
    }
}

fn plan(text: &str, protocol: Protocol, allow_shell: bool) -> dyno_model::Result<Plan> {
    let (mut scripts, session) = specs(text, &[("x", "12"), ("y", "a'b")], protocol);
    scripts.allow_shell = allow_shell;
    Plan::new(scripts, session)
}

/// All commands in the order of the file, without jumps: assignments are made, statements written.
fn run(plan: &Plan) {
    let mut frame = plan.frame(0);
    let mut out = Out::default();
    for planned in &plan.commands {
        match &planned.command.action {
            Action::Set(slot, program) => {
                if let Ok(value) = program.eval(&mut frame, &plan.names) {
                    frame.set(*slot, value);
                }
            }
            Action::Unless(program, _) => drop(program.holds(&mut frame, &plan.names)),
            Action::Sql(_) => {
                for known in [false, true] {
                    out.clear();
                    plan.statements[planned.statement].write(&frame, &plan.names, known, true, &mut out);
                    let all: Vec<_> = messages(out.bytes()).collect();
                    assert_eq!(
                        all.iter().map(|(_, body)| 5 + body.len()).sum::<usize>(),
                        out.len()
                    );
                    let (last, before) = all.split_last().expect("a message");
                    assert!(b"SQ".contains(&last.0) && before.iter().all(|(tag, _)| b"PCBDE".contains(tag)));
                    assert!(last.0 == b'S' || last.1.iter().position(|&b| b == 0) == Some(last.1.len() - 1));
                }
            }
            _ => {}
        }
    }
}
