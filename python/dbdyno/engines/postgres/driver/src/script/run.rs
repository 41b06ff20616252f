//! Execution of a session's scripts: their commands one after another, and what follows the answers.

use dyno_model::{CallEnd, Result, now_ns};
use dyno_script::{Action, Duration, Frame, Operand, Slot};

use crate::machine::{ROLLBACK, Step};
use crate::plan::Protocol;
use crate::script::commands::CommandTally;
use crate::script::plan::Plan;
use crate::script::session::{IDLE, ScriptCalls, Waiting};
use crate::script::shell;
use crate::script::statement::SYNC;

/// A failure that is not the server's: of a meta-command, or a transaction that is still open at the end.
const OWN: [u8; 5] = *b"-----";
/// Serialization failure and deadlock: the transaction is tried again.
const AGAIN: [[u8; 5]; 2] = [*b"40001", *b"40P01"];

impl ScriptCalls {
    // -- commands ---------------------------------------------------------------------------------

    /// Runs commands from the present one on until one has to wait.
    #[inline]
    pub(super) fn run(&mut self) -> Result<Step> {
        loop {
            if self.at == self.end {
                return self.end_of_script();
            }
            match &self.plan.commands[self.at].command.action {
                Action::Sql(_) if !self.pipeline => return Ok(self.statement()),
                Action::Set(slot, program) => match program.eval(&mut self.frame, &self.plan.names) {
                    Ok(value) => self.frame.set(*slot, value),
                    Err(error) => return self.fail(&error.message),
                },
                _ => {
                    if let Some(step) = self.other()? {
                        return Ok(step);
                    }
                    continue;
                }
            }
            self.executed();
            self.at += 1;
        }
    }

    /// Runs a command that is neither a statement by itself nor an assignment; `None`: on to the next.
    #[inline(never)]
    fn other(&mut self) -> Result<Option<Step>> {
        let planned = &self.plan.commands[self.at];
        let mut next = self.at + 1;
        let done = match &planned.command.action {
            Action::Sql(_) if planned.wants_rows => {
                Err("results cannot be stored within a pipeline".to_owned())
            }
            Action::Sql(_) => {
                self.queue();
                Ok(())
            }
            Action::Set(..) => Ok(()),
            Action::Unless(program, to) => program
                .holds(&mut self.frame, &self.plan.names)
                .map(|holds| next = if holds { next } else { *to })
                .map_err(|e| e.message),
            Action::Jump(to) => {
                next = *to;
                Ok(())
            }
            Action::Sleep(duration, unit_us) => match pause_ns(duration, *unit_us, &self.frame, &self.plan) {
                Ok(pause_ns) => {
                    let until_ns = now_ns().saturating_add(pause_ns);
                    self.waiting = Waiting::Instant;
                    return Ok(Some(Step::Sleep(until_ns)));
                }
                Err(words) => Err(words),
            },
            Action::Shell(slot, words) => match self.shell(*slot, &words.clone())? {
                Ok(()) => {
                    self.timed();
                    self.at = next;
                    return Ok(None);
                }
                Err(words) => Err(words),
            },
            Action::StartPipeline | Action::SyncPipeline | Action::EndPipeline => {
                let action = planned.command.action.clone();
                match self.pipe(&action) {
                    Ok(true) => return Ok(Some(self.send(Waiting::Answer))),
                    Ok(false) => Ok(()),
                    Err(words) => Err(words),
                }
            }
        };
        if let Err(words) = done {
            return self.fail(&words).map(Some);
        }
        self.executed();
        self.at = next;
        Ok(None)
    }

    #[inline]
    fn tally(&mut self) -> &mut CommandTally {
        &mut self.tallies[self.at]
    }

    /// The present command ended well; it did not wait.
    #[inline]
    fn executed(&mut self) {
        if self.measured {
            self.tally().executions += 1;
        }
    }

    /// The present command ended well; it waited.
    #[inline]
    pub(super) fn timed(&mut self) {
        if self.measured {
            let now = now_ns();
            let duration_ns = now - self.since_ns;
            self.since_ns = now;
            self.tally().count(duration_ns);
        }
    }

    /// Sends the present statement, or what comes before it.
    #[inline]
    fn statement(&mut self) -> Step {
        match self.plan.validation {
            Some(validation) if !self.validated => self.validate(validation),
            _ => self.send_statement(),
        }
    }

    #[cold]
    fn validate(&mut self, validation: usize) -> Step {
        self.out.clear();
        self.write(validation, true);
        self.due = 1;
        self.send(Waiting::Validation)
    }

    #[expect(
        clippy::inline_always,
        reason = "the hot path; the use after a validation is not"
    )]
    #[inline(always)]
    fn send_statement(&mut self) -> Step {
        self.out.clear();
        let planned = &self.plan.commands[self.at];
        if planned.wants_rows {
            self.results.clear();
            self.incoming.walker.want_rows(true);
        }
        self.write(planned.statement, true);
        self.due = 1;
        self.send(Waiting::Answer)
    }

    #[expect(clippy::inline_always, reason = "the hot path; other uses are not")]
    #[inline(always)]
    fn write(&mut self, statement: usize, sync: bool) {
        let known = self.known[statement];
        self.plan.statements[statement].write(&self.frame, &self.plan.names, known, sync, &mut self.out);
    }

    /// Adds the present statement to the pipeline.
    fn queue(&mut self) {
        if let Some(validation) = self.plan.validation {
            self.write(validation, false);
        }
        self.write(self.plan.commands[self.at].statement, false);
    }

    /// Executes a pipeline command; true if all is to be sent now.
    fn pipe(&mut self, action: &Action) -> std::result::Result<bool, String> {
        let starts = matches!(action, Action::StartPipeline);
        if self.plan.session.protocol == Protocol::Simple {
            return Err("the simple protocol has no pipelines: use extended or prepared".to_owned());
        }
        if starts == self.pipeline {
            let state = if starts { "already open" } else { "not open" };
            return Err(format!("the pipeline is {state}"));
        }
        if starts {
            (self.pipeline, self.due) = (true, 0);
            self.out.clear();
            return Ok(false);
        }
        self.out.extend(SYNC);
        self.due += 1;
        self.pipeline = matches!(action, Action::SyncPipeline);
        Ok(!self.pipeline)
    }

    #[cold]
    fn shell(&mut self, slot: Option<Slot>, words: &[Operand]) -> Result<std::result::Result<(), String>> {
        let line = match shell::line(words, &self.frame, &self.plan.names) {
            Ok(line) => line,
            Err(words) => return Ok(Err(words)),
        };
        let value = shell::run(&line, slot.is_some(), &self.breaker)?;
        Ok(value.map(|value| {
            if let (Some(slot), Some(value)) = (slot, value) {
                self.frame.set(slot, value);
            }
        }))
    }

    // -- ends -------------------------------------------------------------------------------------

    /// The present command cannot be executed: its place and why.
    #[cold]
    fn fail(&mut self, why: &str) -> Result<Step> {
        let name = &self.plan.scripts.files[self.script].name;
        let commands = &self.plan.commands[self.plan.places[self.script].start..self.end];
        // At the end of the script it is the last one's.
        let command = self.plan.commands[..self.end].get(self.at).or(commands.last());
        let (line, text) = command.map_or((0, ""), |c| (c.command.line, c.command.text.as_str()));
        self.failure = Some((OWN, format!("{name}:{line}: {text}: {why}")));
        self.ended_ns = None;
        if self.pipeline {
            return Ok(self.leave_pipeline());
        }
        self.after_failure()
    }

    /// The server has to come to the end of what it was sent.
    #[cold]
    fn leave_pipeline(&mut self) -> Step {
        self.pipeline = false;
        self.out.extend(SYNC);
        self.due += 1;
        self.send(Waiting::Leaving)
    }

    #[inline]
    fn end_of_script(&mut self) -> Result<Step> {
        if self.pipeline || self.status != IDLE {
            let what = if self.pipeline { "pipeline" } else { "transaction" };
            return self.fail(&format!(
                "the script ended with an open {what}: end it in the script"
            ));
        }
        self.waiting = Waiting::Nothing;
        Ok(Step::Done(CallEnd::Ok))
    }

    /// An open transaction is rolled back, so that the next try or call starts clean.
    #[cold]
    fn after_failure(&mut self) -> Result<Step> {
        if self.status != IDLE {
            self.out.clear();
            self.out.extend(ROLLBACK);
            self.due = 1;
            return Ok(self.send(Waiting::Rollback));
        }
        self.waiting = Waiting::Nothing;
        let Some((code, message)) = self.failure.take() else {
            return Ok(Step::Done(CallEnd::Ok));
        };
        let most = self.plan.scripts.max_tries;
        let again = AGAIN.contains(&code)
            && (most == 0 || self.retries + 1 < most)
            && self.no_try_from_ns.is_none_or(|end_ns| now_ns() < end_ns);
        if self.measured && self.at < self.end {
            let tally = self.tally();
            let count = if again {
                &mut tally.retries
            } else {
                &mut tally.failures
            };
            *count += 1;
        }
        // Random numbers and variables as they were: a try is the same transaction.
        if let Some(saved) = self.saved.as_ref().filter(|_| AGAIN.contains(&code)) {
            self.frame.clone_from(saved);
        }
        if !again {
            return Ok(Step::Done(CallEnd::Failed { code, message }));
        }
        self.retries += 1;
        self.since_ns = if self.measured { now_ns() } else { 0 };
        (self.at, self.validated) = (self.plan.places[self.script].start, false);
        self.run()
    }

    /// All that was sent is answered.
    #[expect(clippy::inline_always, reason = "the hot path; other uses are cold")]
    #[inline(always)]
    pub(super) fn ready(&mut self) -> Result<Step> {
        match self.waiting {
            Waiting::Answer if self.failure.is_none() => self.answered(),
            Waiting::Validation if self.failure.is_none() => {
                self.known[self.plan.validation.unwrap_or_default()] =
                    self.plan.session.protocol == Protocol::Prepared;
                self.validated = true;
                Ok(self.after_validation())
            }
            _ => {
                self.incoming.walker.want_rows(false);
                self.after_failure()
            }
        }
    }

    #[cold]
    fn after_validation(&mut self) -> Step {
        self.send_statement()
    }

    /// The present command has ended well, unless its rows are wrong.
    #[expect(clippy::inline_always, reason = "the hot path; other uses are cold")]
    #[inline(always)]
    fn answered(&mut self) -> Result<Step> {
        let planned = &self.plan.commands[self.at];
        if let Action::Sql(sql) = &planned.command.action {
            self.known[planned.statement] = self.plan.session.protocol == Protocol::Prepared;
            if planned.wants_rows {
                self.incoming.walker.want_rows(false);
                if let Err(words) = self.results.finish(&sql.into, &mut self.frame) {
                    return self.fail(&words);
                }
            }
        }
        self.timed();
        self.validated = false;
        self.at += 1;
        if self.at == self.end {
            self.ended_ns = Some(self.since_ns).filter(|_| self.measured);
            return self.end_of_script();
        }
        self.run()
    }
}

/// Duration of a `\sleep`, ns.
fn pause_ns(
    duration: &Duration,
    unit_us: u64,
    frame: &Frame,
    plan: &Plan,
) -> std::result::Result<i64, String> {
    let number = match duration {
        Duration::Number(number) => *number,
        Duration::Variable(slot) => {
            let name = plan.names.name(*slot);
            let value = frame.get(*slot).ok_or(format!("variable :{name} is not set"))?;
            let mut text = Vec::new();
            value.sql_text(&mut text);
            let text = String::from_utf8_lossy(&text);
            // What follows the digits does not count, as in pgbench: 1.5 us is 1 us.
            let sign = usize::from(text.starts_with('-'));
            let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
            text[..sign + digits]
                .parse()
                .map_err(|_| format!("variable :{name} is {text:?}, not a number"))?
        }
    };
    let factor = i64::try_from(unit_us).unwrap_or(i64::MAX).saturating_mul(1000);
    Ok(number.max(0).saturating_mul(factor))
}
