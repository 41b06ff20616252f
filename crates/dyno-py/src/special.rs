//! Distribution functions for Python: of numbers, and of arrays, element by element.

use std::array;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Writes the function of the elements of `inputs` into `out`. All are of one length.
fn fill<const N: usize>(
    py: Python<'_>,
    inputs: [PyBuffer<f64>; N],
    out: &PyBuffer<f64>,
    function: impl Fn([f64; N]) -> f64 + Sync,
) -> PyResult<()> {
    let length = out.item_count();
    let mut values = Vec::with_capacity(N);
    for input in inputs {
        if input.item_count() != length {
            return Err(PyValueError::new_err("arrays of unequal length"));
        }
        values.push(input.to_vec(py)?);
    }
    let element = |at| function(array::from_fn(|n| values[n][at]));
    let answers: Vec<f64> = py.detach(|| (0..length).map(element).collect());
    out.copy_from_slice(py, &answers)
}

#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "from Python")]
fn log_gamma(py: Python<'_>, x: PyBuffer<f64>, out: PyBuffer<f64>) -> PyResult<()> {
    fill(py, [x], &out, |[x]| dyno_stats::log_gamma(x))
}

#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "from Python")]
fn gamma_above(py: Python<'_>, shape: PyBuffer<f64>, x: PyBuffer<f64>, out: PyBuffer<f64>) -> PyResult<()> {
    fill(py, [shape, x], &out, |[shape, x]| {
        dyno_stats::gamma(shape, x).above
    })
}

#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "from Python")]
fn gamma_quantile(
    py: Python<'_>,
    shape: PyBuffer<f64>,
    below: PyBuffer<f64>,
    out: PyBuffer<f64>,
) -> PyResult<()> {
    fill(py, [shape, below], &out, |[shape, below]| {
        dyno_stats::gamma_quantile(shape, below, 1.0 - below)
    })
}

#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "from Python")]
fn beta_below(
    py: Python<'_>,
    a: PyBuffer<f64>,
    b: PyBuffer<f64>,
    x: PyBuffer<f64>,
    out: PyBuffer<f64>,
) -> PyResult<()> {
    fill(py, [a, b, x], &out, |[a, b, x]| {
        dyno_stats::beta(a, b, x, 1.0 - x).below
    })
}

#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "from Python")]
fn students_below(
    py: Python<'_>,
    degrees: PyBuffer<f64>,
    below: PyBuffer<f64>,
    out: PyBuffer<f64>,
) -> PyResult<()> {
    fill(py, [degrees, below], &out, |[degrees, below]| {
        let tail = 2.0 * below.min(1.0 - below);
        dyno_stats::students_quantile(tail, degrees).copysign(below - 0.5)
    })
}

#[pyfunction]
fn students_tail(t: f64, degrees: f64) -> f64 {
    dyno_stats::students_tail(t, degrees)
}

#[pyfunction]
fn students_quantile(tail: f64, degrees: f64) -> f64 {
    dyno_stats::students_quantile(tail, degrees)
}

#[pyfunction]
fn f_above(f: f64, degrees: f64, degrees_below: f64) -> f64 {
    dyno_stats::f_above(f, degrees, degrees_below)
}

#[pyfunction]
fn f_quantile(below: f64, degrees: f64, degrees_below: f64) -> f64 {
    dyno_stats::f_quantile(below, 1.0 - below, degrees, degrees_below)
}

#[pyfunction]
fn chi_square_quantile(above: f64, degrees: f64) -> f64 {
    dyno_stats::chi_square_quantile(above, degrees)
}

#[pyfunction]
fn binomial_below(count: f64, n: f64, p: f64) -> f64 {
    dyno_stats::binomial_below(count, n, p)
}

#[pyfunction]
fn binomial_count(share: f64, n: f64, p: f64) -> f64 {
    dyno_stats::binomial_count(share, n, p)
}

#[pyfunction]
fn noncentral_t_above(t: f64, degrees: f64, centre: f64) -> f64 {
    dyno_stats::noncentral_t_above(t, degrees, centre)
}

#[pyfunction]
fn find_root(function: &Bound<'_, PyAny>, low: f64, high: f64, tolerance: f64) -> PyResult<f64> {
    dyno_stats::root(|x| function.call1((x,))?.extract::<f64>(), low, high, tolerance)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(log_gamma, m)?)?;
    m.add_function(wrap_pyfunction!(gamma_above, m)?)?;
    m.add_function(wrap_pyfunction!(gamma_quantile, m)?)?;
    m.add_function(wrap_pyfunction!(beta_below, m)?)?;
    m.add_function(wrap_pyfunction!(students_below, m)?)?;
    m.add_function(wrap_pyfunction!(students_tail, m)?)?;
    m.add_function(wrap_pyfunction!(students_quantile, m)?)?;
    m.add_function(wrap_pyfunction!(f_above, m)?)?;
    m.add_function(wrap_pyfunction!(f_quantile, m)?)?;
    m.add_function(wrap_pyfunction!(chi_square_quantile, m)?)?;
    m.add_function(wrap_pyfunction!(binomial_below, m)?)?;
    m.add_function(wrap_pyfunction!(binomial_count, m)?)?;
    m.add_function(wrap_pyfunction!(noncentral_t_above, m)?)?;
    m.add_function(wrap_pyfunction!(find_root, m)?)
}
