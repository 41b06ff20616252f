//! A statement as it is sent: variables in its text, or as parameters.

use crate::{Frame, Names, Operand, Slot, Sql};

impl Sql {
    /// Its text with `$1`, `$2` ... and the variables they stand for: for the extended protocol. A variable that
    /// is used twice is two parameters, as in pgbench.
    pub fn parametrised(&self) -> (String, Vec<Slot>) {
        let (mut text, mut slots) = (String::new(), Vec::new());
        for piece in &self.pieces {
            match piece {
                Operand::Text(part) => text.push_str(part),
                Operand::Variable(slot) => {
                    slots.push(*slot);
                    text.push('$');
                    text.push_str(&slots.len().to_string());
                }
            }
        }
        (text, slots)
    }

    /// Adds its text with the variables' values: for the simple protocol. A variable that is not set stays as it
    /// is written.
    pub fn write(&self, frame: &Frame, names: &Names, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Operand::Text(part) => out.extend_from_slice(part.as_bytes()),
                Operand::Variable(slot) => {
                    if let Some(value) = frame.get(*slot) {
                        value.sql_text(out);
                    } else {
                        out.push(b':');
                        out.extend_from_slice(names.name(*slot).as_bytes());
                    }
                }
            }
        }
    }
}
