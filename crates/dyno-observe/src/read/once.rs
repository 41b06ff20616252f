//! One task, read once.

use std::sync::Arc;

use crate::read::file::Buffer;
use crate::read::parse::ns_per_tick;
use crate::read::schedstat::SchedStat;
use crate::read::task::{Proof, Reading, Task, Who, sched_info};
use crate::status::Status;

/// One read of a task. A figure that could not be read is None; the status says why.
#[derive(Debug)]
pub struct Once {
    /// `schedstat`.
    pub sched: Option<SchedStat>,
    /// User time, nanoseconds.
    pub user_ns: Option<i64>,
    /// Kernel time, nanoseconds.
    pub system_ns: Option<i64>,
    /// Start since boot, clock ticks.
    pub start_ticks: Option<i64>,
    /// Name.
    pub comm: Option<String>,
    /// R, S, D, ...
    pub state: Option<char>,
    /// CPU last run on.
    pub cpu: Option<i64>,
    /// How it went.
    pub status: Status,
}

/// Opens, reads and closes the files of one task.
pub fn read_once(pid: i64, tid: i64) -> Once {
    let who = Who {
        role: Arc::from("other"),
        session: None,
    };
    let mut buffer = Buffer::default();
    let task = Task::open(pid, tid, who, true, sched_info(), Proof::default());
    let Reading {
        sched, stat, status, ..
    } = task.read(&mut buffer, ns_per_tick());
    Once {
        sched,
        user_ns: stat.map(|s| s.user_ns),
        system_ns: stat.map(|s| s.system_ns),
        start_ticks: stat.map(|s| s.start_ticks),
        comm: stat.map(|s| s.comm.to_owned()),
        state: stat.map(|s| s.state),
        cpu: stat.and_then(|s| s.cpu),
        status,
    }
}
