//! What a request comes to: a value with the bytes that belong to it, or what went wrong.

use std::io;

use dyno_core::encoded;
use dyno_model::{Error, Table};
use serde::Serialize;
use serde_json::{Value, json};

/// A value, and a body.
#[derive(Debug, Default)]
pub struct Answer {
    pub value: Value,
    pub body: Vec<u8>,
}

impl From<Value> for Answer {
    fn from(value: Value) -> Self {
        Self {
            value,
            body: Vec::new(),
        }
    }
}

impl Answer {
    /// Tables: what they have in the header, the values in the body.
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
        let made = encoded(column);
        body.extend(&made.bytes);
        body.extend(made.validity.iter().flatten());
        let validity = made.validity.map(|known| known.len());
        json!([name, made.kind, made.bytes.len(), validity, made.texts])
    };
    table.columns.iter().map(&mut column).collect()
}

/// What went wrong, as the core's errors are: kind, message, code, session.
#[derive(Debug, Serialize)]
pub struct Fault {
    family: &'static str,
    kind: &'static str,
    message: String,
    code: Option<String>,
    session: Option<usize>,
}

impl Fault {
    /// Of a load.
    pub fn driver(error: &Error, session: Option<usize>) -> Self {
        Self {
            session,
            ..Self::of("driver", error)
        }
    }

    /// Of a watch.
    pub fn observer(error: &Error) -> Self {
        Self::of("observer", error)
    }

    /// Of the request itself. `kind`: request, unknown, busy.
    pub fn agent(kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            family: "agent",
            kind,
            message: message.into(),
            code: None,
            session: None,
        }
    }

    fn of(family: &'static str, error: &Error) -> Self {
        Self {
            family,
            kind: error.kind(),
            message: error.to_string(),
            code: error.code().map(str::to_owned),
            session: None,
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self {
            family: "os",
            kind: "io",
            message: error.to_string(),
            code: error.raw_os_error().map(|n| n.to_string()),
            session: None,
        }
    }
}

pub type Outcome = Result<Answer, Fault>;
