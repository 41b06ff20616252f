//! The incomplete gamma function, and what it shares with the incomplete beta function.

use std::f64::consts::TAU;

use crate::shares::{Shares, quantile};

pub(crate) const EPSILON: f64 = f64::EPSILON / 2.0;
/// Largest number of terms. A series about the mean takes about eight times the root of the shape.
pub(crate) const MOST_TERMS: u32 = 10_000_000;
const HALF_LOG_TAU: f64 = 0.918_938_533_204_672_8;
const STIRLING_FROM: f64 = 16.0;
/// Powers of 1 / x in Stirling's formula, and their shares (DLMF 5.11.1).
const STIRLING: [(f64, f64); 5] = [
    (1.0, 1.0 / 12.0),
    (3.0, -1.0 / 360.0),
    (5.0, 1.0 / 1260.0),
    (7.0, -1.0 / 1680.0),
    (9.0, 1.0 / 1188.0),
];
/// Shape and argument below which the upper share is not the rest of the lower one.
const SMALL_SHAPE: f64 = 0.5;

/// Returns the logarithm of the absolute value of the gamma function.
pub fn log_gamma(x: f64) -> f64 {
    libm::lgamma(x)
}

/// Returns what Stirling's formula leaves of the logarithm of x!. The formula is its first five terms (DLMF 5.11.1),
/// of which the sixth is below the rounding.
pub(crate) fn stirling_error(x: f64) -> f64 {
    if x < STIRLING_FROM {
        return libm::lgamma(x + 1.0) - (x + 0.5) * x.ln() + x - HALF_LOG_TAU;
    }
    let square = x * x;
    STIRLING
        .iter()
        .rev()
        .fold(0.0, |sum, (_, share)| sum / square + share)
        / x
}

/// Returns the logarithm of Gamma(x + step) / Gamma(x), to its own rounding also for a step that is lost in the sum.
/// By Stirling's formula, where `x` is large enough for it after some steps of 1 (DLMF 5.5.1, 5.11.1).
pub(crate) fn log_gamma_rise(x: f64, step: f64) -> f64 {
    let (mut x, mut passed) = (x, 0.0);
    while x < STIRLING_FROM {
        passed += (step / x).ln_1p();
        x += 1.0;
    }
    let log = (step / x).ln_1p();
    let square = x * x;
    let error: f64 = STIRLING.iter().rev().fold(0.0, |sum, (power, share)| {
        sum / square + share * (-power * log).exp_m1()
    });
    (x + step - 0.5) * log + step * x.ln() - step + error / x - passed
}

/// Returns x ln (x / mean) + mean - x. `away` is x - mean, given by itself since the difference of rounded numbers is
/// not exact (Loader 2000, Fast and Accurate Computation of Binomial Probabilities, section 4).
pub(crate) fn deviance(x: f64, mean: f64, away: f64) -> f64 {
    if x == 0.0 {
        return mean;
    }
    if away.abs() >= 0.1 * (x + mean) {
        return x * (x / mean).ln() - away;
    }
    let ratio = away / (x + mean);
    let square = ratio * ratio;
    let (mut sum, mut power, mut odd) = (away * ratio, 2.0 * x * ratio, 1.0);
    loop {
        power *= square;
        odd += 2.0;
        let next = sum + power / odd;
        if (next - sum).abs() <= EPSILON * sum.abs() || next.is_nan() {
            return next;
        }
        sum = next;
    }
}

/// Returns the shares of the gamma distribution of this shape and scale 1: the regularised incomplete gamma functions
/// P and Q. A shape of 0 is the point 0.
pub fn gamma(shape: f64, x: f64) -> Shares {
    if shape.is_nan() || x.is_nan() || shape < 0.0 || x < 0.0 || shape.is_infinite() {
        return Shares::NONE;
    }
    if shape == 0.0 || x.is_infinite() {
        return Shares::ALL_BELOW;
    }
    if x == 0.0 {
        return Shares::ALL_ABOVE;
    }
    // x^shape e^-x / Gamma(shape), by Stirling's formula, in which no large numbers cancel each other.
    let slope = (shape / TAU).sqrt() * (-stirling_error(shape) - deviance(shape, x, shape - x)).exp();
    if x >= shape + 1.0 {
        Shares::above(slope * above_fraction(shape, x), slope)
    } else if shape < SMALL_SHAPE && x < 1.0 {
        Shares::above(above_of_small(shape, x), slope)
    } else {
        Shares::below(slope * below_series(shape, x), slope)
    }
}

/// DLMF 8.7.1.
fn below_series(shape: f64, x: f64) -> f64 {
    let (mut term, mut sum) = (1.0 / shape, 1.0 / shape);
    for n in 1..MOST_TERMS {
        term *= x / (shape + f64::from(n));
        sum += term;
        if term <= EPSILON * sum {
            return sum;
        }
    }
    f64::NAN
}

/// DLMF 8.9.2, contracted, by the method of Lentz as modified by Thompson and Barnett (1986).
fn above_fraction(shape: f64, x: f64) -> f64 {
    let mut whole = x + 1.0 - shape;
    let (mut c, mut d) = (f64::INFINITY, 1.0 / whole);
    let mut value = d;
    for n in 1..MOST_TERMS {
        let n = f64::from(n);
        let part = -n * (n - shape);
        whole += 2.0;
        d = 1.0 / (part * d + whole);
        c = whole + part / c;
        value *= c * d;
        if (c * d - 1.0).abs() <= 2.0 * EPSILON {
            return value;
        }
    }
    f64::NAN
}

/// Returns 1 - x^shape / Gamma(1 + shape) (1 + sum of shape (-x)^n / ((shape + n) n!)), from DLMF 8.7.3, without the
/// cancellation for small shapes.
fn above_of_small(shape: f64, x: f64) -> f64 {
    let log = shape * x.ln() - log_gamma_rise(1.0, shape);
    let (mut power, mut sum) = (1.0, 0.0);
    for n in 1..MOST_TERMS {
        let n = f64::from(n);
        power *= -x / n;
        let term = shape * power / (shape + n);
        sum += term;
        if term.abs() <= EPSILON * sum.abs() {
            break;
        }
    }
    -log.exp_m1() - log.exp() * sum
}

/// Returns the argument with these shares of the gamma distribution of scale 1; `below` and `above` add up to 1.
pub fn gamma_quantile(shape: f64, below: f64, above: f64) -> f64 {
    match ends(below, above) {
        Some(0.0) if shape > 0.0 => 0.0,
        Some(1.0) if shape > 0.0 => f64::INFINITY,
        None if shape > 0.0 && shape.is_finite() && below.is_finite() => {
            quantile(|log| gamma(shape, log.exp()), below, above, shape.ln()).exp()
        }
        _ => f64::NAN,
    }
}

/// Returns the share below if the quantile is an end of the range: 0 or 1; NaN outside of it, None within.
pub(crate) fn ends(below: f64, above: f64) -> Option<f64> {
    if below > 0.0 && above > 0.0 {
        None
    } else if below == 0.0 || above == 0.0 {
        Some(below)
    } else {
        Some(f64::NAN)
    }
}
