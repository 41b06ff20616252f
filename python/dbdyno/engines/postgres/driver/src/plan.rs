//! A session's orders, and the bytes of its calls, built once.

use dyno_model::{Counter, Error, Result};
use serde::Deserialize;

use crate::messages;
use crate::target::TargetSpec;

/// A pipelined call may be so long. Nothing is read while it is sent: a server that waits until its answers
/// are read must be able to take all of it. That much fits into the buffers of a TCP or Unix socket.
pub const LONGEST_PIPELINE_BYTES: usize = 64 * 1024;

/// The engine's part of the specification of a load (docs/core.md).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    /// Which server.
    pub target: TargetSpec,
    /// Groups of equal sessions.
    pub sessions: Vec<SessionSpec>,
    /// Probe of a session's counters.
    #[serde(default)]
    pub probe: Option<ProbeSpec>,
}

/// `count` sessions that do the same.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSpec {
    /// Number of sessions.
    #[serde(default = "one")]
    pub count: usize,
    /// Simple queries, once after connecting.
    #[serde(default)]
    pub setup: Vec<String>,
    /// A call: all of these, in order.
    pub call: Vec<StatementSpec>,
    /// Protocol of a call's statements.
    #[serde(default)]
    pub protocol: Protocol,
    /// All statements of a call in one go.
    #[serde(default)]
    pub pipeline: bool,
    /// Calls before the barrier, not counted.
    #[serde(default)]
    pub warm_calls: u32,
    /// Simple queries after these, the last before the barrier.
    #[serde(default)]
    pub warm: Vec<String>,
    /// A pause before them, milliseconds.
    #[serde(default)]
    pub pause_ms: u64,
}

fn one() -> usize {
    1
}

/// Protocol of a statement (PostgreSQL documentation, "Message Flow").
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Prepared once by name; Bind, Execute, Sync a call.
    #[default]
    Prepared,
    /// Parse of the unnamed statement, Bind, Execute, Sync a call: nothing of it outlives the call.
    Extended,
    /// Query: text alone.
    Simple,
}

/// A statement with constant parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatementSpec {
    /// With `$1`, `$2`, ...; without in the simple protocol, which has none.
    pub sql: String,
    /// Texts; `null` is NULL.
    #[serde(default)]
    pub params: Vec<Option<String>>,
}

/// Probe of a session's counters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeSpec {
    /// Simple queries before each reading: make the server show what it holds back.
    #[serde(default)]
    pub flush: Vec<String>,
    /// One row; its columns are found by name.
    pub read: String,
    /// Columns of the row.
    pub columns: Vec<CounterSpec>,
}

/// A column of a probe.
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
    /// Messages that are sent and waited for in turn: one for each statement, or one for all.
    pub messages: Vec<Vec<u8>>,
    /// `ReadyForQuery` that answer each of them.
    pub replies: usize,
}

impl Plan {
    /// Builds the bytes.
    ///
    /// # Errors
    /// [`Error::Spec`] on a call without statements, on parameters in the simple protocol, on a pipeline that
    /// is too long.
    pub fn new(spec: SessionSpec) -> Result<Self> {
        if spec.call.is_empty() {
            return Err(Error::Spec("a call has no statement".to_owned()));
        }
        let each = spec.call.iter().enumerate();
        let messages: Result<Vec<_>> = each.map(|(i, s)| statement_bytes(spec.protocol, i, s)).collect();
        let (mut messages, mut replies) = (messages?, 1);
        if spec.pipeline {
            replies = messages.len();
            messages = vec![pipelined(&messages)?];
        }
        Ok(Self {
            spec,
            messages,
            replies,
        })
    }

    /// Name under which the call's `index`-th statement is known to the server; "": it is sent every time.
    pub fn prepared_name(&self, index: usize) -> String {
        match self.spec.protocol {
            Protocol::Prepared => statement_name(index),
            Protocol::Extended | Protocol::Simple => String::new(),
        }
    }
}

fn statement_bytes(protocol: Protocol, index: usize, statement: &StatementSpec) -> Result<Vec<u8>> {
    let StatementSpec { sql, params } = statement;
    if sql.contains('\0') {
        return Err(Error::Spec("a statement holds a zero byte".to_owned()));
    }
    match protocol {
        Protocol::Prepared => Ok(messages::bind_execute_sync(&statement_name(index), params)),
        Protocol::Extended => Ok([messages::parse(sql), messages::bind_execute_sync("", params)].concat()),
        Protocol::Simple if params.is_empty() => Ok(messages::query(sql)),
        Protocol::Simple => Err(Error::Spec(
            "the simple protocol has no parameters: put them into the text".to_owned(),
        )),
    }
}

/// All in one; each keeps its own end, so each is a transaction of its own where none is open.
fn pipelined(messages: &[Vec<u8>]) -> Result<Vec<u8>> {
    let all = messages.concat();
    if messages.len() > 1 && all.len() > LONGEST_PIPELINE_BYTES {
        return Err(Error::Spec(format!(
            "a pipelined call is {} bytes, at most {LONGEST_PIPELINE_BYTES} can be sent in one go: leave out the \
             pipeline, or make fewer or shorter statements",
            all.len()
        )));
    }
    Ok(all)
}

/// Name of the call's `index`-th statement on the server. Short: it travels with every call.
fn statement_name(index: usize) -> String {
    format!("d{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(protocol: &str, pipeline: bool, call: &[(&str, &[&str])]) -> SessionSpec {
        let call: Vec<_> = call
            .iter()
            .map(|(sql, params)| serde_json::json!({"sql": sql, "params": params}))
            .collect();
        let spec = serde_json::json!({"protocol": protocol, "pipeline": pipeline, "call": call});
        serde_json::from_value(spec).unwrap()
    }

    fn tags(message: &[u8]) -> String {
        let (mut tags, mut at) = (String::new(), 0);
        while at < message.len() {
            tags.push(char::from(message[at]));
            let length = u32::from_be_bytes(message[at + 1..at + 5].try_into().unwrap());
            at += 1 + length as usize;
        }
        tags
    }

    const TWO: [(&str, &[&str]); 2] = [("select $1", &["1"]), ("select 2", &[])];
    const PLAIN: [(&str, &[&str]); 2] = [("select 1", &[]), ("select 2", &[])];

    #[test]
    fn each_protocol_sends_what_its_name_says() {
        for (protocol, call, expected) in [
            ("prepared", TWO, "BES"),
            ("extended", TWO, "PBES"),
            ("simple", PLAIN, "Q"),
        ] {
            let plan = Plan::new(spec(protocol, false, &call)).unwrap();
            let sent: Vec<String> = plan.messages.iter().map(|m| tags(m)).collect();
            assert_eq!((sent, plan.replies), (vec![expected.to_owned(); 2], 1));
            let whole = Plan::new(spec(protocol, true, &call)).unwrap();
            assert_eq!(whole.messages, vec![plan.messages.concat()]);
            assert_eq!(whole.replies, 2);
        }
    }

    #[test]
    fn prepared_is_what_nobody_asked_for() {
        let spec: SessionSpec = serde_json::from_str(r#"{"call": [{"sql": "select 1"}]}"#).unwrap();
        assert_eq!((spec.protocol, spec.pipeline), (Protocol::Prepared, false));
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        let long = "x".repeat(LONGEST_PIPELINE_BYTES);
        for (wrong, words) in [
            (spec("simple", false, &TWO), "no parameters"),
            (
                spec("simple", true, &[(&long, &[]), ("select 1", &[])]),
                "in one go",
            ),
            (spec("extended", false, &[("select '\0'", &[])]), "zero byte"),
            (spec("prepared", false, &[]), "no statement"),
        ] {
            let Err(Error::Spec(reason)) = Plan::new(wrong) else {
                panic!("not refused: {words}")
            };
            assert!(reason.contains(words), "{reason}");
        }
        assert!(Plan::new(spec("simple", true, &[(&long, &[])])).is_ok());
    }
}
