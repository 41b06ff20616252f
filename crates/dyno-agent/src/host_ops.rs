//! Reads of the host: one function an operation.

use std::num::NonZero;
use std::path::PathBuf;

use dyno_core::ops::{self, Op};
use dyno_observe::page_cache::Wanted;
use serde::Deserialize;
use serde_json::json;

use crate::gather::{self, gather};
use crate::host;
use crate::reply::{Fault, Outcome};

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

pub fn work(op: &HostOp, body: &[u8]) -> Outcome {
    let op = match op {
        HostOp::Hello {} => return Ok(host::hello()?.into()),
        HostOp::Gather(wanted) => return Ok(gather(wanted)),
        HostOp::ReadTask { tasks } => {
            let read = tasks
                .iter()
                .map(|&(pid, tid)| ops::run(Op::ReadTask { pid, tid }));
            return Ok(json!(read.collect::<Result<Vec<_>, _>>()?).into());
        }
        HostOp::PageCache {
            files,
            block_bytes,
            budget_ns,
        } => {
            let op = Op::PageCache {
                files: &wanted(files, body)?,
                block_bytes: *block_bytes,
                budget_ns: *budget_ns,
            };
            return Ok(ops::run(op)?.into());
        }
        HostOp::FindCgroups {
            pid,
            root,
            controllers,
        } => Op::FindCgroups {
            pid: *pid,
            root,
            controllers: controllers.as_deref(),
        },
        HostOp::ReadBehind {
            pid,
            program,
            symbol,
            offset,
        } => Op::ReadBehind {
            pid: *pid,
            program,
            symbol,
            offset: *offset,
        },
    };
    Ok(ops::run(op)?.into())
}

/// Files with their block numbers, which stand in the body one file behind the other.
fn wanted<'a>(files: &'a [(PathBuf, usize, u64)], mut body: &'a [u8]) -> Result<Vec<Wanted<'a>>, Fault> {
    // a file is shorter than 2^63 bytes: with that the number of its last block is one, too
    if files.iter().any(|&(_, _, first)| first > i64::MAX as u64) {
        return Err(Fault::agent("request", "page_cache: blocks out of range"));
    }
    let mut wanted = Vec::new();
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
    Ok(wanted)
}
