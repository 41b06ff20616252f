//! Student's, Fisher's, chi-square and binomial distributions, by the incomplete beta and gamma functions
//! (Abramowitz and Stegun 1964, 26.4 to 26.7).

use crate::beta::{beta, beta_odds, sides};
use crate::gamma::{gamma, gamma_quantile};
use crate::root::root;

/// Returns the probability that Student's t is farther from 0 than `t`. Infinite degrees: the normal distribution.
pub fn students_tail(t: f64, degrees: f64) -> f64 {
    if degrees.is_infinite() && degrees > 0.0 {
        return gamma(0.5, t * t / 2.0).above;
    }
    let root = t / degrees.sqrt();
    let (x, y) = sides(root * root);
    beta(0.5, degrees / 2.0, x, y).above
}

/// Returns the t that is exceeded in absolute value with probability `tail`. Infinite degrees: the normal
/// distribution.
pub fn students_quantile(tail: f64, degrees: f64) -> f64 {
    if degrees.is_infinite() && degrees > 0.0 {
        return (2.0 * gamma_quantile(0.5, 1.0 - tail, tail)).sqrt();
    }
    f_quantile(1.0 - tail, tail, 1.0, degrees).sqrt()
}

/// Returns the probability that a ratio of two mean squares exceeds `f`.
pub fn f_above(f: f64, degrees: f64, degrees_below: f64) -> f64 {
    let (x, y) = sides(f.max(0.0) * (degrees / degrees_below));
    if f.is_nan() {
        f
    } else {
        beta(degrees / 2.0, degrees_below / 2.0, x, y).above
    }
}

/// Returns the ratio of two mean squares with these shares; `below` and `above` add up to 1.
pub fn f_quantile(below: f64, above: f64, degrees: f64, degrees_below: f64) -> f64 {
    degrees_below / degrees * beta_odds(degrees / 2.0, degrees_below / 2.0, below, above)
}

/// Returns the chi-square that is exceeded with probability `above`.
pub fn chi_square_quantile(above: f64, degrees: f64) -> f64 {
    2.0 * gamma_quantile(degrees / 2.0, 1.0 - above, above)
}

/// Returns the probability of at most `count` successes in `n` trials with `p` each. Between whole numbers it is
/// continuous.
pub fn binomial_below(count: f64, n: f64, p: f64) -> f64 {
    if count >= n {
        1.0
    } else if count < 0.0 {
        0.0
    } else {
        beta(count + 1.0, n - count, p, 1.0 - p).above
    }
}

/// Returns the number of successes in `n` trials that is not exceeded with probability `share`: the inverse of
/// [`binomial_below`], with a fraction; 0 where already no success is more probable than `share`.
pub fn binomial_count(share: f64, n: f64, p: f64) -> f64 {
    if !(0.0..=1.0).contains(&share) || !(0.0..=1.0).contains(&p) || !n.is_finite() || n < 0.0 {
        return f64::NAN;
    }
    if share >= 1.0 {
        return n;
    }
    let short = |count: f64| binomial_below(count, n, p) - share;
    if share == 0.0 || n == 0.0 || short(0.0) >= 0.0 {
        return 0.0;
    }
    let (mean, mut reach) = (n * p, 4.0 * (n * p * (1.0 - p)).sqrt().max(1.0));
    let around = |reach: f64| ((mean - reach).max(0.0), (mean + reach).min(n));
    while short(around(reach).0) > 0.0 || short(around(reach).1) < 0.0 {
        reach *= 2.0;
    }
    let (low, high) = around(reach);
    let Ok(count) = root(|count| Ok::<f64, ()>(short(count)), low, high, 0.0) else {
        return f64::NAN;
    };
    count
}
