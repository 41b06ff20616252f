//! A statement's bytes, built once: only the values of its variables are written in at each call.

use dyno_model::{Error, Result};
use dyno_script::{Frame, Into, Names, Slot, Sql};

use crate::messages::{self, message};
use crate::plan::Protocol;
use crate::script::out::{Out, Part};

/// Sync (PostgreSQL documentation, "Message Formats").
pub(crate) const SYNC: &[u8] = b"S\x00\x00\x00\x04";

/// A statement of a script.
#[derive(Debug)]
pub(crate) struct Statement {
    protocol: Protocol,
    sql: Sql,
    /// Under which the server knows it; "": it does not.
    pub name: String,
    /// With `$1`, `$2`, ...
    pub text: String,
    /// Parameters of the statement.
    pub slots: Vec<Slot>,
    /// Message that prepares the statement, whatever the server knew before.
    parse: Vec<u8>,
    /// Bind up to its first value.
    bind: Part,
    /// Bind behind its last value, Describe where rows are wanted, Execute, Sync.
    execute: Part,
}

impl Statement {
    /// Builds the bytes.
    ///
    /// # Errors
    /// [`Error::Spec`] on a zero byte.
    pub fn new(protocol: Protocol, number: usize, sql: &Sql) -> Result<Self> {
        let (text, slots) = sql.parametrised();
        if text.contains('\0') {
            return Err(Error::Spec("a statement holds a zero byte".to_owned()));
        }
        let named = protocol == Protocol::Prepared;
        let name = if named {
            format!("s{number}")
        } else {
            String::new()
        };
        let named_bytes = [name.as_bytes(), b"\0"].concat();
        let parse = [&named_bytes, text.as_bytes(), b"\0\0\0"].concat();
        let mut all = message(b'P', &parse);
        if named {
            let known = message(b'C', &[b"S", &named_bytes[..]].concat());
            all.splice(0..0, known);
        }
        let count = (slots.len() as u16).to_be_bytes();
        let bind = [&b"B\0\0\0\0\0"[..], &named_bytes, b"\0\0", &count].concat();
        Ok(Self {
            protocol,
            sql: sql.clone(),
            name,
            text,
            slots,
            parse: all,
            bind: Part::new(&bind),
            execute: Part::new(&execute(sql.into != Into::Nothing)),
        })
    }

    /// Adds the messages that run it; `sync` where it is no part of a pipeline.
    #[inline]
    pub fn write(&self, frame: &Frame, names: &Names, known: bool, sync: bool, out: &mut Out) {
        if self.protocol == Protocol::Simple {
            self.query(frame, names, out);
            return;
        }
        if !known || self.protocol == Protocol::Extended {
            out.extend(&self.parse);
        }
        // The two bytes of "results as text" belong to Bind.
        let values = self.slots.iter().map(|slot| frame.get(*slot));
        if !out.message(&self.bind, values, &self.execute, 2) {
            self.write_any(frame, out);
        }
        if !sync {
            out.shorten(SYNC.len());
        }
    }

    #[inline(never)]
    fn write_any(&self, frame: &Frame, out: &mut Out) {
        let begin = out.len();
        out.extend(self.bind.bytes());
        for slot in &self.slots {
            out.parameter(frame.get(*slot));
        }
        out.fill_in_length(begin + 1, 2);
        out.extend(self.execute.bytes());
    }

    #[inline(never)]
    fn query(&self, frame: &Frame, names: &Names, out: &mut Out) {
        let begin = out.len();
        out.written(|bytes| {
            bytes.extend_from_slice(b"Q\0\0\0\0");
            self.sql.write(frame, names, bytes);
            bytes.push(0);
        });
        out.fill_in_length(begin + 1, 0);
    }
}

fn execute(describe: bool) -> Vec<u8> {
    let describe = if describe {
        message(b'D', b"P\0")
    } else {
        Vec::new()
    };
    [b"\0\0", &describe[..], &messages::message(b'E', &[0; 5]), SYNC].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dyno_script::{Operand, Rng, Value};

    fn sql(into: Into) -> (Names, Sql) {
        let mut names = Names::default();
        let pieces = vec![
            Operand::Text("select ".to_owned()),
            Operand::Variable(names.slot("a")),
            Operand::Text(", ".to_owned()),
            Operand::Variable(names.slot("b")),
        ];
        let sql = Sql {
            pieces,
            start: 0,
            into,
            statements: 1,
        };
        (names, sql)
    }

    fn written(protocol: Protocol, into: Into, known: bool, sync: bool) -> Vec<u8> {
        let (names, sql) = sql(into);
        let mut frame = Frame::new(&names, Rng::seeded(1, 1));
        frame.set(names.find("a").unwrap(), Value::Int(-64));
        let mut out = Out::default();
        let statement = Statement::new(protocol, 7, &sql).unwrap();
        statement.write(&frame, &names, known, sync, &mut out);
        out.bytes().to_vec()
    }

    #[test]
    fn a_known_statement_is_bound_and_executed_as_the_constant_one_is() {
        let params = [Some("-64".to_owned()), None];
        let expected = messages::bind_execute_sync("s7", &params);
        assert_eq!(written(Protocol::Prepared, Into::Nothing, true, true), expected);
        let unnamed = messages::bind_execute_sync("", &params);
        let extended = [messages::parse("select $1, $2"), unnamed].concat();
        assert_eq!(written(Protocol::Extended, Into::Nothing, true, true), extended);
    }

    #[test]
    fn in_the_simple_protocol_a_variable_that_is_not_set_stays() {
        let expected = messages::query("select -64, :b");
        assert_eq!(written(Protocol::Simple, Into::Nothing, false, true), expected);
    }

    #[test]
    fn rows_are_described_only_where_they_are_wanted_and_a_pipeline_has_its_own_sync() {
        let plain = written(Protocol::Prepared, Into::Nothing, true, false);
        assert!(plain.ends_with(&message(b'E', &[0; 5])));
        let wanted = written(Protocol::Prepared, Into::Gset(String::new()), true, true);
        assert!(wanted.ends_with(&[&message(b'D', b"P\0")[..], &message(b'E', &[0; 5]), SYNC].concat()));
        let lazy = written(Protocol::Prepared, Into::Nothing, false, true);
        assert!(lazy.starts_with(&message(b'C', b"Ss7\0")));
    }
}
