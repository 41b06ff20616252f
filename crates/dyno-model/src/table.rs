//! Columns and tables on their way to Python. The schema itself is written once, in
//! `python/dbdyno/model/schema/tables.py`; there every table is checked against it.

/// One column. `None` is NULL: unknown, never zero.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    /// Integers.
    I64(Vec<Option<i64>>),
    /// Floats.
    F64(Vec<Option<f64>>),
    /// Texts.
    Str(Vec<Option<String>>),
    /// Texts that come again and again, each stored once.
    Coded(Coded),
    /// Truth values, always known.
    Bool(Vec<bool>),
}

impl Column {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::I64(v) => v.len(),
            Self::F64(v) => v.len(),
            Self::Str(v) => v.len(),
            Self::Coded(v) => v.codes.len(),
            Self::Bool(v) => v.len(),
        }
    }

    /// True without rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Integers that are all known.
    pub fn known(values: impl IntoIterator<Item = i64>) -> Self {
        Self::I64(values.into_iter().map(Some).collect())
    }
}

/// A column of texts from a small set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Coded {
    /// Which text each row has.
    pub codes: Vec<Option<u32>>,
    /// The texts by code.
    pub texts: Vec<String>,
}

impl Coded {
    /// The text of each row.
    pub fn iter(&self) -> impl Iterator<Item = Option<&str>> {
        self.codes
            .iter()
            .map(|code| code.map(|c| self.texts[c as usize].as_str()))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "table t, column b")]
    fn columns_of_unequal_length_are_refused() {
        Table::new("t", vec![("a", Column::known([1, 2])), ("b", Column::known([1]))]);
    }
}
