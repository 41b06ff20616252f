//! Messages between sessions and the launcher over a stream: a length, then that many bytes.
//!
//! The session begins with a [`Hello`], answered by a refusal or nothing; then each [`Order`] is answered by a [`Report`].

use dyno_model::{Error, Result};
use serde::{Deserialize, Serialize};

/// Longest frame; a longer one is not of ours.
const LONGEST: usize = 64 << 20;
const LENGTH_BYTES: usize = 4;
/// Stands for an unknown number.
const UNKNOWN: i64 = i64::MIN;

/// A job as `model/plan/jobs.py` plans it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Job {
    /// Name of the job.
    pub name: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The command as people see it.
    pub shown: String,
    /// Working directory. `None`: dbdyno's.
    pub directory: Option<String>,
    /// Environment variables in addition to dbdyno's.
    pub env: std::collections::BTreeMap<String, String>,
    /// File that is its standard input; `None`: /dev/null.
    pub input: Option<String>,
    /// Command to run before each execution.
    pub prepare: Vec<String>,
    /// Command to run after each execution.
    pub conclude: Vec<String>,
    /// Command to run after each execution, which must succeed.
    pub verify: Vec<String>,
    /// Timeout, after which an execution is killed.
    pub timeout_ns: Option<i64>,
    /// Start-up of its shell, taken off durations.
    pub shell_ns: i64,
    /// Work of each execution, where it is known before.
    pub work: Option<f64>,
    /// File whose size after each execution is its work, where that is not known before.
    pub work_file: Option<String>,
    /// Expression whose first group in the output is the work.
    pub work_regex: Option<String>,
}

/// Introduction of a session: its number, and the jobs it will run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Number of the session.
    pub session: usize,
    /// The run's id.
    pub run: String,
    /// Bytes kept of what each execution prints.
    pub keep_output: usize,
    /// Jobs of the session.
    pub jobs: Vec<Job>,
}

/// An order for one execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// Index of the job.
    pub job: usize,
    /// Number of the execution in its session, from 0.
    pub number: i64,
    /// Instant from which on it must not begin.
    pub not_from_ns: i64,
}

/// The way an execution ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// Exit code 0, and all checks passed.
    #[default]
    Ok,
    /// It ended with another exit code.
    Exit,
    /// It was ended by a signal.
    Signal,
    /// It was killed after its timeout.
    Timeout,
    /// A command after it failed, or it did not print the number of its work.
    Verify,
    /// It was killed with its session.
    Stopped,
    /// The program could not be started, or what prepares it failed.
    NotStarted,
    /// It was not begun: it was too late.
    TooLate,
}

impl Outcome {
    const ALL: [Self; 8] = [
        Self::Ok,
        Self::Exit,
        Self::Signal,
        Self::Timeout,
        Self::Verify,
        Self::Stopped,
        Self::NotStarted,
        Self::TooLate,
    ];

    /// Name in the table `executions`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Exit => "exit",
            Self::Signal => "signal",
            Self::Timeout => "timeout",
            Self::Verify => "verify",
            Self::Stopped => "stopped",
            Self::NotStarted | Self::TooLate => "not started",
        }
    }
}

/// Figures of an execution that may be unknown: columns of the table `executions`, in the order of [`Report::figures`].
pub const FIGURES: [&str; 17] = [
    "pid",
    "exec_ns",
    "exit_code",
    "user_ns",
    "system_ns",
    "run_ns",
    "runq_ns",
    "max_rss_bytes",
    "minor_faults",
    "major_faults",
    "voluntary",
    "involuntary",
    "read_bytes",
    "written_bytes",
    "read_calls_bytes",
    "written_calls_bytes",
    "left_over",
];

/// Output to a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Printed {
    /// Length of all output, bytes.
    pub bytes: u64,
    /// The end of the output.
    pub text: String,
}

/// Result of an [`Order`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// The way it ended.
    pub outcome: Outcome,
    /// Instant before it was started.
    pub start_ns: i64,
    /// Instant at which its first process had ended.
    pub end_ns: i64,
    /// Figures in the order of [`FIGURES`].
    pub figures: [Option<i64>; FIGURES.len()],
    /// Work units.
    pub work: Option<f64>,
    /// The reason for which it failed.
    pub detail: String,
    /// Standard output and error output, if they are kept.
    pub printed: Option<[Printed; 2]>,
}

impl Report {
    /// Sets a figure by the name of its column.
    pub fn set(&mut self, column: &str, value: Option<i64>) {
        if let Some(place) = FIGURES.iter().position(|&name| name == column) {
            self.figures[place] = value;
        }
    }

    /// A figure by the name of its column.
    pub fn get(&self, column: &str) -> Option<i64> {
        let place = FIGURES.iter().position(|&name| name == column)?;
        self.figures[place]
    }

    /// Encodes it as a frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = vec![self.outcome as u8];
        let numbers = [self.start_ns, self.end_ns];
        let figures = self.figures.iter().map(|f| f.unwrap_or(UNKNOWN));
        for number in numbers.into_iter().chain(figures) {
            body.extend(number.to_le_bytes());
        }
        body.extend(self.work.unwrap_or(f64::NAN).to_le_bytes());
        put_text(&mut body, &self.detail);
        body.push(u8::from(self.printed.is_some()));
        for printed in self.printed.iter().flatten() {
            body.extend(printed.bytes.to_le_bytes());
            put_text(&mut body, &printed.text);
        }
        frame(&body)
    }

    /// Decodes a frame's body.
    ///
    /// # Errors
    /// [`Error::Protocol`] if it is none.
    pub fn decode(body: &[u8]) -> Result<Self> {
        let mut rest = Rest(body);
        let code = usize::from(rest.take::<1>()?[0]);
        let outcome = *Outcome::ALL.get(code).ok_or_else(not_ours)?;
        let (start_ns, end_ns) = (rest.number()?, rest.number()?);
        let mut figures = [None; FIGURES.len()];
        for figure in &mut figures {
            *figure = Some(rest.number()?).filter(|&n| n != UNKNOWN);
        }
        let work = Some(f64::from_le_bytes(rest.take()?)).filter(|w| !w.is_nan());
        let detail = rest.text()?;
        let printed = match rest.take::<1>()?[0] {
            0 => None,
            _ => Some([rest.printed()?, rest.printed()?]),
        };
        Ok(Self {
            outcome,
            start_ns,
            end_ns,
            figures,
            work,
            detail,
            printed,
        })
    }
}

impl Order {
    /// Encodes it as a frame.
    pub fn encode(self) -> Vec<u8> {
        let numbers = [self.job as i64, self.number, self.not_from_ns];
        frame(&numbers.map(i64::to_le_bytes).concat())
    }

    /// Decodes a frame's body.
    ///
    /// # Errors
    /// [`Error::Protocol`] if it is none.
    pub fn decode(body: &[u8]) -> Result<Self> {
        let mut rest = Rest(body);
        let job = usize::try_from(rest.number()?).map_err(|_| not_ours())?;
        let (number, not_from_ns) = (rest.number()?, rest.number()?);
        Ok(Self {
            job,
            number,
            not_from_ns,
        })
    }
}

/// Returns a frame: a body with its length before it.
pub fn frame(body: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(LENGTH_BYTES + body.len());
    all.extend((body.len() as u32).to_le_bytes());
    all.extend(body);
    all
}

/// Collects frames from bytes as they come.
#[derive(Debug, Default)]
pub struct Frames(Vec<u8>);

impl Frames {
    /// Adds bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// Returns the body of the next frame, once it is whole.
    ///
    /// # Errors
    /// [`Error::Protocol`] for one that is too long.
    pub fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(head) = self.0.first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*head) as usize;
        if length > LONGEST {
            return Err(not_ours());
        }
        if self.0.len() < LENGTH_BYTES + length {
            return Ok(None);
        }
        let rest = self.0.split_off(LENGTH_BYTES + length);
        let whole = std::mem::replace(&mut self.0, rest);
        Ok(Some(whole[LENGTH_BYTES..].to_vec()))
    }
}

fn put_text(body: &mut Vec<u8>, text: &str) {
    body.extend((text.len() as u32).to_le_bytes());
    body.extend(text.as_bytes());
}

fn not_ours() -> Error {
    Error::Protocol("the launcher of commands sent what is no message of its".to_owned())
}

/// The unread rest of a body.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or_else(not_ours)?;
        self.0 = rest;
        Ok(*head)
    }

    fn number(&mut self) -> Result<i64> {
        self.take().map(i64::from_le_bytes)
    }

    fn text(&mut self) -> Result<String> {
        let length = u32::from_le_bytes(self.take()?) as usize;
        let (head, rest) = self.0.split_at_checked(length).ok_or_else(not_ours)?;
        self.0 = rest;
        Ok(String::from_utf8_lossy(head).into_owned())
    }

    fn printed(&mut self) -> Result<Printed> {
        let bytes = u64::from_le_bytes(self.take()?);
        let text = self.text()?;
        Ok(Printed { bytes, text })
    }
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
