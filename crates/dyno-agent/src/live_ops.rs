//! `load.*`, `watch.*`, `pulse.*` and `drop`: operations on a client's loads, watches and pulses.

use std::sync::Arc;

use dyno_core::ops::{self, LoadOp, Op, WatchOp};
use dyno_observe::pulse::Pulse;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::handles::{Handle, Handles};
use crate::reply::{Fault, Outcome, Reply, parsed};
use crate::spooled::Spooled;

/// Operations that begin or end something, and those of pulses. See the README.
#[derive(Deserialize)]
#[serde(tag = "op", deny_unknown_fields)]
enum HandleOp {
    #[serde(rename = "load.new")]
    NewLoad {
        engine: String,
        spec: Map<String, Value>,
    },
    #[serde(rename = "watch.new")]
    NewWatch { spec: Value },
    #[serde(rename = "pulse.new")]
    NewPulse {},
    #[serde(rename = "pulse.holes")]
    PulseHoles { of: u64 },
    #[serde(rename = "watch.tables")]
    Tables { of: u64, part: usize },
    #[serde(rename = "drop")]
    Drop { of: u64 },
}

/// The number of a load or watch.
#[derive(Deserialize)]
struct Number {
    of: u64,
}

pub fn work(mut header: Map<String, Value>, handles: &Handles) -> Outcome {
    let op = header.get("op").and_then(Value::as_str).unwrap_or_default();
    match op.split_once('.') {
        Some((_, "new") | ("pulse", _) | ("watch", "tables")) | None => {
            work_on_handle(parsed(header)?, handles)
        }
        Some((what, _)) => {
            let is_load = what == "load";
            let of = header.remove("of").map(|of| ("of".to_owned(), of));
            let Number { of } = parsed(of.into_iter().collect())?;
            if is_load {
                let op: LoadOp = parsed(header)?;
                Ok(ops::run(Op::Load(&*handles.load(of)?, op))?.into())
            } else {
                work_on_watch(&handles.watch(of)?, parsed(header)?)
            }
        }
    }
}

/// Executes an operation on a watch, with the part that its spool has in it.
fn work_on_watch(spooled: &Arc<Spooled>, op: WatchOp) -> Outcome {
    match op {
        WatchOp::Start { t0_ns, t1_ns } => {
            spooled.start(t0_ns, t1_ns).map_err(Fault::observer)?;
            Ok(Reply::default())
        }
        WatchOp::SourceStatus {} => Ok(json!(spooled.source_status()).into()),
        _ => Ok(ops::run(Op::Watch(&spooled.watch, op))?.into()),
    }
}

fn work_on_handle(op: HandleOp, handles: &Handles) -> Outcome {
    let handle = match op {
        HandleOp::NewLoad { engine, spec } => {
            Handle::Load(dyno_core::load(&engine, spec).map_err(Fault::driver)?.into())
        }
        HandleOp::NewWatch { spec } => {
            let watch = dyno_core::watch(spec).map_err(Fault::observer)?;
            Handle::Watch(Arc::new(Spooled::new(watch)))
        }
        HandleOp::NewPulse {} => Handle::Pulse(Arc::new(Pulse::new().map_err(Fault::observer)?)),
        HandleOp::PulseHoles { of } => return Ok(ops::run(Op::PulseHoles(&*handles.pulse(of)?))?.into()),
        HandleOp::Tables { of, part } => return handles.watch(of)?.part(part),
        HandleOp::Drop { of } => {
            handles.remove(of)?;
            return Ok(Reply::default());
        }
    };
    Ok(json!(handles.add(handle)?).into())
}
