//! A table as data, and its rows: each depends on the seed and its number alone.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use dyno_model::{Error, Result};
use serde::Deserialize;

use super::column::{Column, ColumnSpec};
use super::expression::{Expression, Row, Stream, Variables};

/// Numbers of rows; parts of the work are made for all of them beforehand.
pub const MOST_ROWS: i64 = 100_000_000_000;
/// Parents whose rows are counted one by one beforehand.
const MOST_PARENTS: i64 = 1_000_000_000;
/// Between two looks whether the count is still wanted.
const PARENTS_A_LOOK: i64 = 10_000;
/// PostgreSQL documentation, "PostgreSQL Limits".
const MOST_COLUMNS: usize = 1600;

/// Maximum size of a row: a value may have 1 GB (PostgreSQL documentation, "PostgreSQL Limits"), and a row is made in memory.
const MOST_ROW_BYTES: u64 = 1 << 30;

/// A table, or a partition with some of its rows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSpec {
    /// In results, and in names of random streams.
    pub name: String,
    /// As it stands in SQL.
    pub sql: String,
    /// First and last row, from 1. With `per_parent`: of the parent table.
    pub rows: (i64, i64),
    /// How many rows belong to the parent's row `:parent`: an expression.
    #[serde(default)]
    pub per_parent: Option<String>,
    /// Variables of all expressions.
    #[serde(default)]
    pub parameters: BTreeMap<String, i64>,
    /// In order of the COPY.
    pub columns: Vec<ColumnSpec>,
    /// Loaded by one connection in the transaction that truncates it: rows are frozen.
    #[serde(default)]
    pub freeze: bool,
}

/// Ready to make rows.
pub struct Table {
    variables: Variables,
    per_parent: Option<(Expression, Stream)>,
    columns: Vec<Column>,
    /// Number of columns in a row of COPY.
    sent: i16,
}

/// Rows made, and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Rows.
    pub rows: u64,
    /// Bytes of COPY data.
    pub bytes: u64,
    /// Sum of the rows' hashes, wrapping.
    pub checksum: u64,
}

impl Sum {
    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.checksum = self.checksum.wrapping_add(other.checksum);
    }
}

/// Part of a table: rows `from..to` (with `per_parent`: of the parent's), and the number of the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub range: Range<i64>,
    pub first_row: i64,
    /// Number of rows of the table.
    pub rows: i64,
}

impl Table {
    /// # Errors
    /// [`Error::Spec`] with the column.
    pub fn new(spec: &TableSpec, seed: u64) -> Result<Self> {
        let refuse = |words: String| Err(Error::Spec(format!("{}: {words}", spec.name)));
        if spec.rows.0 < 1 || spec.rows.1 > MOST_ROWS {
            return refuse(format!("rows are numbered from 1 to {MOST_ROWS}"));
        }
        if spec.per_parent.is_some() && spec.rows.1 > MOST_PARENTS {
            return refuse(format!("a parent has at most {MOST_PARENTS} rows"));
        }
        if spec.columns.len() > MOST_COLUMNS {
            return refuse(format!("a table has at most {MOST_COLUMNS} columns"));
        }
        let mut variables = Variables::new(&spec.parameters, seed);
        let per_parent = match &spec.per_parent {
            Some(text) => {
                let stream = Stream::new(seed, &format!("{}.per_parent", spec.name));
                Some((variables.read(&spec.name, "per_parent", text)?, stream))
            }
            None => None,
        };
        let columns = spec.columns.iter();
        let columns = columns.map(|c| Column::new(c, &spec.name, seed, &mut variables));
        let columns: Vec<_> = columns.collect::<Result<_>>()?;
        if columns.iter().map(Column::longest).fold(0, u64::saturating_add) > MOST_ROW_BYTES {
            return refuse(format!("a row has at most {MOST_ROW_BYTES} bytes"));
        }
        let sent = columns.iter().filter(|c| c.sent).count() as i16;
        Ok(Self {
            variables,
            per_parent,
            columns,
            sent,
        })
    }

    /// `rows` in parts of about `size`, in order.
    ///
    /// # Errors
    /// [`Error::Aborted`] once `stop` is set: with `per_parent` it counts the rows of each parent.
    pub fn chunks(&self, (first, last): (i64, i64), size: i64, stop: &AtomicBool) -> Result<Vec<Chunk>> {
        let (mut chunks, mut row, mut from) = (Vec::new(), 1, first);
        while from <= last {
            let to = from.saturating_add(size.max(1)).min(last + 1);
            let first_row = if self.per_parent.is_some() { row } else { from };
            let rows = if self.per_parent.is_some() {
                self.count(from..to, stop)?
            } else {
                to - from
            };
            row = within(row + rows)?;
            chunks.push(Chunk {
                range: from..to,
                first_row,
                rows,
            });
            from = to;
        }
        Ok(chunks)
    }

    fn count(&self, mut parents: Range<i64>, stop: &AtomicBool) -> Result<i64> {
        let mut row = self.variables.row();
        parents.try_fold(0, |sum, parent| {
            if parent % PARENTS_A_LOOK == 0 && stop.load(Ordering::Relaxed) {
                return Err(Error::Aborted);
            }
            within(sum + self.children(parent, &mut row)?)
        })
    }

    /// How many rows belong to that one; where there are no parents, each row is one.
    fn children(&self, parent: i64, row: &mut Row<'_>) -> Result<i64> {
        let Some((expression, stream)) = &self.per_parent else {
            return Ok(1);
        };
        row.begin([0, parent, 0, 0]);
        within(expression.number(stream.at(parent), row)?.max(0))
    }

    /// Rows of the chunk, one after the other, into `out`; `full` after each.
    pub fn generate(
        &self,
        chunk: &Chunk,
        out: &mut Vec<u8>,
        mut full: impl FnMut(&mut Vec<u8>, &mut Sum) -> Result<()>,
    ) -> Result<Sum> {
        let (mut sum, mut number) = (Sum::default(), chunk.first_row);
        let mut row = self.variables.row();
        let mut scratch = Vec::new();
        for unit in chunk.range.clone() {
            let children = self.children(unit, &mut row)?;
            for child in 1..=children {
                row.begin([number, unit, child, children]);
                let hash = self.row(number, &mut row, out, &mut scratch)?;
                sum.rows += 1;
                sum.checksum = sum.checksum.wrapping_add(hash);
                full(out, &mut sum)?;
                number += 1;
            }
        }
        Ok(sum)
    }

    /// One row; its hash: that of each column is the seed of the next one's.
    fn row(&self, number: i64, row: &mut Row<'_>, out: &mut Vec<u8>, scratch: &mut Vec<u8>) -> Result<u64> {
        let mut hashed = 0;
        out.extend(self.sent.to_be_bytes());
        for column in &self.columns {
            let null = column.is_null(number);
            hashed = if column.is_integer() {
                match column.integer(number, row)?.filter(|_| !null) {
                    Some(value) => column.add_integer(value, out, hashed)?,
                    None => column.add_null(out, hashed),
                }
            } else {
                match column.text(number, row, scratch)?.filter(|_| !null) {
                    Some(text) => column.add_text(text, out, hashed),
                    None => column.add_null(out, hashed),
                }
            };
        }
        Ok(hashed)
    }
}

/// A number of rows, or of one.
fn within(number: i64) -> Result<i64> {
    if number > MOST_ROWS {
        return Err(Error::Spec(format!(
            "per_parent: a table has at most {MOST_ROWS} rows"
        )));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::super::column::Content;
    use super::*;
    use proptest::prelude::*;

    fn spec() -> TableSpec {
        serde_json::from_value(serde_json::json!({
            "name": "items", "sql": "items", "rows": [1, 400],
            "per_parent": "random(0, 5)",
            "columns": [
                {"name": "id", "type": "bigint", "content": {"expression": ":row"}},
                {"name": "order_id", "type": "integer", "content": {"expression": ":parent"}},
                {"name": "price", "type": "numeric", "scale": 2, "nulls": 0.1,
                 "content": {"expression": "random(-9, 99999)"}},
                {"name": "state", "type": "text", "content": {"choice": [["new", 3.0], ["old", 1.0]]}},
                {"name": "note", "type": "text", "content": {"words": [["red", "fox", "hat"], 0, 4]}},
                {"name": "code", "type": "text", "key": ":parent", "content": {"characters": ["abc", 2, 7]}},
                {"name": "mail", "type": "text", "content": {"template": "u{:order_id * 2}@x"}},
            ]
        }))
        .unwrap()
    }

    /// All rows, by chunks of that size, and what they sum up to.
    fn whole(seed: u64, size: i64) -> (Vec<u8>, Sum) {
        let spec = spec();
        let table = Table::new(&spec, seed).unwrap();
        let (mut out, mut sum) = (Vec::new(), Sum::default());
        for chunk in table.chunks(spec.rows, size, &AtomicBool::new(false)).unwrap() {
            sum.add(table.generate(&chunk, &mut out, |_, _| Ok(())).unwrap());
        }
        (out, sum)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn any_chunking_gives_the_same_rows(seed: u64, size in 1_i64..500) {
            prop_assert_eq!(whole(seed, size), whole(seed, 400));
        }
    }

    #[test]
    fn another_seed_gives_other_rows() {
        let (one, two) = (whole(1, 400), whole(2, 400));
        assert_ne!(one.0, two.0);
        assert_ne!(one.1.checksum, two.1.checksum);
    }

    #[test]
    fn the_count_of_the_parents_rows_can_be_stopped() {
        let mut spec = spec();
        spec.rows = (1, MOST_PARENTS);
        let table = Table::new(&spec, 1).unwrap();
        let counted = table.chunks(spec.rows, i64::MAX, &AtomicBool::new(true));
        assert_eq!(counted, Err(Error::Aborted));
    }

    #[test]
    fn a_row_that_does_not_fit_into_memory_is_refused() {
        let mut spec = spec();
        spec.columns[4].content = Content::Words(vec!["x".repeat(1000)], 0, 10_000_000);
        let refused = Table::new(&spec, 1).err().unwrap().to_string();
        assert!(refused.contains("bytes"), "{refused}");
    }

    #[test]
    fn a_value_that_does_not_fit_is_an_error() {
        let mut spec = spec();
        spec.columns[1].content = Content::Expression(":parent * 100000000".to_owned());
        let table = Table::new(&spec, 1).unwrap();
        let chunk = &table.chunks(spec.rows, 400, &AtomicBool::new(false)).unwrap()[0];
        assert!(table.generate(chunk, &mut Vec::new(), |_, _| Ok(())).is_err());
    }
}
