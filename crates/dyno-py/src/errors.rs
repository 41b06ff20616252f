//! The error map: `dyno_model::Error` to Python, in one place.

use dyno_model::Error;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(_core, CoreError, PyException);
create_exception!(_core, DriverError, CoreError);
create_exception!(_core, ObserverError, CoreError);

/// As `DriverError(kind, message, code, session)`.
pub fn driver(error: &Error, session: Option<usize>) -> PyErr {
    DriverError::new_err((
        error.kind(),
        error.to_string(),
        error.code().map(str::to_owned),
        session,
    ))
}

/// As `ObserverError(kind, message, code, None)`.
pub fn observer(error: &Error) -> PyErr {
    ObserverError::new_err((
        error.kind(),
        error.to_string(),
        error.code().map(str::to_owned),
        None::<usize>,
    ))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add("CoreError", py.get_type::<CoreError>())?;
    m.add("DriverError", py.get_type::<DriverError>())?;
    m.add("ObserverError", py.get_type::<ObserverError>())
}
