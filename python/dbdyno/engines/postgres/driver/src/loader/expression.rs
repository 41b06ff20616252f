//! Expressions over a row, in the language of pgbench's `\set`: `(:row - 1) / 100000 + 1`.

use std::collections::BTreeMap;
use std::fmt::Display;

use dyno_model::{Error, Result};
use dyno_script::{Action, Frame, Names, Options, Program, Rng, Slot, Value, read};

use super::hash;

/// Variables of every row, by slot: its number, the parent's, its number among the parent's, how many that has.
const OF_A_ROW: [&str; 4] = ["row", "parent", "child", "children"];

/// Random numbers that depend on the seed, the stream's name and a key alone: any connection can make any row.
#[derive(Clone, Copy)]
pub struct Stream(u64);

impl Stream {
    pub fn new(seed: u64, name: &str) -> Self {
        Self(hash::text(name.as_bytes(), seed))
    }

    pub fn at(self, key: i64) -> Rng {
        Rng::seeded(self.0, key as u64)
    }
}

/// The variables of a table's expressions.
pub struct Variables {
    names: Names,
    /// Slots with the same value in all rows.
    constant: Vec<(Slot, i64)>,
}

impl Variables {
    pub fn new(parameters: &BTreeMap<String, i64>, seed: u64) -> Self {
        let mut names = Names::default();
        for name in OF_A_ROW {
            names.slot(name);
        }
        let mut constant = vec![(names.slot("default_seed"), seed as i64)];
        constant.extend(parameters.iter().map(|(name, value)| (names.slot(name), *value)));
        Self { names, constant }
    }

    /// Reads an expression whose value the variable `name` gets: those that follow may use it.
    ///
    /// # Errors
    /// [`Error::Spec`].
    pub fn read(&mut self, table: &str, name: &str, text: &str) -> Result<Expression> {
        let known = self.names.len();
        let place = format!("{table}.{name}");
        let command = format!("\\set {name} {text}");
        let script = read(&place, &command, &Options::default(), &mut self.names);
        let script = script.map_err(|e| Error::Spec(e.to_string()))?;
        let [Action::Set(slot, program)] = script.commands.iter().map(|c| &c.action).collect::<Vec<_>>()[..]
        else {
            return Err(Error::Spec(format!("{place}: `{text}` is no single expression")));
        };
        let mut new = (known..self.names.len()).map(|place| Slot(place as u32));
        if let Some(unknown) = new.find(|new| new != slot) {
            let (unknown, known) = (self.names.name(unknown), self.listed(known));
            return Err(Error::Spec(format!("{place}: no variable :{unknown}: {known}")));
        }
        Ok(Expression {
            slot: *slot,
            program: program.clone(),
            place,
        })
    }

    fn listed(&self, count: usize) -> String {
        let names = (0..count).map(|place| format!(":{}", self.names.name(Slot(place as u32))));
        names.collect::<Vec<_>>().join(", ")
    }

    /// Room for the values of a row.
    pub fn row(&self) -> Row<'_> {
        let mut frame = Frame::new(&self.names, Rng::seeded(0, 0));
        for &(slot, value) in &self.constant {
            frame.set(slot, Value::Int(value));
        }
        Row {
            frame,
            names: &self.names,
        }
    }
}

/// Values of the variables in a row.
pub struct Row<'a> {
    frame: Frame,
    names: &'a Names,
}

impl Row<'_> {
    /// `row`, `parent`, `child`, `children`.
    pub fn begin(&mut self, numbers: [i64; 4]) {
        for (slot, number) in numbers.into_iter().enumerate() {
            self.frame.set(Slot(slot as u32), Value::Int(number));
        }
    }
}

/// An integer, boolean (0, 1) or NULL, computed anew in each row.
pub struct Expression {
    slot: Slot,
    program: Program,
    place: String,
}

impl Expression {
    /// Its value, which its variable keeps; `None`: NULL.
    ///
    /// # Errors
    /// [`Error::Spec`] where it has none, or one of another type.
    pub fn eval(&self, rng: Rng, row: &mut Row<'_>) -> Result<Option<i64>> {
        row.frame.rng = rng;
        let value = match self.program.eval(&mut row.frame, row.names) {
            Ok(Value::Int(value)) => Value::Int(value),
            Ok(Value::Bool(value)) => Value::Int(i64::from(value)),
            Ok(Value::Null) => Value::Null,
            Ok(_) => return Err(self.wrong(&"not an integer: write int(...)", row)),
            Err(e) => return Err(self.wrong(&e, row)),
        };
        let number = if let Value::Int(number) = value {
            Some(number)
        } else {
            None
        };
        row.frame.set(self.slot, value);
        Ok(number)
    }

    /// As [`Expression::eval`]; 0 for NULL.
    pub fn number(&self, rng: Rng, row: &mut Row<'_>) -> Result<i64> {
        Ok(self.eval(rng, row)?.unwrap_or(0))
    }

    #[cold]
    fn wrong(&self, why: &dyn Display, row: &Row<'_>) -> Error {
        let mut number = Vec::new();
        row.frame
            .get(Slot(0))
            .unwrap_or(&Value::Null)
            .sql_text(&mut number);
        let number = String::from_utf8_lossy(&number).into_owned();
        Error::Spec(format!("{}, row {number}: {why}", self.place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, seed: u64, number: i64) -> Result<Option<i64>> {
        let mut variables = Variables::new(&BTreeMap::from([("scale".to_owned(), 7)]), seed);
        let read = variables.read("t", "c", text)?;
        let mut row = variables.row();
        row.begin([number, 0, 0, 0]);
        read.eval(Stream::new(seed, "t.c").at(number), &mut row)
    }

    #[test]
    fn values_are_those_of_the_language() {
        assert_eq!(value("(:row - 1) / 100000 + 1", 1, 250_001), Ok(Some(3)));
        assert_eq!(value("case when :row > 5 then :scale end", 1, 5), Ok(None));
        assert_eq!(value(":row > 5", 1, 6), Ok(Some(1)));
    }

    #[test]
    fn random_numbers_depend_on_seed_and_row_alone() {
        let drawn = |seed, row| value("random(1, 1000000000)", seed, row).unwrap();
        assert_eq!(drawn(1, 5), drawn(1, 5));
        assert_ne!(drawn(1, 5), drawn(2, 5));
        assert_ne!(drawn(1, 5), drawn(1, 6));
        let keyed = |seed, row| value("hash(12, :default_seed) + 0 * :row", seed, row).unwrap();
        assert_eq!(keyed(1, 5), keyed(1, 6));
        assert_ne!(keyed(1, 5), keyed(2, 5));
    }

    #[test]
    fn draws_of_successive_rows_are_uniform() {
        let mut counts = [0_u32; 10];
        let mut variables = Variables::new(&BTreeMap::new(), 3);
        let read = variables.read("t", "c", "random(0, 9)").unwrap();
        let (mut row, stream) = (variables.row(), Stream::new(3, "t.c"));
        for number in 0..100_000 {
            counts[read.number(stream.at(number), &mut row).unwrap() as usize] += 1;
        }
        let chi: f64 = counts.iter().map(|&c| (f64::from(c) - 1e4).powi(2) / 1e4).sum();
        assert!(chi < 33.7, "{chi}"); // 9 degrees of freedom, p = 1e-4
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, words) in [
            (":row +", "t.c:1:"),
            (
                ":rows",
                "no variable :rows: :row, :parent, :child, :children, :default_seed, :scale",
            ),
            ("1\n\\set d 2", "no single expression"),
            (":row / 0", "t.c, row 5: division by zero"),
            ("sqrt(2)", "write int(...)"),
        ] {
            let Err(Error::Spec(reason)) = value(text, 1, 5) else {
                panic!("{text} was not refused")
            };
            assert!(reason.contains(words), "{reason}");
        }
    }
}
