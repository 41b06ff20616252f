//! Backslash commands: their line, its words, and what is wrong with them.

use crate::error::Fault;
use crate::{Action, Duration, Into, Names, Operand, Options, Program, Slot, expression, is_name};

/// All commands, for "did you mean".
const COMMANDS: [&str; 14] = [
    "set",
    "if",
    "elif",
    "else",
    "endif",
    "sleep",
    "gset",
    "aset",
    "startpipeline",
    "syncpipeline",
    "endpipeline",
    "shell",
    "setshell",
    ";",
];

/// A backslash command, before conditions become jumps.
#[derive(Debug)]
pub(crate) enum Meta {
    Do(Action),
    If(Program),
    Elif(Program),
    Else,
    Endif,
    Results(Into),
}

/// A backslash command's line: continued lines are one, at the same offsets.
pub(crate) struct Line {
    /// From the backslash on; continuations are blanks.
    pub text: String,
    /// Where it begins in the script.
    pub start: usize,
    /// Where the script goes on.
    pub next: usize,
}

/// A word and where it begins in the script.
struct Word<'a> {
    text: &'a str,
    at: usize,
}

impl Line {
    pub(crate) fn at(script: &str, start: usize) -> Self {
        let mut text = String::new();
        for part in script[start..].split_inclusive('\n') {
            let bare = part.trim_end_matches(['\n', '\r']);
            match bare
                .strip_suffix('\\')
                .filter(|before| !(text.is_empty() && before.is_empty()))
            {
                Some(before) if bare.len() < part.len() => {
                    text.push_str(before);
                    text.extend(std::iter::repeat_n(' ', part.len() - before.len()));
                }
                _ => {
                    text.push_str(bare);
                    return Self {
                        next: start + text.len(),
                        text,
                        start,
                    };
                }
            }
        }
        Self {
            next: start + text.len(),
            text,
            start,
        }
    }

    fn words(&self) -> Vec<Word<'_>> {
        let begin = self.text.as_ptr() as usize;
        let words = self.text[1..].split_whitespace();
        words
            .map(|text| Word {
                text,
                at: self.start + (text.as_ptr() as usize - begin),
            })
            .collect()
    }

    /// Where the line ends, without blanks.
    fn end(&self) -> usize {
        self.start + self.text.trim_end().len()
    }

    /// Returns the text after the first `count` words, and its place in the script.
    fn behind<'a>(&'a self, words: &[Word<'_>], count: usize) -> (&'a str, usize) {
        let last = &words[count - 1];
        let at = last.at + last.text.len();
        (&self.text[at - self.start..], at)
    }
}

/// Parses a meta command.
pub(crate) fn parse(line: &Line, options: &Options, names: &mut Names) -> Result<Meta, Fault> {
    let words = line.words();
    let Some(command) = words.first() else {
        return Err(Fault::new(line.start, "a backslash without a command", known()));
    };
    let name = command.text.to_ascii_lowercase();
    let at_most = |count: usize| match words.get(count + 1) {
        Some(word) => {
            let cure = format!("\\{name} takes {}; leave out what follows.", arguments(count));
            Err(Fault::new(
                word.at,
                format!("too many arguments for \\{name}"),
                cure,
            ))
        }
        None => Ok(()),
    };
    let bare = |meta: Meta| at_most(0).map(|()| meta);
    match name.as_str() {
        "set" => set(line, &words, names),
        "if" => condition(line, &words, names).map(Meta::If),
        "elif" => condition(line, &words, names).map(Meta::Elif),
        "else" => bare(Meta::Else),
        "endif" => bare(Meta::Endif),
        "startpipeline" => bare(Meta::Do(Action::StartPipeline)),
        "syncpipeline" => bare(Meta::Do(Action::SyncPipeline)),
        "endpipeline" => bare(Meta::Do(Action::EndPipeline)),
        "sleep" => at_most(2).and_then(|()| sleep(line, &words, names)),
        "gset" => at_most(1)
            .and_then(|()| prefix(&words))
            .map(|p| Meta::Results(Into::Gset(p))),
        "aset" => at_most(1)
            .and_then(|()| prefix(&words))
            .map(|p| Meta::Results(Into::Aset(p))),
        "shell" => shell(line, &words, false, options, names),
        "setshell" => shell(line, &words, true, options, names),
        "setrandom" => Err(Fault::new(
            line.start,
            "\\setrandom is of pgbench before 9.6",
            as_set(&words),
        )),
        _ => Err(unknown(line.start, &name)),
    }
}

fn arguments(count: usize) -> String {
    match count {
        0 => "no argument".into(),
        1 => "at most one argument".into(),
        _ => format!("at most {count} arguments"),
    }
}

fn known() -> String {
    format!(
        "Commands are: {}.",
        COMMANDS.map(|name| format!("\\{name}")).join(" ")
    )
}

/// `\setrandom NAME LOW HIGH [gaussian|exponential PARAMETER]` as it is written today.
fn as_set(words: &[Word<'_>]) -> String {
    let word = |n: usize, example: &'static str| words.get(n).map_or(example, |word| word.text);
    let (name, low, high) = (word(1, "aid"), word(2, "1"), word(3, "100000"));
    match word(4, "uniform").to_ascii_lowercase().as_str() {
        kind @ ("gaussian" | "exponential") => {
            format!(
                "Write \\set {name} random_{kind}({low}, {high}, {})",
                word(5, "2.5")
            )
        }
        _ => format!("Write \\set {name} random({low}, {high})"),
    }
}

fn unknown(at: usize, name: &str) -> Fault {
    let alike = COMMANDS.iter().filter(|known| name.len() <= known.len() + 2);
    let near = alike.map(|&known| (distance(name, known), known)).min();
    let cure = match near {
        Some((1..=2, meant)) => format!("Did you mean \\{meant}?"),
        _ => known(),
    };
    Fault::new(at, format!("unknown command \\{name}"), cure)
}

/// Characters to insert, leave out or replace to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

fn missing(line: &Line, what: &str, example: &str) -> Fault {
    Fault::new(
        line.end(),
        format!("{what} is missing"),
        format!("Write for example: {example}"),
    )
}

fn variable(word: &Word<'_>, names: &mut Names) -> Result<Slot, Fault> {
    if is_name(word.text) {
        return Ok(names.slot(word.text));
    }
    let cure = "Use letters, digits and underscores, and no digit first.";
    Err(Fault::new(
        word.at,
        format!("{:?} is not a name for a variable", word.text),
        cure,
    ))
}

fn set(line: &Line, words: &[Word<'_>], names: &mut Names) -> Result<Meta, Fault> {
    const EXAMPLE: &str = "\\set aid random(1, 100000 * :scale)";
    let target = words
        .get(1)
        .ok_or_else(|| missing(line, "the name of a variable", EXAMPLE))?;
    let slot = variable(target, names)?;
    if words.len() == 2 {
        return Err(missing(line, "an expression", EXAMPLE));
    }
    let (text, at) = line.behind(words, 2);
    Ok(Meta::Do(Action::Set(slot, expression::compile(text, at, names)?)))
}

fn condition(line: &Line, words: &[Word<'_>], names: &mut Names) -> Result<Program, Fault> {
    if words.len() == 1 {
        return Err(missing(
            line,
            "a condition",
            &format!("{} :x > 10", line.text.trim()),
        ));
    }
    let (text, at) = line.behind(words, 1);
    expression::compile(text, at, names)
}

/// `\sleep 10 ms`, `\sleep 10ms`, `\sleep :time us`; seconds where no unit is given.
fn sleep(line: &Line, words: &[Word<'_>], names: &mut Names) -> Result<Meta, Fault> {
    let time = words
        .get(1)
        .ok_or_else(|| missing(line, "the time", "\\sleep 10 ms"))?;
    let (number, mut unit) = if time.text.starts_with(':') {
        (time.text, "")
    } else {
        let sign = usize::from(time.text.starts_with(['-', '+']));
        let digits = time.text[sign..].bytes().take_while(u8::is_ascii_digit).count();
        time.text.split_at(if digits == 0 { 0 } else { sign + digits })
    };
    let mut unit_at = time.at + number.len();
    if let Some(word) = words.get(2) {
        if !unit.is_empty() {
            return Err(Fault::new(
                unit_at,
                format!("{unit:?} is not a whole number"),
                SLEEP,
            ));
        }
        (unit, unit_at) = (word.text, word.at);
    }
    let duration = match number.strip_prefix(':') {
        Some(name) => Duration::Variable(variable(
            &Word {
                text: name,
                at: time.at + 1,
            },
            names,
        )?),
        None => Duration::Number(
            number
                .parse()
                .map_err(|_| Fault::new(time.at, format!("{:?} is not a whole number", time.text), SLEEP))?,
        ),
    };
    let micros = match unit.to_ascii_lowercase().as_str() {
        "us" => 1,
        "ms" => 1_000,
        "s" | "" => 1_000_000,
        _ => {
            return Err(Fault::new(
                unit_at,
                format!("unknown unit of time {unit:?}"),
                SLEEP,
            ));
        }
    };
    Ok(Meta::Do(Action::Sleep(duration, micros)))
}

const SLEEP: &str = "Write a whole number or a variable, and us, ms or s: \\sleep 10 ms";

fn prefix(words: &[Word<'_>]) -> Result<String, Fault> {
    let Some(word) = words.get(1) else {
        return Ok(String::new());
    };
    if is_name(word.text) {
        return Ok(word.text.to_owned());
    }
    let cure = "Use letters, digits and underscores, and no digit first: it begins names of variables.";
    Err(Fault::new(
        word.at,
        format!("{:?} cannot begin the name of a variable", word.text),
        cure,
    ))
}

fn shell(
    line: &Line,
    words: &[Word<'_>],
    sets: bool,
    options: &Options,
    names: &mut Names,
) -> Result<Meta, Fault> {
    let name = words[0].text;
    if !options.allow_shell {
        let message = format!("\\{name} runs a program on this machine, which is not allowed by default");
        return Err(Fault::new(
            line.start,
            message,
            "Allow it with --allow-shell if you trust this script.",
        ));
    }
    let first = 1 + usize::from(sets);
    let target = match words.get(1).filter(|_| sets) {
        Some(word) => Some(variable(word, names)?),
        None => None,
    };
    if words.len() <= first {
        return Err(missing(line, "a shell command", "\\setshell today date +%j"));
    }
    let operand = |word: &Word<'_>| match word.text.strip_prefix(':') {
        Some(rest) if rest.starts_with(':') => Operand::Text(rest.to_owned()), // "::" stands for a colon
        Some(name) if is_name(name) => Operand::Variable(names.slot(name)),
        _ => Operand::Text(word.text.to_owned()),
    };
    Ok(Meta::Do(Action::Shell(
        target,
        words[first..].iter().map(operand).collect(),
    )))
}
