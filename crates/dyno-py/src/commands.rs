//! `_core.launch_commands`: the main function of the launcher process of the engine `command`.

use pyo3::prelude::*;

use crate::errors;

/// Serves sessions until the other end of `control` is closed. `find` returns, for a pattern and a text, the first
/// group of the last match, or None.
#[pyfunction]
fn launch_commands(py: Python<'_>, control: i32, find: Py<PyAny>) -> PyResult<()> {
    let find = move |pattern: &str, text: &str| {
        Python::attach(|py| find.call1(py, (pattern, text)).ok()?.extract(py).ok()?)
    };
    py.detach(|| dyno_core::launch(control, Box::new(find)))
        .map_err(errors::driver)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(launch_commands, m)?)
}
