//! `_core.page_cache`.

use std::num::NonZero;
use std::path::PathBuf;

use dyno_observe::page_cache::{self, Wanted};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

type Counts = (Option<u64>, Option<u64>, Option<u64>, String);

/// See `_core.pyi`.
#[pyfunction]
#[pyo3(name = "page_cache")]
#[allow(clippy::needless_pass_by_value)] // pyo3 hands them over by value
fn of_files(
    py: Python<'_>,
    files: Vec<(PathBuf, PyBackedBytes, u64)>,
    block_bytes: NonZero<u64>,
    budget_ns: i64,
) -> Vec<Counts> {
    let found = py.detach(|| {
        let wanted = files.iter().map(|(path, blocks, first)| Wanted {
            path,
            blocks,
            first: *first,
        });
        page_cache::page_cache(&wanted.collect::<Vec<_>>(), block_bytes, budget_ns)
    });
    let counts = |c: page_cache::Cached| {
        let status = c.status.as_str().to_owned();
        (c.size_bytes, c.cached_bytes, c.within_bytes, status)
    };
    found.into_iter().map(counts).collect()
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(of_files, m)?)
}
