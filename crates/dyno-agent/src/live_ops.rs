//! `load.*`, `watch.*`, `pulse.*` and `drop`: operations on what a client has begun.

use std::sync::Arc;

use dyno_core::ops::{self, LoadOp, Op, WatchOp};
use dyno_observe::pulse::Pulse;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::reply::{Fault, Outcome, Reply, parsed};
use crate::spooled::Spooled;
use crate::things::{Thing, Things};

/// Operations that begin or end something, and those of pulses. See the README.
#[derive(Deserialize)]
#[serde(tag = "op", deny_unknown_fields)]
enum ThingOp {
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

pub fn work(mut header: Map<String, Value>, things: &Things) -> Outcome {
    let op = header.get("op").and_then(Value::as_str).unwrap_or_default();
    match op.split_once('.') {
        Some((_, "new") | ("pulse", _) | ("watch", "tables")) | None => {
            work_on_thing(parsed(header)?, things)
        }
        Some((what, _)) => {
            let is_load = what == "load";
            let of = header.remove("of").map(|of| ("of".to_owned(), of));
            let Number { of } = parsed(of.into_iter().collect())?;
            if is_load {
                let op: LoadOp = parsed(header)?;
                Ok(ops::run(Op::Load(&*things.load(of)?, op))?.into())
            } else {
                work_on_watch(&things.watch(of)?, parsed(header)?)
            }
        }
    }
}

/// Operations on a watch besides those in which its spool has a part.
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

fn work_on_thing(op: ThingOp, things: &Things) -> Outcome {
    let thing = match op {
        ThingOp::NewLoad { engine, spec } => {
            Thing::Load(dyno_core::load(&engine, spec).map_err(Fault::driver)?.into())
        }
        ThingOp::NewWatch { spec } => {
            let watch = dyno_core::watch(spec).map_err(Fault::observer)?;
            Thing::Watch(Arc::new(Spooled::new(watch)))
        }
        ThingOp::NewPulse {} => Thing::Pulse(Arc::new(Pulse::new().map_err(Fault::observer)?)),
        ThingOp::PulseHoles { of } => return Ok(ops::run(Op::PulseHoles(&*things.pulse(of)?))?.into()),
        ThingOp::Tables { of, part } => return things.watch(of)?.part(part),
        ThingOp::Drop { of } => {
            things.remove(of)?;
            return Ok(Reply::default());
        }
    };
    Ok(json!(things.add(thing)?).into())
}
