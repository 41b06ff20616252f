//! Answers to Python. Tables: `{column: (type, payload, validity)}`, see `CoreColumn` in `model/schema/tables.py`.

use dyno_core::ops::{self, Answer, Field, Op};
use dyno_core::{Encoded, encoded};
use dyno_model::Table;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyList};

use crate::errors;

/// Runs an operation while other threads of Python run, and returns its answer.
pub fn run<'py>(py: Python<'py>, op: Op<'_>) -> PyResult<Bound<'py, PyAny>> {
    answer(py, py.detach(|| ops::run(op)).map_err(errors::fault)?)
}

fn answer(py: Python<'_>, answer: Answer) -> PyResult<Bound<'_, PyAny>> {
    match answer {
        Answer::Nothing => Ok(py.None().into_bound(py)),
        Answer::Over(over) => over.into_bound_py_any(py),
        Answer::Progress(counts) => counts.into_bound_py_any(py),
        Answer::Durations(durations) => durations.into_bound_py_any(py),
        Answer::Backends(tasks) => tasks.into_bound_py_any(py),
        Answer::Threads(tids) => tids.into_bound_py_any(py),
        Answer::Shares(shares) => shares.into_py_dict(py)?.into_bound_py_any(py),
        Answer::Trouble(trouble) => trouble.into_bound_py_any(py),
        Answer::Sources(sources) => sources.into_py_dict(py)?.into_bound_py_any(py),
        Answer::Holes(holes) => holes.into_bound_py_any(py),
        Answer::Groups(groups) => groups.into_bound_py_any(py),
        Answer::Task(fields) => {
            let values = PyDict::new(py);
            for (name, field) in fields {
                match field {
                    Field::Number(number) => values.set_item(name, number)?,
                    Field::Text(text) => values.set_item(name, text)?,
                }
            }
            values.into_bound_py_any(py)
        }
        Answer::Behind(value) => value.into_bound_py_any(py),
        Answer::Cached(counts) => counts.into_bound_py_any(py),
        Answer::Tables(tables) => self::tables(py, &tables)?.into_bound_py_any(py),
    }
}

/// `{table: {column: (type, payload, validity)}}`.
fn tables<'py>(py: Python<'py>, tables: &[Table]) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for table in tables {
        let encode = || table.columns.iter().map(|(_, column)| encoded(column)).collect();
        let encoded: Vec<Encoded<'_>> = py.detach(encode); // other threads go on: a call log has millions of rows
        let columns = PyDict::new(py);
        for ((name, _), values) in table.columns.iter().zip(encoded) {
            columns.set_item(name, column(py, values)?)?;
        }
        all.set_item(table.name, columns)?;
    }
    Ok(all)
}

type CoreColumn<'py> = (&'static str, Bound<'py, PyAny>, Option<Bound<'py, PyBytes>>);

fn column<'py>(py: Python<'py>, encoded: Encoded<'_>) -> PyResult<CoreColumn<'py>> {
    let bytes = PyBytes::new(py, &encoded.bytes);
    let payload = match encoded.texts {
        None => bytes.into_any(),
        Some(texts) => (bytes, PyList::new(py, texts)?).into_pyobject(py)?.into_any(),
    };
    let validity = encoded.validity.map(|known| PyBytes::new(py, &known));
    Ok((encoded.kind, payload, validity))
}
