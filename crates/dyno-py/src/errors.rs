//! The error map: the core's errors to Python, in one place.

use dyno_core::ops::Fault;
use dyno_drive::Failure;
use dyno_model::Error;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(_core, CoreError, PyException);
create_exception!(_core, DriverError, CoreError);
create_exception!(_core, ObserverError, CoreError);

/// As `DriverError` or `ObserverError`, with (kind, message, code, session), or as `OSError`.
pub fn fault(fault: Fault) -> PyErr {
    match fault {
        Fault::Driver(_) => DriverError::new_err(fault.arguments()),
        Fault::Observer(_) => ObserverError::new_err(fault.arguments()),
        Fault::Os(error) => error.into(),
    }
}

/// An error of a load without a session.
pub fn driver(error: Error) -> PyErr {
    fault(Fault::Driver(Failure::from(error)))
}

/// An error of a watch.
pub fn observer(error: Error) -> PyErr {
    fault(Fault::Observer(error))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add("CoreError", py.get_type::<CoreError>())?;
    m.add("DriverError", py.get_type::<DriverError>())?;
    m.add("ObserverError", py.get_type::<ObserverError>())
}
