//! The reply to a request: a value with its bytes, or a fault.

use std::io;

use dyno_core::encoded;
use dyno_core::ops::{self, Answer};
use dyno_model::{Error, Table};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// A value, and a body.
#[derive(Debug, Default)]
pub struct Reply {
    pub value: Value,
    pub body: Vec<u8>,
}

impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        Self {
            value,
            body: Vec::new(),
        }
    }
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Tables(tables) => Self::tables(&tables),
            other => json!(other).into(),
        }
    }
}

impl Reply {
    /// Returns tables: descriptions of the columns in the header, values in the body.
    pub fn tables(tables: &[Table]) -> Self {
        let mut body = Vec::new();
        let all: Vec<Value> = tables
            .iter()
            .map(|t| json!([t.name, columns(t, &mut body)]))
            .collect();
        Self {
            value: all.into(),
            body,
        }
    }
}

fn columns(table: &Table, body: &mut Vec<u8>) -> Vec<Value> {
    let mut column = |(name, column): &(&str, _)| {
        let encoded = encoded(column);
        body.extend(&encoded.bytes);
        body.extend(encoded.validity.iter().flatten());
        let validity = encoded.validity.map(|known| known.len());
        json!([name, encoded.kind, encoded.bytes.len(), validity, encoded.texts])
    };
    table.columns.iter().map(&mut column).collect()
}

/// A fault in the fields of the protocol.
#[derive(Debug, Serialize)]
pub struct Fault {
    family: &'static str,
    kind: &'static str,
    message: String,
    code: Option<String>,
    session: Option<usize>,
}

impl Fault {
    /// An error of a load without a session.
    #[allow(clippy::needless_pass_by_value)] // for map_err
    pub fn driver(error: Error) -> Self {
        ops::Fault::Driver(error.into()).into()
    }

    /// An error of a watch.
    pub fn observer(error: Error) -> Self {
        ops::Fault::Observer(error).into()
    }

    /// Returns a fault of the request itself. `kind` is request, unknown or busy.
    pub fn agent(kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            family: "agent",
            kind,
            message: message.into(),
            code: None,
            session: None,
        }
    }
}

impl From<ops::Fault> for Fault {
    fn from(fault: ops::Fault) -> Self {
        let (kind, message, code, session) = fault.arguments();
        let family = match fault {
            ops::Fault::Driver(_) => "driver",
            ops::Fault::Observer(_) => "observer",
            ops::Fault::Os(_) => "os",
        };
        Self {
            family,
            kind,
            message,
            code,
            session,
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        ops::Fault::from(error).into()
    }
}

pub type Outcome = Result<Reply, Fault>;

/// Returns the header of a request as its type.
///
/// # Errors
/// Kind `request`: a key is unknown, missing or of another type.
pub fn parsed<T: DeserializeOwned>(header: Map<String, Value>) -> Result<T, Fault> {
    serde_json::from_value(Value::Object(header)).map_err(|e| Fault::agent("request", e.to_string()))
}
