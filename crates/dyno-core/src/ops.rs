//! Operations on loads, watches and the host, which the Python module and the agent offer under the same names and
//! with the same answers. See `_core.pyi` and the agent's README.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZero;
use std::path::Path;
use std::time::Duration;

use dyno_drive::{Failure, Phases};
use dyno_model::{Error, Table};
use dyno_observe::page_cache::{self, Wanted};
use dyno_observe::pulse::Pulse;
use dyno_observe::{Status, Watch, groups, once, read_behind};
use serde::{Deserialize, Serialize, Serializer};

/// An operation with its operand.
#[derive(Clone, Copy)]
pub enum Op<'a> {
    /// On a load.
    Load(&'a dyn Phases, LoadOp),
    /// On a watch.
    Watch(&'a Watch, WatchOp),
    /// Gaps in the life of this process.
    PulseHoles(&'a Pulse),
    /// Existing control groups of a process, or of this one if `pid` is None.
    FindCgroups {
        /// The process.
        pid: Option<i64>,
        /// Where the machine's tree begins.
        root: &'a Path,
        /// Names of v1 controllers, or None for those with CPU figures.
        controllers: Option<&'a [String]>,
    },
    /// One read of a task.
    ReadTask {
        /// Its process.
        pid: i64,
        /// Its thread id.
        tid: i64,
    },
    /// 64 bits of a process's memory.
    ReadBehind {
        /// The process.
        pid: i64,
        /// Path of its program.
        program: &'a str,
        /// A pointer variable of the program.
        symbol: &'a str,
        /// Offset from its target in bytes.
        offset: u64,
    },
    /// How much of each file is in the page cache.
    PageCache {
        /// The files.
        files: &'a [Wanted<'a>],
        /// Size of a block.
        block_bytes: NonZero<u64>,
        /// Longest time for all of it.
        budget_ns: i64,
    },
}

/// An operation on a load: a method of [`Phases`].
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "op", deny_unknown_fields)]
#[expect(missing_docs, reason = "named after the methods of Phases")]
pub enum LoadOp {
    #[serde(rename = "load.connect")]
    Connect {},
    #[serde(rename = "load.start")]
    Start { start_ns: i64, t0_ns: i64, t1_ns: i64 },
    #[serde(rename = "load.finish")]
    Finish {},
    #[serde(rename = "load.wait")]
    Wait { timeout_s: f64 },
    #[serde(rename = "load.stop")]
    Stop {},
    #[serde(rename = "load.abort")]
    Abort {},
    #[serde(rename = "load.progress")]
    Progress {},
    #[serde(rename = "load.live_durations")]
    LiveDurations {},
    #[serde(rename = "load.backends")]
    Backends {},
    #[serde(rename = "load.threads")]
    Threads {},
    #[serde(rename = "load.tables")]
    Tables {},
    #[serde(rename = "load.window_tables")]
    WindowTables { window: usize },
}

/// An operation on a watch: a method of [`Watch`].
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "op", deny_unknown_fields)]
#[expect(missing_docs, reason = "named after the methods of Watch")]
pub enum WatchOp {
    #[serde(rename = "watch.start")]
    Start { t0_ns: i64, t1_ns: i64 },
    #[serde(rename = "watch.stop")]
    Stop {},
    #[serde(rename = "watch.latest")]
    Latest {},
    #[serde(rename = "watch.trouble")]
    Trouble {},
    #[serde(rename = "watch.source_status")]
    SourceStatus {},
    #[serde(rename = "watch.tables")]
    Tables {},
    #[serde(rename = "watch.recent")]
    Recent { since_ns: i64 },
}

/// The value that an operation returns.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// The operation has no value.
    Nothing,
    /// Whether a phase of a load is over.
    Over(bool),
    /// Calls, errors, live sessions, time in calls, waiting arrivals, and the age of the oldest of them.
    Progress((u64, u64, u64, u64, u64, u64)),
    /// Duration in ns and number of calls.
    Durations(Vec<(u64, u64)>),
    /// Session, pid and tid.
    Backends(Vec<(usize, i64, i64)>),
    /// Thread ids.
    Threads(Vec<i64>),
    /// Share of the samples by label, the largest first.
    #[serde(serialize_with = "as_map")]
    Shares(Vec<(String, f64)>),
    /// The first error, if any.
    Trouble(Option<String>),
    /// Status and detail by data source.
    Sources(BTreeMap<&'static str, (String, String)>),
    /// From, to, stopped and suspended, in ns.
    Holes(Vec<(i64, i64, i64, i64)>),
    /// Version and directory of control groups.
    Groups(Vec<(i64, String)>),
    /// Figures of one task by name.
    Task(BTreeMap<&'static str, Field>),
    /// Value, status and detail.
    Behind((Option<i64>, &'static str, String)),
    /// Counts of each file.
    Cached(Vec<FileCounts>),
    /// Raw tables; each side has its own encoding for them.
    #[serde(skip)]
    Tables(Vec<Table>),
}

/// Size, bytes in the cache, bytes within the blocks asked for, and status.
pub type FileCounts = (Option<u64>, Option<u64>, Option<u64>, &'static str);

fn as_map<S: Serializer>(shares: &[(String, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(shares.iter().map(|(label, share)| (label, share)))
}

/// A figure of a task.
#[derive(Debug, Serialize)]
#[serde(untagged)]
#[expect(missing_docs, reason = "named by type")]
pub enum Field {
    Number(Option<i64>),
    Text(Option<String>),
}

/// Why an operation failed.
#[derive(Debug)]
pub enum Fault {
    /// A load's error.
    Driver(Failure),
    /// A watch's error.
    Observer(Error),
    /// An error of the operating system.
    Os(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Os(error)
    }
}

impl Fault {
    /// Kind, message, code and session: the arguments of `CoreError` in `_core.pyi`.
    pub fn arguments(&self) -> (&'static str, String, Option<String>, Option<usize>) {
        match self {
            Self::Driver(Failure { error, session }) => (
                error.kind(),
                error.to_string(),
                error.code().map(str::to_owned),
                *session,
            ),
            Self::Observer(error) => (
                error.kind(),
                error.to_string(),
                error.code().map(str::to_owned),
                None,
            ),
            Self::Os(error) => (
                "io",
                error.to_string(),
                error.raw_os_error().map(|n| n.to_string()),
                None,
            ),
        }
    }
}

/// Runs one operation.
///
/// # Errors
/// Errors of the load, the watch or the operating system.
pub fn run(op: Op<'_>) -> Result<Answer, Fault> {
    Ok(match op {
        Op::Load(load, op) => return run_on_load(load, op).map_err(Fault::Driver),
        Op::Watch(watch, op) => return run_on_watch(watch, op).map_err(Fault::Observer),
        Op::PulseHoles(pulse) => {
            let holes = pulse.holes();
            let times = |h: &dyno_observe::pulse::Hole| (h.from_ns, h.to_ns, h.stopped_ns, h.suspended_ns);
            Answer::Holes(holes.iter().map(times).collect())
        }
        Op::FindCgroups {
            pid,
            root,
            controllers,
        } => {
            let groups = groups::find_for(root, pid, controllers)?;
            Answer::Groups(groups.into_iter().map(|g| (g.version, g.path)).collect())
        }
        Op::ReadTask { pid, tid } => Answer::Task(read_task(pid, tid)),
        Op::ReadBehind {
            pid,
            program,
            symbol,
            offset,
        } => Answer::Behind(match read_behind(pid, program, symbol, offset) {
            Ok(value) => (Some(value as i64), Status::Ok.as_str(), String::new()),
            Err(refusal) => (None, refusal.status.as_str(), refusal.detail),
        }),
        Op::PageCache {
            files,
            block_bytes,
            budget_ns,
        } => {
            let cached = page_cache::page_cache(files, block_bytes, budget_ns).into_iter();
            let counts = cached.map(|c| (c.size_bytes, c.cached_bytes, c.within_bytes, c.status.as_str()));
            Answer::Cached(counts.collect())
        }
    })
}

fn run_on_load(load: &dyn Phases, op: LoadOp) -> Result<Answer, Failure> {
    match op {
        LoadOp::Connect {} => load.connect()?,
        LoadOp::Start {
            start_ns,
            t0_ns,
            t1_ns,
        } => load.start(start_ns, t0_ns, t1_ns)?,
        LoadOp::Finish {} => load.finish()?,
        LoadOp::Stop {} => load.stop(),
        LoadOp::Abort {} => load.abort(),
        LoadOp::Wait { timeout_s } => {
            // A timeout that does not fit is unlimited.
            let timeout = Duration::try_from_secs_f64(timeout_s.max(0.0)).unwrap_or(Duration::MAX);
            return load.wait(timeout).map(Answer::Over);
        }
        LoadOp::Progress {} => {
            let p = load.progress();
            let (waiting, oldest_ns) = (p.behind.waiting, p.behind.oldest_ns);
            return Ok(Answer::Progress((
                p.calls,
                p.errors,
                p.live,
                p.in_call_ns,
                waiting,
                oldest_ns,
            )));
        }
        LoadOp::LiveDurations {} => return Ok(Answer::Durations(load.live_durations())),
        LoadOp::Backends {} => {
            let backends = load.backends().into_iter();
            return Ok(Answer::Backends(
                backends.map(|(n, task)| (n, task.pid, task.tid)).collect(),
            ));
        }
        LoadOp::Threads {} => return Ok(Answer::Threads(load.threads())),
        LoadOp::Tables {} => return Ok(Answer::Tables(load.tables()?)),
        LoadOp::WindowTables { window } => return Ok(Answer::Tables(load.window_tables(window)?)),
    }
    Ok(Answer::Nothing)
}

fn run_on_watch(watch: &Watch, op: WatchOp) -> dyno_model::Result<Answer> {
    Ok(match op {
        WatchOp::Start { t0_ns, t1_ns } => {
            watch.start(t0_ns, t1_ns)?;
            Answer::Nothing
        }
        WatchOp::Stop {} => {
            watch.stop();
            Answer::Nothing
        }
        WatchOp::Latest {} => Answer::Shares(watch.latest()),
        WatchOp::Trouble {} => Answer::Trouble(watch.trouble().map(str::to_owned)),
        WatchOp::SourceStatus {} => Answer::Sources(watch.source_status()),
        WatchOp::Tables {} => Answer::Tables(watch.tables()),
        WatchOp::Recent { since_ns } => Answer::Tables(watch.recent(since_ns)),
    })
}

fn read_task(pid: i64, tid: i64) -> BTreeMap<&'static str, Field> {
    let read = once::read_once(pid, tid);
    BTreeMap::from([
        ("run_ns", Field::Number(read.sched.map(|s| s.run_ns))),
        ("runq_ns", Field::Number(read.sched.map(|s| s.runq_ns))),
        ("slices", Field::Number(read.sched.map(|s| s.slices))),
        ("user_ns", Field::Number(read.user_ns)),
        ("system_ns", Field::Number(read.system_ns)),
        ("start_ticks", Field::Number(read.start_ticks)),
        ("comm", Field::Text(read.comm)),
        ("state", Field::Text(read.state.map(String::from))),
        ("cpu", Field::Number(read.cpu)),
        ("status", Field::Text(Some(read.status.as_str().to_owned()))),
    ])
}
