//! Tables to Python: `{column: (type, payload, validity)}`, see `CoreColumn` in `model/tables.py`.

use dyno_model::{Column, Table};
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
        Column::Str(v) => ("str", PyList::new(py, v)?.into_any(), None),
        Column::Bool(v) => {
            let bytes: Vec<u8> = v.iter().map(|&b| u8::from(b)).collect();
            ("bool", PyBytes::new(py, &bytes).into_any(), None)
        }
    })
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
