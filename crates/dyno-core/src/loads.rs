//! A load from its specification.

use dyno_drive::{Phases, Spec};
use dyno_model::Result;
use serde_json::{Map, Value};

use crate::engines::{self, parse};

/// Returns a load of `engine`, not connected yet. `spec` has the driver's keys and the engine's.
///
/// # Errors
/// [`dyno_model::Error::Spec`] for one that is wrong.
pub fn load(engine: &str, spec: Map<String, Value>) -> Result<Box<dyn Phases>> {
    let is_drive = |key: &str| Spec::KEYS.contains(&key);
    let (drive, rest): (Map<_, _>, Map<_, _>) = spec.into_iter().partition(|(key, _)| is_drive(key));
    engines::load(engine, Value::Object(rest), parse(Value::Object(drive))?)
}
