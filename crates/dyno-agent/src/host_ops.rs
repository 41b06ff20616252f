//! What is read of the host: one function an operation.

use std::num::NonZero;
use std::path::PathBuf;

use dyno_observe::page_cache::{self, Wanted};
use dyno_observe::{Status, groups, once, read_behind};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::{Fault, Outcome};
use crate::gather::{self, gather};
use crate::host;

/// See the README.
#[derive(Deserialize)]
#[serde(tag = "op", deny_unknown_fields)]
pub enum HostOp {
    #[serde(rename = "hello")]
    Hello {},
    #[serde(rename = "find_cgroups")]
    FindCgroups {
        #[serde(default)]
        pid: Option<i64>,
        #[serde(default = "root")]
        root: PathBuf,
        #[serde(default)]
        controllers: Option<Vec<String>>,
    },
    #[serde(rename = "read_task")]
    ReadTask { tasks: Vec<(i64, i64)> },
    #[serde(rename = "read_behind")]
    ReadBehind {
        pid: i64,
        program: String,
        symbol: String,
        offset: u64,
    },
    #[serde(rename = "page_cache")]
    PageCache {
        files: Vec<(PathBuf, usize, u64)>,
        block_bytes: NonZero<u64>,
        budget_ns: i64,
    },
    #[serde(rename = "gather")]
    Gather(gather::Wanted),
}

fn root() -> PathBuf {
    PathBuf::from("/")
}

pub fn work(op: HostOp, body: &[u8]) -> Outcome {
    match op {
        HostOp::Hello {} => Ok(host::hello()?.into()),
        HostOp::FindCgroups {
            pid,
            root,
            controllers,
        } => {
            let found = groups::of(&root, pid, controllers.as_deref())?;
            let groups: Vec<_> = found.into_iter().map(|g| (g.version, g.path)).collect();
            Ok(json!(groups).into())
        }
        HostOp::ReadTask { tasks } => {
            let read: Vec<Value> = tasks.iter().map(|&(pid, tid)| task(pid, tid)).collect();
            Ok(json!(read).into())
        }
        HostOp::ReadBehind {
            pid,
            program,
            symbol,
            offset,
        } => Ok(match read_behind(pid, &program, &symbol, offset) {
            Ok(value) => json!([value as i64, Status::Ok.as_str(), ""]).into(),
            Err(refusal) => {
                let (status, detail) = refusal.words();
                json!([null, status, detail]).into()
            }
        }),
        HostOp::PageCache {
            files,
            block_bytes,
            budget_ns,
        } => cached(&files, block_bytes, budget_ns, body),
        HostOp::Gather(wanted) => Ok(gather(&wanted)),
    }
}

fn task(pid: i64, tid: i64) -> Value {
    let read = once::read_once(pid, tid);
    json!({
        "run_ns": read.sched.map(|s| s.run_ns),
        "runq_ns": read.sched.map(|s| s.runq_ns),
        "slices": read.sched.map(|s| s.slices),
        "user_ns": read.user_ns,
        "system_ns": read.system_ns,
        "start_ticks": read.start_ticks,
        "comm": read.comm,
        "state": read.state,
        "cpu": read.cpu,
        "status": read.status.as_str(),
    })
}

fn cached(
    files: &[(PathBuf, usize, u64)],
    block_bytes: NonZero<u64>,
    budget_ns: i64,
    mut body: &[u8],
) -> Outcome {
    let mut wanted = Vec::new();
    // a file is shorter than 2^63 bytes: with that the number of its last block is one, too
    if files.iter().any(|&(_, _, first)| first > i64::MAX as u64) {
        return Err(Fault::agent("request", "page_cache: blocks out of range"));
    }
    for (path, length, first) in files {
        let parts = body.split_at_checked(*length);
        let (blocks, rest) = parts.ok_or_else(|| Fault::agent("request", "page_cache: the body is short"))?;
        body = rest;
        wanted.push(Wanted {
            path,
            blocks,
            first: *first,
        });
    }
    let found = page_cache::page_cache(&wanted, block_bytes, budget_ns);
    let counts = found
        .iter()
        .map(|c| json!([c.size_bytes, c.cached_bytes, c.within_bytes, c.status.as_str()]));
    Ok(counts.collect::<Value>().into())
}
