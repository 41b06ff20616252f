//! The cdylib `dbdyno._core`: conversions and the error map around `dyno-core`. No logic of its own.

mod apart;
mod commands;
mod convert;
mod errors;
mod load;
mod loader;
mod page_cache;
mod scripts;
mod special;
mod watch;

use pyo3::prelude::*;

/// `CLOCK_MONOTONIC` in nanoseconds: the one clock.
#[pyfunction]
fn now_ns() -> i64 {
    dyno_model::now_ns()
}

#[pymodule]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(now_ns, m)?)?;
    errors::register(m)?;
    commands::register(m)?;
    load::register(m)?;
    loader::register(m)?;
    page_cache::register(m)?;
    scripts::register(m)?;
    special::register(m)?;
    watch::register(m)
}
