//! `watch.*`, `pulse.*` and `drop`: one line an operation.

use std::collections::BTreeMap;
use std::sync::Arc;

use dyno_model::Error;
use dyno_observe::pulse::Pulse;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::{Answer, Fault, Outcome};
use crate::spooled::Spooled;
use crate::things::{Thing, Things};

/// See the README.
#[derive(Deserialize)]
#[serde(tag = "op", deny_unknown_fields)]
pub enum WatchOp {
    #[serde(rename = "watch.new")]
    New { spec: Value },
    #[serde(rename = "watch.start")]
    Start { of: u64, t0_ns: i64, t1_ns: i64 },
    #[serde(rename = "watch.stop")]
    Stop { of: u64 },
    #[serde(rename = "watch.latest")]
    Latest { of: u64 },
    #[serde(rename = "watch.trouble")]
    Trouble { of: u64 },
    #[serde(rename = "watch.source_status")]
    SourceStatus { of: u64 },
    #[serde(rename = "watch.tables")]
    Tables { of: u64, part: usize },
    #[serde(rename = "watch.recent")]
    Recent { of: u64, since_ns: i64 },
    #[serde(rename = "pulse.new")]
    PulseNew {},
    #[serde(rename = "pulse.holes")]
    PulseHoles { of: u64 },
    #[serde(rename = "drop")]
    Drop { of: u64 },
}

#[allow(clippy::needless_pass_by_value)] // for map_err
fn plain(error: Error) -> Fault {
    Fault::observer(&error)
}

pub fn work(op: WatchOp, things: &Things) -> Outcome {
    Ok(match op {
        WatchOp::New { spec } => {
            let watch = dyno_core::watch(spec).map_err(plain)?;
            json!(things.add(Thing::Watch(Arc::new(Spooled::new(watch))))?).into()
        }
        WatchOp::Start { of, t0_ns, t1_ns } => {
            things.watch(of)?.start(t0_ns, t1_ns).map_err(plain)?;
            Answer::default()
        }
        WatchOp::Stop { of } => {
            things.watch(of)?.watch.stop();
            Answer::default()
        }
        WatchOp::Latest { of } => {
            let shares: BTreeMap<_, _> = things.watch(of)?.watch.latest().into_iter().collect();
            json!(shares).into()
        }
        WatchOp::Trouble { of } => json!(things.watch(of)?.watch.trouble()).into(),
        WatchOp::SourceStatus { of } => json!(things.watch(of)?.source_status()).into(),
        WatchOp::Tables { of, part } => things.watch(of)?.part(part)?,
        WatchOp::Recent { of, since_ns } => Answer::tables(&things.watch(of)?.watch.recent(since_ns)),
        WatchOp::PulseNew {} => {
            let pulse = Pulse::new().map_err(plain)?;
            json!(things.add(Thing::Pulse(Arc::new(pulse)))?).into()
        }
        WatchOp::PulseHoles { of } => {
            let holes = things.pulse(of)?.holes();
            let plain = holes
                .iter()
                .map(|h| (h.from_ns, h.to_ns, h.stopped_ns, h.suspended_ns));
            json!(plain.collect::<Vec<_>>()).into()
        }
        WatchOp::Drop { of } => {
            things.remove(of)?;
            Answer::default()
        }
    })
}
