//! pgbench's script language, without any I/O (PostgreSQL documentation 18, "pgbench", Custom Scripts).
//!
//! [`read`] makes of a text a [`Script`]: commands in the order of the file, conditions as jumps, expressions
//! as flat programs, names of variables as places in a session's [`Frame`].

mod builtin;
mod error;
mod expression;
mod meta;
mod names;
mod read;
mod rng;
mod sql;
mod statement;
mod value;

pub use builtin::builtin;
pub use error::ScriptError;
pub use expression::{EvalError, Program};
pub use names::{AUTOMATIC, Frame, Names, Prefixes, Slot, is_name};
pub use read::read;
pub use rng::Rng;
pub use sql::copies_with_client;
pub use value::Value;

/// Commands of a script, at most: each session counts and times every one of them.
pub const MOST_COMMANDS: usize = 10_000;
/// Bytes of a script's text, at most.
pub const MOST_BYTES: usize = 16 << 20;

/// How scripts are read.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The simple protocol: several statements in a query are allowed, pipelines are not.
    pub protocol_simple: bool,
    /// Whether `\shell` and `\setshell` are allowed.
    pub allow_shell: bool,
}

/// One script, ready to run.
#[derive(Clone, Debug)]
pub struct Script {
    /// Its name in messages and tables: the file's, or the built-in one's.
    pub name: String,
    /// In the order of the file.
    pub commands: Vec<Command>,
}

/// One command.
#[derive(Clone, Debug)]
pub struct Command {
    /// Line of the file on which it begins, from 1.
    pub line: u32,
    /// As it is written, in one line: for the table of latencies by command.
    pub text: String,
    /// Its effect.
    pub action: Action,
}

/// Effect of a command. `usize`: the number of the command to go on with; the number of commands is the end.
#[derive(Clone, Debug)]
pub enum Action {
    /// Sends a statement (with `\;`: several in one query).
    Sql(Sql),
    /// `\set`
    Set(Slot, Program),
    /// `\if`, `\elif`: goes on behind its branch where it is not true.
    Unless(Program, usize),
    /// The end of a branch, at `\elif` and `\else`: goes on behind `\endif`.
    Jump(usize),
    /// `\sleep`: so long, in units of so many microseconds.
    Sleep(Duration, u64),
    /// `\startpipeline`
    StartPipeline,
    /// `\syncpipeline`
    SyncPipeline,
    /// `\endpipeline`
    EndPipeline,
    /// `\shell`, and `\setshell` where there is a variable: words, joined by blanks.
    Shell(Option<Slot>, Vec<Operand>),
}

/// A number that is written, or a variable's.
#[derive(Clone, Debug, PartialEq)]
pub enum Duration {
    /// Written.
    Number(i64),
    /// A variable's value.
    Variable(Slot),
}

/// A word of a shell command: written, or a variable's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// Written.
    Text(String),
    /// A variable's value.
    Variable(Slot),
}

/// A statement with its variables.
#[derive(Clone, Debug, PartialEq)]
pub struct Sql {
    /// In order: text, variable, text ...; `--` comments and the final semicolon are left out.
    pub pieces: Vec<Operand>,
    /// Where in the script's text it begins, in bytes.
    pub start: usize,
    /// Where its results go.
    pub into: Into,
    /// Statements in it: more than one with `\;`.
    pub statements: usize,
}

/// Where the results of a statement go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Into {
    /// Nowhere.
    Nothing,
    /// `\gset PREFIX`: the one row of the last statement.
    Gset(String),
    /// `\aset PREFIX`: the last row of each statement.
    Aset(String),
}

impl Into {
    /// Returns the prefix of the variables' names.
    pub fn prefix(&self) -> &str {
        match self {
            Self::Nothing => "",
            Self::Gset(prefix) | Self::Aset(prefix) => prefix,
        }
    }
}
