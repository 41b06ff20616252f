//! `\shell` and `\setshell`: commands of this machine, run and waited for in the driver's thread, as pgbench does.

use std::process::{Command, Stdio};

use dyno_script::{Frame, Names, Operand, Value};

/// The words with the values of variables, joined by blanks.
pub(crate) fn line(words: &[Operand], frame: &Frame, names: &Names) -> Result<String, String> {
    let mut line = Vec::new();
    for (i, word) in words.iter().enumerate() {
        if i > 0 {
            line.push(b' ');
        }
        match word {
            Operand::Text(text) => line.extend_from_slice(text.as_bytes()),
            Operand::Variable(slot) => match frame.get(*slot) {
                Some(value) => value.sql_text(&mut line),
                None => return Err(format!("variable :{} is not set", names.name(*slot))),
            },
        }
    }
    String::from_utf8(line).map_err(|e| e.to_string())
}

/// Runs it; its output as a number, if that is `wanted`.
pub(crate) fn run(line: &str, wanted: bool) -> Result<Option<Value>, String> {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(line).stdin(Stdio::null());
    if !wanted {
        let status = command.status().map_err(|e| e.to_string())?;
        return if status.success() {
            Ok(None)
        } else {
            Err(format!("the command ended with {status}"))
        };
    }
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(format!("the command ended with {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().parse() {
        Ok(number) => Ok(Some(Value::Int(number))),
        Err(_) => Err(format!(
            "the command must print a whole number, not {:?}",
            text.trim()
        )),
    }
}
