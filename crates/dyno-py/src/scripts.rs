//! pgbench's script language for Python: the commands of a script, and the values of its expressions.

use std::collections::BTreeMap;

use dyno_script::{
    AUTOMATIC, Action, Command, Frame, Names, Options, Rng, Script, ScriptError, Value, builtin,
    copies_with_client, read,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::json;

/// Returns the commands of a script and its first mistake, as JSON. `given` has the names of variables that it need
/// not set.
#[pyfunction]
#[pyo3(signature = (name, text, allow_shell = false, protocol = "simple", given = vec![]))]
#[expect(clippy::needless_pass_by_value, reason = "from Python")]
fn read_script(name: &str, text: &str, allow_shell: bool, protocol: &str, given: Vec<String>) -> String {
    let options = Options {
        protocol_simple: protocol == "simple",
        allow_shell,
    };
    let mut names = Names::default();
    for name in AUTOMATIC.into_iter().chain(given.iter().map(String::as_str)) {
        names.slot(name);
    }
    match read(name, text, &options, &mut names) {
        Ok(script) => json!({"commands": commands(&script, &names), "error": null}).to_string(),
        Err(error) => json!({"commands": [], "error": fault(&error)}).to_string(),
    }
}

fn commands(script: &Script, names: &Names) -> Vec<serde_json::Value> {
    script
        .commands
        .iter()
        .map(|command| described(command, names))
        .collect()
}

fn described(command: &Command, names: &Names) -> serde_json::Value {
    let mut value = json!({"line": command.line, "kind": kind(&command.action), "text": command.text,
        "sql": null, "variables": [], "start": null, "statements": 0, "copies_with_client": false});
    if let Action::Sql(sql) = &command.action {
        let (text, slots) = sql.parametrised();
        value["copies_with_client"] = copies_with_client(&text).into();
        value["sql"] = text.into();
        value["variables"] = slots.iter().map(|&slot| names.name(slot)).collect();
        value["start"] = sql.start.into();
        value["statements"] = sql.statements.into();
    }
    value
}

fn kind(action: &Action) -> &'static str {
    match action {
        Action::Sql(_) => "sql",
        Action::Set(..) => "set",
        Action::Unless(..) => "if",
        Action::Jump(_) => "else",
        Action::Sleep(..) => "sleep",
        Action::StartPipeline => "startpipeline",
        Action::SyncPipeline => "syncpipeline",
        Action::EndPipeline => "endpipeline",
        Action::Shell(..) => "shell",
    }
}

fn fault(error: &ScriptError) -> serde_json::Value {
    json!({"line": error.line, "column": error.column, "message": error.message, "cure": error.cure,
        "shown": error.shown})
}

/// The full name and the text of a built-in script.
#[pyfunction]
fn builtin_script(name: &str) -> Option<(&'static str, &'static str)> {
    builtin(name)
}

/// The variables after the `\set` commands and conditions of a script, as pgbench writes them into SQL.
#[pyfunction]
fn evaluate_script(
    text: &str,
    variables: BTreeMap<String, String>,
    seed: u64,
) -> PyResult<BTreeMap<String, String>> {
    let wrong = |error: &dyn std::fmt::Display| PyValueError::new_err(error.to_string());
    let mut names = Names::default();
    let options = Options {
        protocol_simple: true,
        allow_shell: false,
    };
    let script = read("script", text, &options, &mut names).map_err(|e| wrong(&e))?;
    let mut frame = Frame::new(&names, Rng::seeded(seed, 0));
    for (name, value) in variables {
        frame.set(names.slot(&name), Value::Text(value.into()));
    }
    let mut next = 0;
    while let Some(command) = script.commands.get(next) {
        next += 1;
        match &command.action {
            Action::Set(slot, program) => {
                let value = program.eval(&mut frame, &names).map_err(|e| wrong(&e))?;
                frame.set(*slot, value);
            }
            Action::Unless(program, target) => {
                let holds = program.holds(&mut frame, &names).map_err(|e| wrong(&e))?;
                next = if holds { next } else { *target };
            }
            Action::Jump(target) => next = *target,
            _ => {}
        }
    }
    Ok(variable_texts(&frame, &names))
}

fn variable_texts(frame: &Frame, names: &Names) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    for (place, value) in frame.values.iter().enumerate() {
        if let Some(value) = value {
            let mut text = Vec::new();
            value.sql_text(&mut text);
            let name = names.name(dyno_script::Slot(place as u32));
            texts.insert(name.to_owned(), String::from_utf8_lossy(&text).into_owned());
        }
    }
    texts
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(read_script, m)?)?;
    m.add_function(wrap_pyfunction!(builtin_script, m)?)?;
    m.add_function(wrap_pyfunction!(evaluate_script, m)?)
}
