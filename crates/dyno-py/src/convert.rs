//! Tables to Python: `{column: (type, payload, validity)}`, see `CoreColumn` in `model/schema/tables.py`.

use dyno_core::{Encoded, encoded};
use dyno_model::Table;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

/// `{table: {column: (type, payload, validity)}}`.
pub fn tables<'py>(py: Python<'py>, tables: &[Table]) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for table in tables {
        let encode = || table.columns.iter().map(|(_, column)| encoded(column)).collect();
        let encoded: Vec<Encoded<'_>> = py.detach(encode); // other threads go on: a call log has millions of rows
        let columns = PyDict::new(py);
        for ((name, _), made) in table.columns.iter().zip(encoded) {
            columns.set_item(name, column(py, made)?)?;
        }
        all.set_item(table.name, columns)?;
    }
    Ok(all)
}

type CoreColumn<'py> = (&'static str, Bound<'py, PyAny>, Option<Bound<'py, PyBytes>>);

fn column<'py>(py: Python<'py>, made: Encoded<'_>) -> PyResult<CoreColumn<'py>> {
    let bytes = PyBytes::new(py, &made.bytes);
    let payload = match made.texts {
        None => bytes.into_any(),
        Some(texts) => (bytes, PyList::new(py, texts)?).into_pyobject(py)?.into_any(),
    };
    let validity = made.validity.map(|known| PyBytes::new(py, &known));
    Ok((made.kind, payload, validity))
}
