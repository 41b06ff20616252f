//! Columns and tables on their way to Python. Their schema is written once, in `python/dbdyno/model/schema/raw.toml`:
//! a table of the core is a struct of `raw.rs`, and Python checks each against the schema.

use crate::texts::{Coded, NullableTexts, Texts};

/// Numbers of which some may be NULL: unknown, never zero.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Nullable<T> {
    values: Vec<T>,
    known: Vec<bool>,
}

impl<T: Copy> Nullable<T> {
    /// Values by row, 0 where unknown.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Whether each value is known. `None` if all are.
    pub fn known(&self) -> Option<&[bool]> {
        Some(&*self.known).filter(|known| !known.is_empty())
    }

    /// Each row's value.
    pub fn iter(&self) -> impl Iterator<Item = Option<T>> {
        let known = |row| self.known().is_none_or(|known| known[row]);
        (0..self.values.len()).map(move |row| known(row).then_some(self.values[row]))
    }
}

impl<T> From<Vec<T>> for Nullable<T> {
    fn from(values: Vec<T>) -> Self {
        let known = Vec::new();
        Self { values, known }
    }
}

impl<T: Default> FromIterator<Option<T>> for Nullable<T> {
    fn from_iter<I: IntoIterator<Item = Option<T>>>(rows: I) -> Self {
        let (mut row, mut known) = (0, Vec::new());
        let value = |value: Option<T>| {
            if value.is_none() && known.is_empty() {
                known.resize(row, true);
            }
            if value.is_none() || !known.is_empty() {
                known.push(value.is_some());
            }
            row += 1;
            value.unwrap_or_default()
        };
        let values = rows.into_iter().map(value).collect();
        Self { values, known }
    }
}

/// One column.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    /// Integers.
    I64(Nullable<i64>),
    /// Floats.
    F64(Nullable<f64>),
    /// Texts.
    Str(Coded),
    /// Truth values, always known.
    Bool(Vec<bool>),
}

impl Column {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::I64(v) => v.values.len(),
            Self::F64(v) => v.values.len(),
            Self::Str(v) => v.codes.len(),
            Self::Bool(v) => v.len(),
        }
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Integers that are all known.
    pub fn known(values: impl IntoIterator<Item = i64>) -> Self {
        Vec::from_iter(values).into()
    }
}

macro_rules! column_from {
    ($($type:ty => $kind:ident),*) => {$(
        impl From<$type> for Column {
            fn from(values: $type) -> Self {
                Self::$kind(values.into())
            }
        }
    )*};
}

column_from! {
    Vec<i64> => I64, Nullable<i64> => I64, Vec<f64> => F64, Nullable<f64> => F64, Vec<bool> => Bool,
    Texts => Str, NullableTexts => Str
}

/// A table: its name in the schema, and its columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Name in the schema.
    pub name: &'static str,
    /// Columns, all of one length.
    pub columns: Vec<(&'static str, Column)>,
}

impl Table {
    /// A table of columns of one length.
    ///
    /// # Panics
    /// When lengths differ: a defect of the caller.
    pub fn new(name: &'static str, columns: Vec<(&'static str, Column)>) -> Self {
        let table = Self { name, columns };
        let rows = table.rows();
        for (column, values) in &table.columns {
            assert_eq!(values.len(), rows, "table {name}, column {column}");
        }
        table
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, c)| c.len())
    }
}

/// A struct of columns for each table, and its conversion into a [`Table`].
macro_rules! raw_tables {
    ($($name:literal: $table:ident { $($column:ident: $type:ty,)* })*) => {$(
        #[doc = concat!("Columns of table `", $name, "`.")]
        #[allow(missing_docs)] // raw.toml says what they mean
        #[derive(Debug)]
        pub struct $table {
            $(pub $column: $type,)*
        }

        impl From<$table> for Table {
            fn from(table: $table) -> Self {
                Self::new($name, vec![$((stringify!($column), table.$column.into()),)*])
            }
        }
    )*};
}
pub(crate) use raw_tables;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "table t, column b")]
    fn columns_of_unequal_length_are_refused() {
        Table::new("t", vec![("a", Column::known([1, 2])), ("b", Column::known([1]))]);
    }

    #[test]
    fn an_unknown_number_stays_unknown_wherever_it_is() {
        for rows in [
            vec![],
            vec![Some(0), Some(5)],
            vec![None, Some(5)],
            vec![Some(5), Some(0), None, Some(1), None],
        ] {
            let numbers: Nullable<i64> = rows.iter().copied().collect();
            assert_eq!(numbers.iter().collect::<Vec<_>>(), rows);
            assert_eq!(numbers.known().is_some(), rows.contains(&None));
        }
    }

    #[test]
    fn a_table_has_its_columns_in_the_order_of_the_schema() {
        let histogram = crate::raw::Histogram {
            count: vec![3],
            high_ns: vec![2],
            low_ns: vec![1],
        };
        let columns = ["low_ns", "high_ns", "count"].into_iter().zip([1, 2, 3]);
        let expected = columns.map(|(name, value)| (name, Column::known([value])));
        assert_eq!(
            Table::from(histogram),
            Table::new("histogram", expected.collect())
        );
    }
}
