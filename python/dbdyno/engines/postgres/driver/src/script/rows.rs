//! Results that go into variables: `\gset` and `\aset`.

use dyno_script::{Frame, Into, Names, Slot, Value, is_name};

use crate::client::{column_names, values};

/// Results of one statement so far.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// Variable of each column. `None` if no script uses it.
    slots: Vec<Option<Slot>>,
    /// The last row, as far as it is used.
    row: Vec<(Slot, Value)>,
    /// A column whose name a variable cannot have.
    nameless: Option<String>,
    rows: u64,
    /// Rows of the last statement that ended.
    last: u64,
}

impl Results {
    /// Empties the results, before a statement is sent.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.row.clear();
        self.nameless = None;
        (self.rows, self.last) = (0, 0);
    }

    /// Takes a `RowDescription`, a `DataRow` or the end of a statement.
    pub fn take(&mut self, tag: u8, body: &[u8], into: &Into, names: &Names, frame: &mut Frame) {
        match (tag, into) {
            (b'T', Into::Gset(prefix) | Into::Aset(prefix)) => {
                let columns = column_names(body).into_iter();
                let columns: Vec<String> = columns.map(|name| format!("{prefix}{name}")).collect();
                self.slots = columns.iter().map(|name| names.find(name)).collect();
                self.nameless = columns.into_iter().find(|name| !is_name(name));
            }
            (b'D', _) => {
                self.rows += 1;
                self.keep(body);
            }
            (b'C' | b'I', _) => self.end(matches!(into, Into::Aset(_)), frame),
            _ => {}
        }
    }

    /// NULL becomes an empty text, as in pgbench.
    fn keep(&mut self, body: &[u8]) {
        self.row.clear();
        for (slot, value) in self.slots.iter().zip(values(body)) {
            if let Some(slot) = slot {
                let text = String::from_utf8_lossy(value.unwrap_or_default());
                self.row.push((*slot, Value::Text(text.into())));
            }
        }
    }

    fn end(&mut self, keep: bool, frame: &mut Frame) {
        self.last = std::mem::take(&mut self.rows);
        if keep {
            self.set(frame);
        }
    }

    fn set(&mut self, frame: &mut Frame) {
        self.row
            .drain(..)
            .for_each(|(slot, value)| frame.set(slot, value));
    }

    /// All has come: `\gset` takes the one row of the last statement.
    pub fn finish(&mut self, into: &Into, frame: &mut Frame) -> Result<(), String> {
        if let Some(name) = &self.nameless {
            return Err(format!("{name:?} is no name for a variable: SELECT ... AS name"));
        }
        if !matches!(into, Into::Gset(_)) {
            return Ok(());
        }
        if self.last != 1 {
            return Err(format!(
                "\\gset needs exactly one row, the statement returned {}",
                self.last
            ));
        }
        self.set(frame);
        Ok(())
    }
}
