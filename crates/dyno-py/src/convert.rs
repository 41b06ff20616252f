//! Tables to Python: `{column: (type, payload, validity)}`, see `CoreColumn` in `model/tables.py`.

use std::collections::HashMap;

use dyno_model::{Coded, Column, Table};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

/// `{table: {column: (type, payload, validity)}}`.
pub fn tables<'py>(py: Python<'py>, tables: &[Table]) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for table in tables {
        let columns = PyDict::new(py);
        for (name, column) in &table.columns {
            columns.set_item(name, self::column(py, column)?)?;
        }
        all.set_item(table.name, columns)?;
    }
    Ok(all)
}

type CoreColumn<'py> = (&'static str, Bound<'py, PyAny>, Option<Bound<'py, PyBytes>>);

fn column<'py>(py: Python<'py>, column: &Column) -> PyResult<CoreColumn<'py>> {
    Ok(match column {
        Column::I64(v) => numbers(py, "i64", v, |x| x.unwrap_or_default().to_le_bytes()),
        Column::F64(v) => numbers(py, "f64", v, |x| x.unwrap_or_default().to_le_bytes()),
        Column::Str(v) => ("str", texts(py, v)?, None),
        Column::Coded(v) => ("str", coded(py, v)?, None),
        Column::Bool(v) => {
            let bytes: Vec<u8> = v.iter().map(|&b| u8::from(b)).collect();
            ("bool", PyBytes::new(py, &bytes).into_any(), None)
        }
    })
}

/// `(codes, categories)`: little-endian 32-bit indices, -1 for NULL. Columns of texts repeat themselves.
fn texts<'py>(py: Python<'py>, values: &[Option<String>]) -> PyResult<Bound<'py, PyAny>> {
    let mut known: HashMap<&str, i32> = HashMap::new();
    let mut categories: Vec<&str> = Vec::new();
    let mut codes: Vec<u8> = Vec::with_capacity(values.len() * 4);
    for value in values {
        let code = value.as_deref().map_or(-1, |text| {
            *known.entry(text).or_insert_with(|| {
                categories.push(text);
                categories.len() as i32 - 1
            })
        });
        codes.extend(code.to_le_bytes());
    }
    Ok((PyBytes::new(py, &codes), PyList::new(py, categories)?)
        .into_pyobject(py)?
        .into_any())
}

fn coded<'py>(py: Python<'py>, column: &Coded) -> PyResult<Bound<'py, PyAny>> {
    let code = |code: &Option<u32>| code.map_or(-1, |c| c as i32).to_le_bytes();
    let codes: Vec<u8> = column.codes.iter().flat_map(code).collect();
    Ok((PyBytes::new(py, &codes), PyList::new(py, &column.texts)?)
        .into_pyobject(py)?
        .into_any())
}

fn numbers<'py, T: Copy>(
    py: Python<'py>,
    kind: &'static str,
    values: &[Option<T>],
    bytes: impl Fn(Option<T>) -> [u8; 8],
) -> CoreColumn<'py> {
    let payload: Vec<u8> = values.iter().flat_map(|&v| bytes(v)).collect();
    let validity = values.iter().any(Option::is_none).then(|| {
        let known: Vec<u8> = values.iter().map(|v| u8::from(v.is_some())).collect();
        PyBytes::new(py, &known)
    });
    (kind, PyBytes::new(py, &payload).into_any(), validity)
}
