//! A script's text to its commands: conditions become jumps, `\gset` goes to the statement before it.

use std::collections::HashSet;

use crate::error::Fault;
use crate::meta::{Line, Meta};
use crate::names::Prefixes;
use crate::sql::{End, Place, Raw};
use crate::{
    Action, Command, Into, MOST_BYTES, MOST_COMMANDS, Names, Operand, Options, Script, ScriptError, Slot,
    Sql, meta, sql,
};

/// As many parameters as pgbench allows a statement.
const MOST_PARAMETERS: usize = 255;
/// `\if` within `\if`, at most.
const DEEPEST: usize = 100;

/// Reads a script. Names of variables are added to `names`: read all scripts of a run with the same ones, after
/// the variables that are given or automatic.
///
/// # Errors
/// The first mistake, with its line and a cure.
pub fn read(name: &str, text: &str, options: &Options, names: &mut Names) -> Result<Script, ScriptError> {
    let mut reader = Reader {
        text,
        options,
        given: names.len(),
        counted: (0, 1),
        commands: Vec::new(),
        branches: Vec::new(),
        results: false,
        pipeline: Some(false),
        bound: Vec::new(),
    };
    match reader.read(names) {
        Ok(()) => Ok(Script {
            name: name.into(),
            commands: reader.commands,
        }),
        Err(fault) => Err(fault.in_script(name, text)),
    }
}

/// An `\if` that is open.
struct Branch {
    at: usize,
    /// The test that leads here where it is not true.
    test: Option<usize>,
    /// Jumps to the end.
    ends: Vec<usize>,
    /// The state of the pipeline at the `\if`, and whether a branch ended in another one.
    pipeline: Option<bool>,
    differs: bool,
}

/// A variable where no parameter can stand.
struct Bound {
    command: usize,
    piece: usize,
    place: Place,
    at: usize,
}

struct Reader<'a> {
    text: &'a str,
    options: &'a Options,
    /// So many names were known before.
    given: usize,
    /// An offset, and its line from 1: that of the last command.
    counted: (usize, u32),
    commands: Vec<Command>,
    branches: Vec<Branch>,
    /// Whether the last command is a statement without `\gset`.
    results: bool,
    /// Whether a pipeline is open; `None`: that depends on a condition.
    pipeline: Option<bool>,
    bound: Vec<Bound>,
}

impl Reader<'_> {
    fn read(&mut self, names: &mut Names) -> Result<(), Fault> {
        if self.text.len() > MOST_BYTES {
            let message = format!(
                "the script has {} bytes; at most {MOST_BYTES} are allowed",
                self.text.len()
            );
            return Err(Fault::new(0, message, "Split it into several scripts."));
        }
        let mut at = 0;
        loop {
            let raw = sql::scan(self.text, at)?;
            let (end, next) = (raw.end, raw.next);
            if !raw.query.is_empty() || end == End::Semicolon {
                self.sql(&raw, names)?;
            }
            at = match end {
                End::Semicolon => next,
                End::Backslash => self.meta(next, names)?,
                End::Text => break,
            };
        }
        self.ended(names)
    }

    fn push(&mut self, start: usize, text: &str, action: Action) -> Result<(), Fault> {
        if self.commands.len() == MOST_COMMANDS {
            let message = format!("the script has more than {MOST_COMMANDS} commands");
            return Err(Fault::new(start, message, "Split it into several scripts."));
        }
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.results = matches!(action, Action::Sql(_));
        let (counted, line) = self.counted; // counting from the top each time would be quadratic
        let line = line + self.text[counted..start].matches('\n').count() as u32;
        self.counted = (start, line);
        self.commands.push(Command { line, text, action });
        Ok(())
    }

    fn sql(&mut self, raw: &Raw, names: &mut Names) -> Result<(), Fault> {
        if raw.statements > 1 && !self.options.protocol_simple {
            let cure = "Take the simple protocol (-M simple), or end each statement with a semicolon.";
            return Err(Fault::new(
                raw.start,
                "several statements in one query need the simple protocol",
                cure,
            ));
        }
        let pieces = self.pieces(raw, names)?;
        let sql = Sql {
            pieces,
            start: raw.start,
            into: Into::Nothing,
            statements: raw.statements,
        };
        self.push(raw.start, &raw.query, Action::Sql(sql))
    }

    fn pieces(&mut self, raw: &Raw, names: &mut Names) -> Result<Vec<Operand>, Fault> {
        let (mut pieces, mut done) = (Vec::new(), 0);
        let uses = sql::variables(raw);
        for found in &uses {
            if found.at > done {
                pieces.push(Operand::Text(raw.query[done..found.at].into()));
            }
            if found.place != Place::Free && !self.options.protocol_simple {
                let (command, piece) = (self.commands.len(), pieces.len());
                self.bound.push(Bound {
                    command,
                    piece,
                    place: found.place,
                    at: raw.start,
                });
            }
            pieces.push(Operand::Variable(names.slot(&raw.query[found.at + 1..found.end])));
            done = found.end;
        }
        if done < raw.query.len() || pieces.is_empty() {
            pieces.push(Operand::Text(raw.query[done..].into()));
        }
        if uses.len() > MOST_PARAMETERS && !self.options.protocol_simple {
            let message = format!(
                "{} variables in one statement; at most 255 are allowed",
                uses.len()
            );
            let cure = "Use fewer variables, or the simple protocol (-M simple).";
            return Err(Fault::new(raw.start, message, cure));
        }
        Ok(pieces)
    }

    fn meta(&mut self, at: usize, names: &mut Names) -> Result<usize, Fault> {
        let line = Line::at(self.text, at);
        match meta::parse(&line, self.options, names)? {
            Meta::Do(action) => {
                self.pipelined(at, &action)?;
                self.push(at, &line.text, action)?;
            }
            Meta::Results(into) => self.results(at, into)?,
            Meta::If(program) => {
                if self.branches.len() == DEEPEST {
                    let message = format!("more than {DEEPEST} \\if are nested");
                    let cure = "Use \\elif for alternatives, or close an \\if before the next.";
                    return Err(Fault::new(at, message, cure));
                }
                self.branches.push(Branch {
                    at,
                    test: Some(self.commands.len()),
                    ends: Vec::new(),
                    pipeline: self.pipeline,
                    differs: false,
                });
                self.push(at, &line.text, Action::Unless(program, 0))?;
            }
            Meta::Elif(program) => {
                self.branch_ends(at, "elif", &line)?;
                self.branches.last_mut().expect("checked").test = Some(self.commands.len());
                self.push(at, &line.text, Action::Unless(program, 0))?;
            }
            Meta::Else => self.branch_ends(at, "else", &line)?,
            Meta::Endif => self.endif(at)?,
        }
        Ok(line.next)
    }

    /// The end of a branch before `\elif` and `\else`: a jump to the end, and the place to which its test leads.
    fn branch_ends(&mut self, at: usize, name: &str, line: &Line) -> Result<(), Fault> {
        let here = self.commands.len();
        let Some(branch) = self.branches.last_mut() else {
            return Err(without_if(at, name));
        };
        let Some(test) = branch.test.take() else {
            let cure = "Begin another \\if, or close this one with \\endif first.";
            return Err(Fault::new(at, format!("\\{name} after \\else"), cure));
        };
        branch.ends.push(here);
        branch.differs |= branch.pipeline != self.pipeline;
        self.pipeline = branch.pipeline;
        self.push(at, &line.text, Action::Jump(0))?;
        self.lead(test, here + 1);
        Ok(())
    }

    fn endif(&mut self, at: usize) -> Result<(), Fault> {
        let branch = self.branches.pop().ok_or_else(|| without_if(at, "endif"))?;
        let here = self.commands.len();
        for command in branch.ends.into_iter().chain(branch.test) {
            self.lead(command, here);
        }
        if branch.differs || branch.pipeline != self.pipeline {
            self.pipeline = None;
        }
        self.results = false;
        Ok(())
    }

    fn lead(&mut self, command: usize, to: usize) {
        if let Action::Unless(_, target) | Action::Jump(target) = &mut self.commands[command].action {
            *target = to;
        }
    }

    fn results(&mut self, at: usize, into: Into) -> Result<(), Fault> {
        let command = if matches!(into, Into::Gset(_)) {
            "gset"
        } else {
            "aset"
        };
        if self.pipeline == Some(true) {
            let cure = "Results of a pipeline come at its end: put it behind \\endpipeline.";
            return Err(Fault::new(at, format!("\\{command} in a pipeline"), cure));
        }
        match self.commands.last_mut().map(|command| &mut command.action) {
            Some(Action::Sql(sql)) if self.results => sql.into = into,
            _ => {
                let cure = format!("Write it directly behind a statement: SELECT 1 AS one \\{command}");
                return Err(Fault::new(
                    at,
                    format!("\\{command} without a statement before it"),
                    cure,
                ));
            }
        }
        self.results = false;
        Ok(())
    }

    fn pipelined(&mut self, at: usize, action: &Action) -> Result<(), Fault> {
        let (name, open) = match action {
            Action::StartPipeline => ("startpipeline", true),
            Action::SyncPipeline => ("syncpipeline", true),
            Action::EndPipeline => ("endpipeline", false),
            _ => return Ok(()),
        };
        if self.options.protocol_simple {
            let cure = "Take -M extended or -M prepared.";
            return Err(Fault::new(at, "a pipeline cannot use the simple protocol", cure));
        }
        match (name, self.pipeline) {
            ("startpipeline", Some(true)) => Err(Fault::new(
                at,
                "a pipeline is open already",
                "Close it with \\endpipeline first.",
            )),
            ("syncpipeline" | "endpipeline", Some(false)) => Err(Fault::new(
                at,
                "no pipeline is open",
                "Open it with \\startpipeline first.",
            )),
            _ => {
                self.pipeline = Some(open);
                Ok(())
            }
        }
    }

    fn ended(&mut self, names: &Names) -> Result<(), Fault> {
        if let Some(branch) = self.branches.last() {
            return Err(Fault::new(
                branch.at,
                "\\if without \\endif",
                "Close it with \\endif.",
            ));
        }
        let open = self
            .commands
            .iter()
            .rposition(|c| matches!(c.action, Action::StartPipeline));
        if let (Some(true), Some(command)) = (self.pipeline, open) {
            let line = self.commands[command].line as usize;
            let at = self.text.split_inclusive('\n').take(line - 1).map(str::len).sum();
            return Err(Fault::new(
                at,
                "a pipeline without an end",
                "Close it with \\endpipeline.",
            ));
        }
        if self.commands.is_empty() {
            return Err(Fault::new(
                0,
                "the script is empty",
                "Write at least one statement.",
            ));
        }
        self.check_bound(names)
    }

    /// Only the simple protocol replaces variables in quotes and within names. What is no variable elsewhere stays as
    /// it is written; a result may have any column.
    fn check_bound(&mut self, names: &Names) -> Result<(), Fault> {
        let (mut set, mut prefixes) = (HashSet::<Slot>::new(), Vec::new());
        for command in &self.commands {
            match &command.action {
                Action::Set(to, _) | Action::Shell(Some(to), _) => drop(set.insert(*to)),
                Action::Sql(sql) if sql.into != Into::Nothing => prefixes.push(sql.into.prefix().to_owned()),
                _ => {}
            }
        }
        let prefixes = Prefixes::new(prefixes);
        for Bound {
            command,
            piece,
            place,
            at,
        } in std::mem::take(&mut self.bound)
        {
            let Action::Sql(sql) = &self.commands[command].action else {
                continue;
            };
            let Operand::Variable(slot) = sql.pieces[piece] else {
                continue;
            };
            let name = names.name(slot);
            if (slot.0 as usize) < self.given || set.contains(&slot) || prefixes.begin(name) {
                let (message, cure) = match place {
                    Place::Name => (
                        format!("variable :{name} is part of a name"),
                        "Only the simple protocol (-M simple) replaces it there.",
                    ),
                    _ => (
                        format!("variable :{name} stands in quotes or in a comment"),
                        "Only the simple protocol (-M simple) replaces it there; otherwise join texts with ||.",
                    ),
                };
                let ahead = self.text[at..].find(&format!(":{name}")).unwrap_or(0);
                return Err(Fault::new(at + ahead, message, cure));
            }
            let text = Operand::Text(format!(":{name}"));
            if let Action::Sql(sql) = &mut self.commands[command].action {
                sql.pieces[piece] = text;
            }
        }
        Ok(())
    }
}

fn without_if(at: usize, name: &str) -> Fault {
    Fault::new(
        at,
        format!("\\{name} without \\if"),
        "Begin with \\if and a condition.",
    )
}
