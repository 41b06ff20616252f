//! The engines that have a driver or activity samples in the core: the one match over them, for each.

use std::sync::atomic::AtomicBool;

use dyno_drive::{Load, Phases, Spec};
use dyno_engine_command::Commands;
pub use dyno_engine_command::launch;
pub use dyno_engine_postgres::Loader;
use dyno_engine_postgres::{ActivitySpec, Postgres, ScriptedPostgres};
use dyno_model::{Error, Result};
use dyno_observe::Probe;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A load by its engine's half of the specification.
pub(crate) fn load(engine: &str, half: Value, drive: Spec) -> Result<Box<dyn Phases>> {
    match engine {
        "postgres" if half.get("scripts").is_some() => {
            Ok(Box::new(Load::new(ScriptedPostgres::new(parse(half)?)?, drive)))
        }
        "command" => Ok(Box::new(Load::new(Commands::new(parse(half)?)?, drive))),
        "postgres" => Ok(Box::new(Load::new(Postgres::new(parse(half)?)?, drive))),
        other => Err(Error::Spec(format!("the core has no driver for engine {other}"))),
    }
}

/// A loader of tables, begun.
///
/// # Errors
/// [`Error::Spec`] for a specification that is wrong; [`Error::Aborted`] once `stop` is set, before it began.
pub fn loader(engine: &str, spec: Value, stop: &AtomicBool) -> Result<Loader> {
    match engine {
        "postgres" => Loader::start(parse(spec)?, stop),
        other => Err(Error::Spec(format!("the core has no loader for engine {other}"))),
    }
}

/// Returns the connection for activity samples, or None without an engine. The inner `Err` means that the server could
/// not be reached: the watch goes on without samples.
pub(crate) fn probe(engine: Option<&str>, half: &Value) -> Result<Result<Option<Probe>>> {
    match engine {
        None => Ok(Ok(None)),
        Some("postgres") => {
            let spec: ActivitySpec =
                parse(half.clone()).map_err(|e| Error::Spec(format!("activity: {e}")))?;
            match spec.connect() {
                Err(Error::Spec(message)) => Err(Error::Spec(message)),
                connected => Ok(connected.map(|activity| {
                    let breaker = activity.breaker();
                    Some(Probe {
                        backend: activity.backend(),
                        ask: Box::new(activity),
                        break_off: Box::new(move || breaker.abort()),
                    })
                })),
            }
        }
        Some("command") => {
            let spec: dyno_engine_command::ActivitySpec =
                parse(half.clone()).map_err(|e| Error::Spec(format!("activity: {e}")))?;
            Ok(Ok(Some(Probe {
                backend: None,
                ask: Box::new(spec.probe()),
                break_off: Box::new(|| ()), // no question is ever waited for
            })))
        }
        Some(other) => Err(Error::Spec(format!("no engine {other:?} that can be watched"))),
    }
}

/// A value as its type; wrong keys are a wrong specification.
pub(crate) fn parse<T: DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|e| Error::Spec(e.to_string()))
}
