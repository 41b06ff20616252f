//! The incomplete beta function.

use std::f64::consts::TAU;

use crate::gamma::{EPSILON, MOST_TERMS, deviance, ends, log_gamma_rise, stirling_error};
use crate::shares::{Shares, quantile};

/// Returns the shares of the beta distribution: the regularised incomplete beta function and its complement. `y` is
/// 1 - x, given by itself as it may be too small to be the rest of `x`. A parameter of 0 is the point 0 or 1.
pub fn beta(a: f64, b: f64, x: f64, y: f64) -> Shares {
    if [a, b, x, y].iter().any(|v| v.is_nan() || *v < 0.0) || a.max(b).is_infinite() || a.max(b) == 0.0 {
        return Shares::NONE;
    }
    if x == 0.0 || y == 0.0 || a == 0.0 || b == 0.0 {
        return if y == 0.0 || (a == 0.0 && x > 0.0) {
            Shares::ALL_BELOW
        } else {
            Shares::ALL_ABOVE
        };
    }
    // a - (a + b) x, by that of x and y which is more exact, with the rounding of sum and product.
    let sum = a + b;
    let lost = if a > b { b - (sum - a) } else { a - (sum - b) };
    let away = if x <= y {
        let product = sum * x;
        a - product - sum.mul_add(x, -product) - lost * x
    } else {
        let product = sum * y;
        product - b + sum.mul_add(y, -product) + lost * y
    };
    // x^a y^b / B(a, b) (Loader 2000), as for the gamma distribution.
    let exponent = stirling_error(sum)
        - stirling_error(a)
        - stirling_error(b)
        - deviance(a, sum * x, away)
        - deviance(b, sum * y, -away);
    let slope = (a / sum * b / TAU).sqrt() * exponent.exp();
    if is_near_its_end(a, b, x) {
        let (below, above) = end_series(a, b, x);
        Shares { below, above, slope }
    } else if is_near_its_end(b, a, y) {
        let (above, below) = end_series(b, a, y);
        Shares { below, above, slope }
    } else if away >= 0.0 {
        Shares::below(slope / fraction(a, b, x, y, away), slope)
    } else {
        Shares::above(slope / fraction(b, a, y, x, -away), slope)
    }
}

/// Returns whether the continued fraction, whose terms grow in number as the root of 1 / x, takes more of them than the
/// series about 0.
fn is_near_its_end(a: f64, b: f64, x: f64) -> bool {
    a < 1.0 && x < 0.1 && b * x < 0.7
}

/// Returns x^a / (a B(a, b)) (1 + sum of a (1 - b) ... (n - b) x^n / ((a + n) n!)), from DLMF 8.17.7 and 15.2.1, and
/// what is left to 1, without the cancellation for a small `a`.
fn end_series(a: f64, b: f64, x: f64) -> (f64, f64) {
    let (mut power, mut sum) = (1.0, 0.0);
    for n in 1..MOST_TERMS {
        let n = f64::from(n);
        power *= (n - b) / n * x;
        let term = a * power / (a + n);
        sum += term;
        if term.abs() <= EPSILON * f64::abs(sum) {
            break;
        }
    }
    let log = a * x.ln() + log_gamma_rise(b, a) - log_gamma_rise(1.0, a) + sum.ln_1p();
    (log.exp(), -log.exp_m1())
}

/// Returns the continued fraction of DiDonato and Morris (1992, Algorithm 708, ACM Transactions on Mathematical
/// Software 18, 360-373, equation 9), whose terms are positive up to the b-th where x is not above the mean. By the
/// method of Lentz as modified by Thompson and Barnett (1986).
fn fraction(a: f64, b: f64, x: f64, y: f64, away: f64) -> f64 {
    let mut value = a / (a + 1.0) * (away + 1.0);
    let (mut c, mut d) = (value, 0.0);
    for n in 1..MOST_TERMS {
        let n = f64::from(n);
        let place = a + 2.0 * n - 1.0;
        let reach = n * (b - n) * x / place;
        let part = (a + n - 1.0) / place * (a + b + n - 1.0) * x * reach;
        let whole = n + reach + (a + n) / (place + 2.0) * (away + 1.0 + n * (1.0 + y));
        d = 1.0 / (whole + part * d);
        c = whole + part / c;
        value *= c * d;
        if (c * d - 1.0).abs() <= 2.0 * EPSILON {
            return value;
        }
    }
    f64::NAN
}

/// Returns x / (1 - x) at these shares of the beta distribution; `below` and `above` add up to 1.
pub(crate) fn beta_odds(a: f64, b: f64, below: f64, above: f64) -> f64 {
    let known = a > 0.0 && b > 0.0 && a.is_finite() && b.is_finite();
    match ends(below, above) {
        Some(0.0) if known => 0.0,
        Some(1.0) if known => f64::INFINITY,
        None if known => {
            let shares = |log: f64| beta(a, b, 1.0 / (1.0 + (-log).exp()), 1.0 / (1.0 + log.exp()));
            quantile(shares, below, above, (a / b).ln()).exp()
        }
        _ => f64::NAN,
    }
}

/// Returns x and 1 - x for x / (1 - x).
pub(crate) fn sides(odds: f64) -> (f64, f64) {
    let inverse = 1.0 / odds;
    if odds > 1.0 {
        (1.0 / (1.0 + inverse), inverse / (1.0 + inverse))
    } else {
        (odds / (1.0 + odds), 1.0 / (1.0 + odds))
    }
}
