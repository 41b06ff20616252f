//! Locations of the ids of the statements that processes execute.

use dyno_observe::{Refusal, StatementSpec, Status, WordFinder, WordSpec, behind};

/// Location of the id of the statement that a process executes; all 0 if it is unknown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Statement {
    /// Address of the pointer to its entry of the activity view.
    pub variable: u64,
    /// Offset of the id in that entry.
    pub at: u32,
    /// Label of a wait for the next statement.
    pub idle: u32,
}

impl Statement {
    /// Returns the current id of process `pid`, or 0 if there is none or it cannot be read.
    pub fn read(self, pid: i64) -> u64 {
        match self.variable {
            0 => 0,
            variable => behind(pid, variable, u64::from(self.at)).unwrap_or(0),
        }
    }
}

/// Finds the ids of statements in processes, and knows whether they can be read.
pub struct Statements {
    finder: Option<WordFinder>,
    at: u32,
    idle: u32,
    /// Status and detail of the ids.
    pub status: (String, String),
}

impl Statements {
    /// Returns the finder for a specification of the wait event word.
    pub fn new(word: Option<&WordSpec>) -> Self {
        let refused = |status| Self {
            finder: None,
            at: 0,
            idle: 0,
            status,
        };
        match word.and_then(|w| w.statement.as_ref().map(|s| (w, s))) {
            Some((word, StatementSpec::At { symbol, offset, idle })) => Self {
                finder: Some(WordFinder::new(&word.program, symbol)),
                at: *offset,
                idle: *idle,
                status: (Status::Ok.as_str().to_owned(), String::new()),
            },
            Some((_, StatementSpec::Refused { refused: status })) => refused(status.clone()),
            None => {
                let detail = "where this server keeps the ids of statements is not known";
                refused(Refusal::new(Status::NotSupported, detail).status_and_detail())
            }
        }
    }

    /// Returns the location in process `pid`, or all 0 if the process refuses. The main process must be asked first.
    pub fn locate(&mut self, pid: i64) -> Statement {
        let Some(finder) = &mut self.finder else {
            return Statement::default();
        };
        match finder.address(pid) {
            Ok(variable) => Statement {
                variable,
                at: self.at,
                idle: self.idle,
            },
            Err(refusal) => {
                if refusal.status != Status::Vanished {
                    self.status = refusal.status_and_detail();
                }
                Statement::default()
            }
        }
    }
}
