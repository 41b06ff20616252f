//! `_core.page_cache`.

use std::num::NonZero;
use std::path::PathBuf;

use dyno_core::ops::Op;
use dyno_observe::page_cache::Wanted;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::convert;

/// See `_core.pyi`.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // pyo3 hands them over by value
fn page_cache(
    py: Python<'_>,
    files: Vec<(PathBuf, PyBackedBytes, u64)>,
    block_bytes: NonZero<u64>,
    budget_ns: i64,
) -> PyResult<Bound<'_, PyAny>> {
    let wanted = files.iter().map(|(path, blocks, first)| Wanted {
        path,
        blocks,
        first: *first,
    });
    let op = Op::PageCache {
        files: &wanted.collect::<Vec<_>>(),
        block_bytes,
        budget_ns,
    };
    convert::run(py, op)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(page_cache, m)?)
}
