//! One session's side in the launcher: a thread that runs what it is asked for, one after another.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use dyno_model::{Error, Result, now_ns};
use rustix::process::Rlimit;

use super::attendant::TaskLimit;
use super::execution::{Bench, End, Killed};
use super::prepared::Prepared;
use super::spawn::{Program, Refused, Spawner};
use super::tail::Tail;
use super::used::Ended;
use crate::protocol::{Frames, Hello, Order, Outcome, Printed, Report, frame};

/// Bytes kept of a failed command's error output.
const DETAIL_BYTES: usize = 2048;
/// Bytes of output that are searched for the number of its work.
const SEARCHED_BYTES: usize = 64 * 1024;

/// The first group of a pattern's last match in a text.
pub type Find = dyn Fn(&str, &str) -> Option<String> + Send + Sync;

/// State that all sessions share.
pub struct Shared {
    pub find: Arc<Find>,
    pub task_limit: Arc<TaskLimit>,
    /// The user's limit of open descriptors.
    pub descriptors: Rlimit,
}

/// A session and its jobs.
struct Worker<'a> {
    jobs: Vec<Prepared>,
    keep: usize,
    bench: Bench<'a>,
    find: Arc<Find>,
    task_limit: Arc<TaskLimit>,
}

/// Serves a session until that is closed.
pub fn serve(mut socket: &UnixStream, null: &File, shared: &Shared) {
    let mut frames = Frames::default();
    let Ok(Some(body)) = receive(socket, &mut frames) else {
        return;
    };
    let parts = serde_json::from_slice::<Hello>(&body)
        .map_err(|e| e.to_string())
        .and_then(|hello| Worker::prepare(&hello, null, shared, socket));
    let words = parts.as_ref().err().map_or("", String::as_str);
    if socket.write_all(&frame(words.as_bytes())).is_err() {
        return;
    }
    let Ok((jobs, keep, bench)) = parts else { return };
    let (find, task_limit) = (shared.find.clone(), shared.task_limit.clone());
    let mut worker = Worker {
        jobs,
        keep,
        bench,
        find,
        task_limit,
    };
    while let Ok(Some(body)) = receive(socket, &mut frames) {
        let Ok(order) = Order::decode(&body) else { return };
        let report = worker.execute(order);
        if socket.write_all(&report.encode()).is_err() {
            return;
        }
    }
}

/// Receives the next frame. `None` if the session has ended.
fn receive(mut socket: &UnixStream, frames: &mut Frames) -> Result<Option<Vec<u8>>> {
    let mut buffer = [0; 4096];
    loop {
        if let Some(body) = frames.next()? {
            return Ok(Some(body));
        }
        match socket.read(&mut buffer) {
            Ok(0) => return Ok(None),
            Ok(n) => frames.feed(&buffer[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::Io(e.to_string())),
        }
    }
}

type Parts<'a> = (Vec<Prepared>, usize, Bench<'a>);

impl<'a> Worker<'a> {
    /// Prepares the parts of a worker; as error, the reason for which a job cannot run.
    fn prepare(
        hello: &Hello,
        null: &'a File,
        shared: &Shared,
        socket: &'a UnixStream,
    ) -> std::result::Result<Parts<'a>, String> {
        name_thread(&format!("session-{}", hello.session));
        let jobs = hello.jobs.iter().map(|job| Prepared::new(job, hello));
        let jobs = jobs.collect::<std::result::Result<Vec<_>, _>>()?;
        let searched = hello.jobs.iter().any(|job| job.work_regex.is_some());
        let most = hello.keep_output.max(if searched { SEARCHED_BYTES } else { 0 });
        let pipe = |most| Tail::new(most).map_err(|e| format!("no pipe for its output: {e}"));
        let bench = Bench {
            spawner: Spawner::new(shared.descriptors),
            null: null.as_fd(),
            output: (most > 0).then(|| pipe(most)).transpose()?,
            errors: pipe(DETAIL_BYTES.max(hello.keep_output))?,
            session: socket.as_fd(),
            mark: format!("DBDYNO_SESSION={}", hello.session),
        };
        Ok((jobs, hello.keep_output, bench))
    }

    /// Runs the preparing command, the measured one, and the concluding one.
    fn execute(&mut self, order: Order) -> Report {
        let mut report = Report::default();
        let Some(prepared) = self.jobs.get(order.job) else {
            return failed(report, Outcome::NotStarted, "no such job".to_owned());
        };
        if let Some(program) = &prepared.prepare
            && let Err(words) = run_untimed(&mut self.bench, program, prepared.job.timeout_ns)
        {
            return failed(
                report,
                Outcome::NotStarted,
                format!("what prepares it failed: {words}"),
            );
        }
        let now = now_ns();
        if now >= order.not_from_ns {
            return Report {
                outcome: Outcome::TooLate,
                start_ns: now,
                end_ns: now,
                ..report
            };
        }
        measured(&mut self.bench, prepared, &mut report);
        if report.outcome == Outcome::Signal
            && let Some(words) = self.task_limit.kill_reason(report.start_ns)
        {
            report.detail = words;
        }
        let error = self.bench.errors.finish();
        let output = self.bench.output.as_mut().map(Tail::finish).unwrap_or_default();
        if report.outcome != Outcome::Ok {
            add_end(&mut report.detail, &error.text);
        } else if let Err(words) = check(
            &mut self.bench,
            prepared,
            &output.text,
            self.find.as_ref(),
            &mut report,
        ) {
            report = failed(report, Outcome::Verify, words);
        }
        if let Some(program) = &prepared.conclude
            && let Err(words) = run_untimed(&mut self.bench, program, prepared.job.timeout_ns)
            && report.outcome == Outcome::Ok
        {
            report = failed(
                report,
                Outcome::Verify,
                format!("what concludes it failed: {words}"),
            );
        }
        report.printed = (self.keep > 0).then(|| [output, error].map(|p| shortened(p, self.keep)));
        report
    }
}

/// Runs the measured command.
fn measured(bench: &mut Bench<'_>, prepared: &Prepared, report: &mut Report) {
    let input = match prepared.input.as_deref().map(File::open).transpose() {
        Ok(file) => file,
        Err(e) => {
            let path = prepared.input.as_deref().unwrap_or("".as_ref()).display();
            let words = format!("cannot read its input {path}: {e}");
            return *report = failed(std::mem::take(report), Outcome::NotStarted, words);
        }
    };
    let fd = input.as_ref().map(AsFd::as_fd);
    match bench.run(&prepared.program, fd, prepared.job.timeout_ns, report) {
        Err(refused) => {
            report.outcome = Outcome::NotStarted;
            report.detail = words(&prepared.program, &refused);
        }
        Ok(end) => judge(end, prepared, report),
    }
}

fn judge(end: End, prepared: &Prepared, report: &mut Report) {
    let code = match end.0 {
        Ended::Code(code) | Ended::Signal(code) => code,
    };
    report.set("exit_code", Some(i64::from(code)));
    (report.outcome, report.detail) = match end {
        (_, Some(Killed::Timeout)) => {
            let seconds = prepared.job.timeout_ns.unwrap_or_default() as f64 / 1e9;
            (
                Outcome::Timeout,
                format!("killed after its timeout of {seconds} s"),
            )
        }
        (_, Some(Killed::Stopped)) => (Outcome::Stopped, "killed with its session".to_owned()),
        (Ended::Code(0), None) => (Outcome::Ok, String::new()),
        (Ended::Code(code), None) => (Outcome::Exit, format!("exit code {code}")),
        (Ended::Signal(number), None) => (
            Outcome::Signal,
            format!("ended by signal {number}{}", name_of(number)),
        ),
    };
}

/// Returns the execution's work units; as error, the reason for which its result is wrong.
fn check(
    bench: &mut Bench<'_>,
    prepared: &Prepared,
    output: &str,
    find: &Find,
    report: &mut Report,
) -> std::result::Result<(), String> {
    let job = &prepared.job;
    report.work = job.work;
    if let Some(pattern) = &job.work_regex {
        let text = find(pattern, output).ok_or_else(|| format!("its output has no {pattern}"))?;
        let number = text
            .trim()
            .parse::<f64>()
            .ok()
            .filter(|work| work.is_finite() && *work >= 0.0);
        report.work =
            Some(number.ok_or_else(|| format!("{text:?} in its output is no number of work units"))?);
    }
    if let Some(program) = &prepared.verify {
        run_untimed(bench, program, job.timeout_ns)
            .map_err(|words| format!("what verifies it failed: {words}"))?;
    }
    if let Some(path) = prepared.work_file.as_ref().filter(|_| job.work.is_none()) {
        let size = std::fs::metadata(path).map_err(|e| format!("no size of {}: {e}", path.display()))?;
        report.work = Some(size.len() as f64);
    }
    Ok(())
}

/// Runs a command that is not measured; its output is not read.
fn run_untimed(
    bench: &mut Bench<'_>,
    program: &Program,
    timeout_ns: Option<i64>,
) -> std::result::Result<(), String> {
    let output = bench.output.take();
    let done = bench.run(program, None, timeout_ns, &mut Report::default());
    bench.output = output;
    let error = bench.errors.finish();
    let mut words = match done {
        Ok((Ended::Code(0), None)) => return Ok(()),
        Ok((_, Some(Killed::Timeout))) => "it took longer than the timeout".to_owned(),
        Ok((_, Some(Killed::Stopped))) => "it was killed with its session".to_owned(),
        Ok((Ended::Code(code), None)) => format!("exit code {code}"),
        Ok((Ended::Signal(number), None)) => format!("ended by signal {number}{}", name_of(number)),
        Err(refused) => words(program, &refused),
    };
    add_end(&mut words, &error.text);
    Err(words)
}

fn failed(report: Report, outcome: Outcome, detail: String) -> Report {
    let now = now_ns();
    let or_now = |ns| if ns == 0 { now } else { ns };
    Report {
        outcome,
        detail,
        start_ns: or_now(report.start_ns),
        end_ns: or_now(report.end_ns),
        ..report
    }
}

fn words(program: &Program, refused: &Refused) -> String {
    let path = program.path.to_string_lossy();
    let reason = match refused.error.raw_os_error() {
        Some(libc::ENOENT) if std::path::Path::new(path.as_ref()).exists() => {
            "the interpreter that it names is missing".to_owned()
        }
        Some(libc::ENOEXEC) => "it is neither a program of this machine nor a script with #!".to_owned(),
        _ => refused.error.to_string(),
    };
    format!("{path}: cannot {}: {reason}", refused.step)
}

/// The end of an error output, as far as there is one.
fn add_end(words: &mut String, printed: &str) {
    let end = end_of(printed.trim_end(), DETAIL_BYTES);
    if !end.is_empty() {
        words.push_str(": ");
        words.push_str(end);
    }
}

fn shortened(mut printed: Printed, most: usize) -> Printed {
    let over = printed.text.len() - end_of(&printed.text, most).len();
    printed.text.drain(..over);
    printed
}

fn end_of(text: &str, most: usize) -> &str {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

/// Name of a signal as in signal(7); others have a number only.
fn name_of(signal: i32) -> &'static str {
    match signal {
        libc::SIGHUP => " (SIGHUP)",
        libc::SIGINT => " (SIGINT)",
        libc::SIGQUIT => " (SIGQUIT)",
        libc::SIGILL => " (SIGILL)",
        libc::SIGABRT => " (SIGABRT)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGKILL => " (SIGKILL)",
        libc::SIGSEGV => " (SIGSEGV)",
        libc::SIGPIPE => " (SIGPIPE)",
        libc::SIGALRM => " (SIGALRM)",
        libc::SIGTERM => " (SIGTERM)",
        libc::SIGXCPU => " (SIGXCPU)",
        libc::SIGXFSZ => " (SIGXFSZ)",
        _ => "",
    }
}

fn name_thread(name: &str) {
    if let Ok(name) = std::ffi::CString::new(name) {
        let _ = rustix::thread::set_name(&name); // of which the system takes 15 bytes
    }
}
