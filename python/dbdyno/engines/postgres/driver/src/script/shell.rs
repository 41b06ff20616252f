//! `\shell` and `\setshell`: commands of this machine, run and waited for in the driver's thread, as pgbench does.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::Arc;

use dyno_model::{Breaker, Error, Result, timespec};
use dyno_script::{Frame, Names, Operand, Value};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

/// More than any number has.
const MOST_PRINTED: usize = 4096;
/// Where the system does not say that a process has ended (before Linux 5.3).
const ROUND_NS: i64 = 10_000_000;

/// The error: why a command failed.
type Ended<T> = std::result::Result<T, String>;

/// The words with the values of variables, joined by blanks.
pub(crate) fn line(words: &[Operand], frame: &Frame, names: &Names) -> Ended<String> {
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

/// Runs it; its output as a number, if that is `wanted`. The inner error: why the command failed.
///
/// # Errors
/// [`Error::Aborted`]: the command was killed, with all that it had started, because its session is cut or broken off.
pub(crate) fn run(line: &str, wanted: bool, breaker: &Breaker) -> Result<Ended<Option<Value>>> {
    let (ours, _theirs) = UnixStream::pair().map_err(|e| Error::Io(e.to_string()))?;
    let alarm = Arc::new(ours);
    breaker.watch(&alarm)?;
    let mut child = match Child::start(line, wanted) {
        Ok(child) => child,
        Err(e) => return Ok(Err(e.to_string())),
    };
    let status = match child.attend(&alarm) {
        Ok(Some(status)) => status,
        Ok(None) => return Err(Error::Aborted),
        Err(words) => return Ok(Err(words)),
    };
    if !status.success() {
        return Ok(Err(format!("the command ended with {status}")));
    }
    Ok(if wanted {
        child.number().map(Some)
    } else {
        Ok(None)
    })
}

/// A command that runs, the first of a process group. Dropped, it is killed with all that it has started.
struct Child {
    process: process::Child,
    output: Option<PipeReader>,
    printed: Vec<u8>,
    /// Readable when it has ended; `None`: the system has no such thing.
    pidfd: Option<OwnedFd>,
    has_ended: bool,
}

impl Child {
    fn start(line: &str, wanted: bool) -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(line).stdin(Stdio::null()).process_group(0);
        let mut output = None;
        if wanted {
            let (reader, writer) = io::pipe()?;
            ioctl_fionbio(&reader, true)?;
            command.stdout(writer);
            output = Some(reader);
        }
        let process = command.spawn()?;
        Ok(Self {
            pidfd: pidfd(&process),
            process,
            output,
            printed: Vec::new(),
            has_ended: false,
        })
    }

    /// Until it has ended; `None`: the alarm was first.
    fn attend(&mut self, alarm: &UnixStream) -> Ended<Option<ExitStatus>> {
        loop {
            let alarmed = self.wait(alarm);
            let status = self.process.try_wait().map_err(|e| e.to_string())?;
            self.has_ended = status.is_some();
            self.drain()?;
            if status.is_some() {
                return Ok(status);
            }
            if alarmed {
                return Ok(None);
            }
        }
    }

    /// Sleeps until something happens; true: the alarm was given.
    fn wait(&self, alarm: &UnixStream) -> bool {
        let fds = [
            self.pidfd.as_ref().map(AsFd::as_fd),
            self.output.as_ref().map(AsFd::as_fd),
        ];
        let all = [Some(alarm.as_fd())].into_iter().chain(fds).flatten();
        let mut polled: Vec<_> = all
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let limit = self.pidfd.is_none().then(|| timespec(ROUND_NS));
        let _ = poll(&mut polled, limit.as_ref()); // a signal ends the wait early
        !polled[0].revents().is_empty()
    }

    /// Takes what it has printed up to now. Whoever it leaves behind with its output is not waited for.
    fn drain(&mut self) -> Ended<()> {
        let mut buffer = [0; MOST_PRINTED + 1];
        while let Some(output) = &mut self.output {
            match output.read(&mut buffer) {
                Ok(n @ 1..) => self.printed.extend(&buffer[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                _ => self.output = None,
            }
            if self.printed.len() > MOST_PRINTED {
                return Err(format!(
                    "the command must print a whole number, not more than {MOST_PRINTED} bytes"
                ));
            }
        }
        Ok(())
    }

    fn number(&self) -> Ended<Value> {
        let text = String::from_utf8_lossy(&self.printed);
        let number = text.trim().parse().map(Value::Int);
        number.map_err(|_| format!("the command must print a whole number, not {:?}", text.trim()))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        // Not waited for yet, so that its number is nobody else's. Who has left its group is found before: below a
        // process that has ended there is nobody.
        let leader = self.process.id() as libc::pid_t;
        let left = descendants(leader);
        for pid in left.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL); // refused, it has ended
        }
        let _ = kill_process_group(Pid::from_child(&self.process), Signal::KILL);
        let _ = self.process.wait(); // it is our child, and has been killed
    }
}

fn pidfd(process: &process::Child) -> Option<OwnedFd> {
    pidfd_open(Pid::from_child(process), PidfdFlags::empty()).ok()
}

/// Processes below one (proc(5), `CONFIG_PROC_CHILDREN`).
fn descendants(pid: libc::pid_t) -> Vec<libc::pid_t> {
    let mut all = vec![pid];
    let mut at = 0;
    while let Some(&pid) = all.get(at) {
        at += 1;
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(
                children
                    .split_ascii_whitespace()
                    .filter_map(|n| n.parse::<libc::pid_t>().ok()),
            );
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn never() -> Breaker {
        Breaker::default()
    }

    #[test]
    fn its_number_is_its_value_and_what_it_leaves_behind_is_not_waited_for() {
        assert_eq!(run("exit 0", false, &never()), Ok(Ok(None)));
        assert_eq!(run("echo 42", true, &never()), Ok(Ok(Some(Value::Int(42)))));
        let began = Instant::now();
        assert_eq!(
            run("sleep 100 2>/dev/null & echo $((6 * 7))", true, &never()),
            Ok(Ok(Some(Value::Int(42))))
        );
        assert!(began.elapsed() < Duration::from_secs(90));
    }

    #[test]
    fn an_end_that_is_no_good_is_put_in_words() {
        for (line, wanted, part) in [
            ("exit 3", false, "exit status: 3"),
            ("kill -9 $$", true, "signal: 9"),
            ("echo many", true, "\"many\""),
            ("cat /dev/zero", true, "not more than 4096 bytes"),
        ] {
            let words = run(line, wanted, &never()).unwrap().unwrap_err();
            assert!(words.contains(part), "{words}");
        }
    }

    /// One in the group, one in a session of its own, both below a shell that goes on.
    #[test]
    fn whoever_it_has_started_is_killed_with_it() {
        let directory = std::env::temp_dir().join(format!("dyno-shell-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = |name: &str| directory.join(name);
        let line = format!(
            "cd {}; sh -c 'echo $$ > a; exec sleep 300' & setsid sh -c 'echo $$ > b; exec sleep 300' & wait",
            directory.display()
        );
        let breaker = never();
        let pids: Vec<String> = std::thread::scope(|scope| {
            let running = scope.spawn(|| run(&line, false, &breaker));
            let pids = ["a", "b"].map(|name| {
                loop {
                    match std::fs::read_to_string(path(name)) {
                        Ok(pid) if pid.ends_with('\n') => return pid.trim().to_owned(),
                        _ => std::thread::sleep(Duration::from_millis(5)),
                    }
                }
            });
            breaker.abort();
            assert_eq!(running.join().unwrap(), Err(Error::Aborted));
            pids.to_vec()
        });
        for pid in pids {
            let is_alive = || {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                stat.contains("(sleep)") && !stat.contains(") Z ")
            };
            // A signal to a process that is not our child takes effect when that next runs.
            let deadline = Instant::now() + Duration::from_secs(60);
            while is_alive() {
                assert!(Instant::now() < deadline, "{pid} lives");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        assert_eq!(run("true", false, &breaker), Err(Error::Aborted));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
