//! Where processes have the ids of the statements they work for.

use dyno_observe::{Refusal, StatementSpec, Status, WordFinder, WordSpec, behind};

/// Where a process has the id of the statement it works for; all 0: nowhere.
#[derive(Debug, Clone, Copy, Default)]
pub struct Statement {
    /// Address of the pointer to its entry of the activity view.
    pub variable: u64,
    /// Where in that entry the id is.
    pub at: u32,
    /// Label of a wait for the next statement.
    pub idle: u32,
}

impl Statement {
    /// The id of process `pid`, as of now; 0: none, or it cannot be read.
    pub fn read(self, pid: i64) -> u64 {
        match self.variable {
            0 => 0,
            variable => behind(pid, variable, u64::from(self.at)).unwrap_or(0),
        }
    }
}

/// Ids of statements, and whether they are read.
pub struct Statements {
    finder: Option<WordFinder>,
    at: u32,
    idle: u32,
    /// (status, detail).
    pub status: (String, String),
}

impl Statements {
    /// As the specification of the word says.
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

    /// Where process `pid` has it. A process that refuses has none; the main process is to be asked first.
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
