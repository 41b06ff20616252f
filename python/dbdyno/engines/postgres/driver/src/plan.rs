//! A session's orders, and the bytes of its calls, built once.

use dyno_model::{Counter, Error, Result};
use serde::Deserialize;

use crate::target::TargetSpec;

/// The engine's part of the specification of a load (docs/core.md).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    /// Which server.
    pub target: TargetSpec,
    /// Groups of equal sessions.
    pub sessions: Vec<SessionSpec>,
    /// How to read the counters of a session.
    #[serde(default)]
    pub probe: Option<ProbeSpec>,
}

/// `count` sessions that do the same.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSpec {
    /// How many.
    #[serde(default = "one")]
    pub count: usize,
    /// Simple queries, once after connecting.
    #[serde(default)]
    pub setup: Vec<String>,
    /// A call: all of these, in order.
    pub call: Vec<StatementSpec>,
    /// Simple queries, after preparing.
    #[serde(default)]
    pub warm: Vec<String>,
    /// Calls before the barrier, not counted.
    #[serde(default)]
    pub warm_calls: u32,
}

fn one() -> usize {
    1
}

/// A prepared statement with constant parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatementSpec {
    /// With `$1`, `$2`, ...
    pub sql: String,
    /// Texts; `null` is NULL.
    #[serde(default)]
    pub params: Vec<Option<String>>,
}

/// How to read the counters of a session.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeSpec {
    /// Simple queries before each reading: make the server show what it holds back.
    #[serde(default)]
    pub flush: Vec<String>,
    /// One row; its columns are found by name.
    pub read: String,
    /// What its columns are.
    pub columns: Vec<CounterSpec>,
}

/// One column of a probe.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CounterSpec {
    /// Column, and name in counters.toml.
    pub name: String,
    /// `counter` or `gauge`.
    pub kind: String,
    /// blocks, bytes, rows, ns, count.
    pub unit: String,
}

impl CounterSpec {
    pub(crate) fn counter(&self) -> Counter {
        Counter {
            name: self.name.clone(),
            kind: self.kind.clone(),
            unit: self.unit.clone(),
        }
    }
}

/// A session's orders with the bytes of its calls. Shared by all sessions of a group.
#[derive(Debug)]
pub struct Plan {
    /// The orders.
    pub spec: SessionSpec,
    /// Bind, Execute, Sync of each statement, in order.
    pub messages: Vec<Vec<u8>>,
}

impl Plan {
    /// Builds the bytes.
    ///
    /// # Errors
    /// [`Error::Spec`] on a call without statements.
    pub fn new(spec: SessionSpec) -> Result<Self> {
        if spec.call.is_empty() {
            return Err(Error::Spec("a call has no statement".to_owned()));
        }
        let each = spec.call.iter().enumerate();
        let messages = each
            .map(|(i, s)| call_bytes(&statement_name(i), &s.params))
            .collect();
        Ok(Self { spec, messages })
    }
}

/// Name of the call's `index`-th statement on the server. Short: it travels with every call.
pub fn statement_name(index: usize) -> String {
    format!("d{index}")
}

/// Bind to the unnamed portal (parameters and results as text), Execute without a row limit, Sync.
/// No Describe: nobody reads the column names.
pub fn call_bytes(name: &str, params: &[Option<String>]) -> Vec<u8> {
    let mut bind = vec![0];
    bind.extend_from_slice(name.as_bytes());
    bind.push(0);
    bind.extend_from_slice(&0_u16.to_be_bytes());
    bind.extend_from_slice(&(params.len() as u16).to_be_bytes());
    for param in params {
        let text = param.as_deref();
        bind.extend_from_slice(&text.map_or(-1, |t| t.len() as i32).to_be_bytes());
        bind.extend_from_slice(text.unwrap_or_default().as_bytes());
    }
    bind.extend_from_slice(&0_u16.to_be_bytes());
    [message(b'B', &bind), message(b'E', &[0; 5]), message(b'S', &[])].concat()
}

/// Type, length, body.
pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&[tag][..], &length, body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use postgres_protocol::{IsNull, message::frontend};
    use proptest::prelude::*;

    /// By hand from the PostgreSQL documentation, "Message Formats": Bind, Execute, Sync.
    #[test]
    fn golden_bytes_of_a_call() {
        let expected = [
            &b"B\x00\x00\x00\x16\x00d0\x00\x00\x00\x00\x02\x00\x00\x00\x0264"[..],
            &b"\xff\xff\xff\xff\x00\x00"[..],
            &b"E\x00\x00\x00\x09\x00\x00\x00\x00\x00"[..],
            &b"S\x00\x00\x00\x04"[..],
        ];
        let mut expected = expected.concat();
        expected[4] = 4 + 1 + 3 + 2 + 2 + (4 + 2) + 4 + 2;
        assert_eq!(call_bytes("d0", &[Some("64".into()), None]), expected);
    }

    proptest! {
        /// The same bytes as an independent implementation makes.
        #[test]
        fn as_postgres_protocol_has_it(params in prop::collection::vec(prop::option::of(".{0,40}"), 0..6)) {
            let mut bytes = BytesMut::new();
            let value = |p: &Option<String>, out: &mut BytesMut| {
                out.extend_from_slice(p.as_deref().unwrap_or_default().as_bytes());
                Ok(if p.is_some() { IsNull::No } else { IsNull::Yes })
            };
            let bound = frontend::bind("", "d7", [], &params, value, std::iter::empty::<i16>(), &mut bytes);
            prop_assert!(bound.is_ok());
            frontend::execute("", 0, &mut bytes).unwrap();
            frontend::sync(&mut bytes);
            prop_assert_eq!(call_bytes("d7", &params), bytes.to_vec());
        }
    }
}
