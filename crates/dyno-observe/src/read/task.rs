//! One task of the operating system, its descriptors kept where there is room for them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use dyno_model::now_ns;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::read::file::{self, Buffer, ProcFile};
use crate::read::schedstat::{self, SchedStat};
use crate::read::stat::{self, Stat};
use crate::read::switches::{self, Switches};
use crate::signal::lock;
use crate::status::{Granted, Status};

/// Role of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// `session`, `helper:<what>`, `other`, `driver`, `dbdyno`.
    pub role: Arc<str>,
    /// Session number where the role is `session`.
    pub session: Option<i64>,
}

/// Conditions for a process to be the server's: numbers are used again, and by other pid namespaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Proof {
    /// The server's main process, whose child it must be, or None if that is not checked.
    pub parent: Option<i64>,
    /// Time at which it was named (since boot, clock ticks), so that it must have started before, or None if that is
    /// not checked.
    pub named_ticks: Option<i64>,
}

impl Proof {
    fn holds(self, stat: &Stat<'_>) -> bool {
        self.parent.is_none_or(|parent| parent == stat.parent)
            && self.named_ticks.is_none_or(|named| stat.start_ticks <= named)
    }
}

/// A task to be read again and again.
#[derive(Debug)]
pub struct Task {
    /// Process.
    pub pid: i64,
    /// Task.
    pub tid: i64,
    /// Role.
    pub who: Who,
    files: Result<Arc<Files>, Status>,
    start_ticks: AtomicI64,
    gone: AtomicBool,
    met: AtomicBool,
}

#[derive(Debug)]
struct Files {
    /// Absent without `CONFIG_SCHED_INFO`.
    schedstat: Option<ProcFile>,
    stat: ProcFile,
    kept: bool,
    /// Its switches, and the run time and slices for which they hold.
    switches: Mutex<Option<(SchedStat, Switches)>>,
    /// Address of the pointer to its wait event word.
    word: OnceLock<u64>,
}

/// Files that are kept open, by task. One watch follows another while both read the same tasks: a task's files
/// are open once.
static OPEN: Mutex<Option<OpenFiles>> = Mutex::new(None);

type OpenFiles = HashMap<(i64, i64), Weak<Files>>;

/// Result of one read of a task.
#[derive(Debug)]
pub struct Reading<'b> {
    /// Before the read.
    pub before_ns: i64,
    /// After it.
    pub after_ns: i64,
    /// Figures of `schedstat`.
    pub sched: Option<SchedStat>,
    /// Figures of `stat`.
    pub stat: Option<Stat<'b>>,
    /// How it went.
    pub status: Status,
}

const UNSEEN: i64 = -1;

impl Task {
    /// Opens the files of a task of this host. A failure is kept as the status of each read. A task that does not meet
    /// the `proof` has vanished: its number is another task's now.
    pub fn open(pid: i64, tid: i64, who: Who, keep: bool, sched_info: bool, proof: Proof) -> Self {
        let task = Self::new(pid, tid, who, Files::shared(pid, tid, keep, sched_info));
        // its start, from the first row on
        match task.stat(&mut Buffer::default(), 1) {
            Ok(stat) if !proof.holds(&stat) => Self::new(pid, tid, task.who, Err(Status::Vanished)),
            _ => task,
        }
    }

    /// Returns a task that is not seen from here, with the reason as its status.
    pub fn elsewhere(pid: i64, tid: i64, who: Who, why: Status) -> Self {
        Self::new(pid, tid, who, Err(why))
    }

    fn new(pid: i64, tid: i64, who: Who, files: Result<Arc<Files>, Status>) -> Self {
        let gone = AtomicBool::new(matches!(files, Err(Status::Vanished)));
        Self {
            pid,
            tid,
            who,
            files,
            start_ticks: AtomicI64::new(UNSEEN),
            gone,
            met: AtomicBool::new(false),
        }
    }

    /// Returns the start since boot in clock ticks, or None if it cannot be read. With the number it is the task's
    /// key.
    pub fn start_ticks(&self) -> Option<i64> {
        Some(self.start_ticks.load(Ordering::Relaxed)).filter(|&t| t != UNSEEN)
    }

    /// Returns true at the first call only.
    pub fn first_time(&self) -> bool {
        !self.met.swap(true, Ordering::Relaxed)
    }

    /// Returns whether it is a task of the server: of a session, of another client, or the main task of a helper.
    pub fn of_server(&self) -> bool {
        !matches!(&*self.who.role, "dbdyno" | "driver" | "pooler")
            && (self.pid == self.tid || self.who.session.is_some())
    }

    /// Returns whether a read has shown that it has ended, so that its numbers may be given to another task.
    pub fn gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Returns the number of descriptors that it keeps open.
    pub fn kept(&self) -> usize {
        self.files.as_ref().map_or(0, |f| {
            if f.kept {
                1 + usize::from(f.schedstat.is_some())
            } else {
                0
            }
        })
    }

    /// Reads `schedstat` and `stat`.
    pub fn read<'b>(&self, buffer: &'b mut Buffer, ns_per_tick: i64) -> Reading<'b> {
        let before_ns = now_ns();
        let sched = self.sched(buffer);
        let stat = self.stat(buffer, ns_per_tick);
        let after_ns = now_ns();
        let status = match (&sched, &stat) {
            (_, Err(status)) | (Err(status), Ok(_)) => *status,
            _ => Status::Ok,
        };
        let vanished = status == Status::Vanished;
        let sched = sched.ok().filter(|_| !vanished);
        Reading {
            before_ns,
            after_ns,
            sched,
            stat: stat.ok().filter(|_| !vanished),
            status,
        }
    }

    /// Reads the state letter alone.
    ///
    /// # Errors
    /// The status.
    pub fn state(&self, buffer: &mut Buffer) -> Result<char, Status> {
        let files = self.files.as_ref().map_err(|s| *s)?;
        if !files.kept {
            return self.stat(buffer, 1).map(|s| s.state);
        }
        self.fill(&files.stat, buffer)?;
        stat::state(buffer.text()).map_err(|_| Status::Lost)
    }

    /// Returns its context switches. `sched` was read just before: a task that has not run since the last read of its
    /// switches has made none, and the file is not read again.
    pub fn switches(&self, buffer: &mut Buffer, sched: Option<SchedStat>) -> Option<Switches> {
        let mut known = lock(&self.files.as_ref().ok()?.switches);
        let rested = |then: &SchedStat| sched.is_some_and(|now| now.same_runs(*then));
        if let Some((_, switches)) = known.as_ref().filter(|(then, _)| rested(then)) {
            return Some(*switches);
        }
        let path = format!("/proc/{}/task/{}/status", self.pid, self.tid);
        file::read_once(&path, buffer).ok()?;
        let switches = switches::parse(buffer.text()).ok()?;
        *known = sched.map(|sched| (sched, switches));
        Some(switches)
    }

    /// Returns the address of the pointer to its wait event word, which is asked of `find` once in the life of its
    /// files.
    ///
    /// # Errors
    /// The errors of `find`.
    pub fn word_address(&self, find: impl FnOnce() -> Granted<u64>) -> Granted<u64> {
        let known = self.files.as_ref().ok().map(|files| &files.word);
        if let Some(&address) = known.and_then(OnceLock::get) {
            return Ok(address);
        }
        let address = find()?;
        Ok(known.map_or(address, |known| *known.get_or_init(|| address)))
    }

    /// Reads the time on a CPU alone, nanoseconds.
    pub fn run_ns(&self, buffer: &mut Buffer) -> Option<i64> {
        self.sched(buffer).ok().map(|s| s.run_ns)
    }

    fn sched(&self, buffer: &mut Buffer) -> Result<SchedStat, Status> {
        let files = self.files.as_ref().map_err(|s| *s)?;
        let file = files.schedstat.as_ref().ok_or(Status::NotSupported)?;
        self.fill(file, buffer)?;
        schedstat::parse(buffer.text()).map_err(|_| Status::Lost)
    }

    fn stat<'b>(&self, buffer: &'b mut Buffer, ns_per_tick: i64) -> Result<Stat<'b>, Status> {
        self.fill(&self.files.as_ref().map_err(|s| *s)?.stat, buffer)?;
        let stat = stat::parse(buffer.text(), ns_per_tick).map_err(|_| Status::Lost)?;
        // With descriptors that are not kept, the number may have been given to another task.
        match self.start_ticks.compare_exchange(
            UNSEEN,
            stat.start_ticks,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            Err(first) if first != stat.start_ticks => Err(self.vanish()),
            _ => Ok(stat),
        }
    }

    fn fill(&self, file: &ProcFile, buffer: &mut Buffer) -> Result<(), Status> {
        file.read(buffer).map_err(|e| match Status::from_error(&e) {
            Status::Vanished => self.vanish(),
            status => status,
        })
    }

    fn vanish(&self) -> Status {
        self.gone.store(true, Ordering::Relaxed);
        Status::Vanished
    }
}

impl Files {
    /// Returns the files that are open already if their task is alive, else opens them.
    fn shared(pid: i64, tid: i64, keep: bool, sched_info: bool) -> Result<Arc<Self>, Status> {
        let mut open = lock(&OPEN);
        let open = open.get_or_insert_default();
        let known = open.get(&(pid, tid)).and_then(Weak::upgrade);
        if let Some(files) = known.filter(|f| f.stat.read(&mut Buffer::default()).is_ok()) {
            return Ok(files);
        }
        let files = Arc::new(Self::open(pid, tid, keep, sched_info)?);
        if !keep {
            return Ok(files);
        }
        if open.len() >= 64 && open.len() == open.capacity() {
            open.retain(|_, files| files.strong_count() > 0); // before it grows
        }
        open.insert((pid, tid), Arc::downgrade(&files));
        Ok(files)
    }

    fn open(pid: i64, tid: i64, keep: bool, sched_info: bool) -> Result<Self, Status> {
        let directory = format!("/proc/{pid}/task/{tid}");
        let status = |e: std::io::Error| match Status::from_error(&e) {
            Status::Vanished if hidden(tid) => Status::NotPermitted,
            status => status,
        };
        let stat = ProcFile::open(&format!("{directory}/stat"), keep).map_err(status)?;
        let schedstat = sched_info
            .then(|| ProcFile::open(&format!("{directory}/schedstat"), keep).ok())
            .flatten();
        Ok(Self {
            schedstat,
            stat,
            kept: keep,
            switches: Mutex::default(),
            word: OnceLock::new(),
        })
    }
}

/// Returns whether a task exists but is hidden from us (`/proc` mounted with `hidepid`).
pub(crate) fn hidden(tid: i64) -> bool {
    let tid = i32::try_from(tid)
        .ok()
        .filter(|&tid| tid > 0)
        .and_then(Pid::from_raw);
    tid.is_some_and(|tid| test_kill_process(tid) == Err(Errno::PERM))
}

/// Returns whether `schedstat` is maintained: without scheduler statistics the kernel prints `0 0 0` for every task
/// (`proc_pid_schedstat` in fs/proc/base.c), also for this running one.
pub fn sched_info() -> bool {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| schedstat::parse(&text).ok())
        .is_some_and(|s| s.slices > 0)
}

/// Delay accounting: Documentation/accounting/delay-accounting.rst. The counter of a task
/// forked while it was off stays 0, so a 0 is reliable only if it was on since boot, or if the task has counted more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelayAccounting {
    /// Off, or not in this kernel: field 42 means nothing.
    Off,
    /// On since some time: a task that says 0 may never have been accounted for.
    On,
    /// On since boot.
    SinceBoot,
}

impl DelayAccounting {
    /// Returns the current setting.
    pub fn now() -> Self {
        let on = std::fs::read_to_string("/proc/sys/kernel/task_delayacct").unwrap_or_default();
        Self::parse(&on, &std::fs::read_to_string("/proc/cmdline").unwrap_or_default())
    }

    /// Returns the setting in the texts of `kernel.task_delayacct` (empty if absent) and `/proc/cmdline`.
    pub fn parse(task_delayacct: &str, cmdline: &str) -> Self {
        match task_delayacct.trim() {
            "1" if cmdline.split_ascii_whitespace().any(|w| w == "delayacct") => Self::SinceBoot,
            "1" => Self::On,
            _ => Self::Off,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::parse::ns_per_tick;

    fn opened(pid: u32, keep: bool, proof: Proof) -> Task {
        let pid = i64::from(pid);
        let who = Who {
            role: Arc::from("session"),
            session: Some(0),
        };
        Task::open(pid, pid, who, keep, sched_info(), proof)
    }

    #[test]
    fn a_process_is_the_one_that_was_named_if_it_had_started_and_its_parent_is_the_server() {
        let ours = |proof| opened(std::process::id(), true, proof);
        let start = ours(Proof::default()).start_ticks().unwrap();
        let parent = Some(i64::from(std::os::unix::process::parent_id()));
        for (parent, named_ticks, gone) in [
            (parent, Some(start), false),
            (parent, Some(start - 1), true),
            (Some(1 << 30), Some(start), true),
        ] {
            let task = ours(Proof { parent, named_ticks });
            assert_eq!((task.gone(), task.start_ticks().is_none()), (gone, gone));
        }
    }

    #[test]
    fn the_files_of_a_task_are_open_once() {
        // of a process that no other test here opens
        let parent = |keep| opened(std::os::unix::process::parent_id(), keep, Proof::default());
        let (one, other) = (parent(true), parent(true));
        assert!(Arc::ptr_eq(
            one.files.as_ref().unwrap(),
            other.files.as_ref().unwrap()
        ));
        assert!(Arc::ptr_eq(
            one.files.as_ref().unwrap(),
            parent(false).files.as_ref().unwrap()
        ));
        let weak = Arc::downgrade(one.files.as_ref().unwrap());
        drop((one, other));
        assert_eq!(weak.strong_count(), 0, "nobody reads it any more: closed");
        assert!(!parent(false).files.as_ref().unwrap().kept);
        assert_eq!(
            parent(true).read(&mut Buffer::default(), ns_per_tick()).status,
            Status::Ok
        );
    }
}
