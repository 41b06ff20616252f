//! `load.*`: one line an operation.

use std::time::Duration;

use dyno_drive::Failure;
use dyno_model::Error;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::answer::{Answer, Fault, Outcome};
use crate::things::{Thing, Things};

/// See the README.
#[derive(Deserialize)]
#[serde(tag = "op", deny_unknown_fields)]
pub enum LoadOp {
    #[serde(rename = "load.new")]
    New {
        engine: String,
        spec: Map<String, Value>,
    },
    #[serde(rename = "load.connect")]
    Connect { of: u64 },
    #[serde(rename = "load.start")]
    Start {
        of: u64,
        start_ns: i64,
        t0_ns: i64,
        t1_ns: i64,
    },
    #[serde(rename = "load.finish")]
    Finish { of: u64 },
    #[serde(rename = "load.wait")]
    Wait { of: u64, timeout_s: f64 },
    #[serde(rename = "load.stop")]
    Stop { of: u64 },
    #[serde(rename = "load.abort")]
    Abort { of: u64 },
    #[serde(rename = "load.progress")]
    Progress { of: u64 },
    #[serde(rename = "load.live_durations")]
    LiveDurations { of: u64 },
    #[serde(rename = "load.backends")]
    Backends { of: u64 },
    #[serde(rename = "load.threads")]
    Threads { of: u64 },
    #[serde(rename = "load.tables")]
    Tables { of: u64 },
    #[serde(rename = "load.window_tables")]
    WindowTables { of: u64, window: usize },
}

fn plain(error: Error) -> Fault {
    failed(Failure::from(error))
}

#[allow(clippy::needless_pass_by_value)] // for map_err
fn failed(failure: Failure) -> Fault {
    Fault::driver(&failure.error, failure.session)
}

pub fn work(op: LoadOp, things: &Things) -> Outcome {
    Ok(match op {
        LoadOp::New { engine, spec } => {
            let load = dyno_core::load(&engine, spec).map_err(plain)?;
            json!(things.add(Thing::Load(load.into()))?).into()
        }
        LoadOp::Connect { of } => {
            things.load(of)?.connect().map_err(plain)?;
            Answer::default()
        }
        LoadOp::Start {
            of,
            start_ns,
            t0_ns,
            t1_ns,
        } => {
            things.load(of)?.start(start_ns, t0_ns, t1_ns).map_err(plain)?;
            Answer::default()
        }
        LoadOp::Finish { of } => {
            things.load(of)?.finish().map_err(plain)?;
            Answer::default()
        }
        LoadOp::Wait { of, timeout_s } => {
            let timeout = Duration::try_from_secs_f64(timeout_s.max(0.0)).unwrap_or(Duration::MAX);
            json!(things.load(of)?.wait(timeout).map_err(failed)?).into()
        }
        LoadOp::Stop { of } => {
            things.load(of)?.stop();
            Answer::default()
        }
        LoadOp::Abort { of } => {
            things.load(of)?.abort();
            Answer::default()
        }
        LoadOp::Progress { of } => {
            let p = things.load(of)?.progress();
            let (waiting, oldest_ns) = (p.behind.waiting, p.behind.oldest_ns);
            json!([p.calls, p.errors, p.live, p.in_call_ns, waiting, oldest_ns]).into()
        }
        LoadOp::LiveDurations { of } => json!(things.load(of)?.live_durations()).into(),
        LoadOp::Backends { of } => {
            let all = things.load(of)?.backends();
            let tasks: Vec<_> = all.iter().map(|(n, task)| (n, task.pid, task.tid)).collect();
            json!(tasks).into()
        }
        LoadOp::Threads { of } => json!(things.load(of)?.threads()).into(),
        LoadOp::Tables { of } => Answer::tables(&things.load(of)?.tables().map_err(plain)?),
        LoadOp::WindowTables { of, window } => {
            Answer::tables(&things.load(of)?.window_tables(window).map_err(plain)?)
        }
    })
}
