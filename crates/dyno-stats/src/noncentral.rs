//! The power of a t test.

use crate::beta::{beta, sides};
use crate::gamma::{EPSILON, deviance, gamma, stirling_error};

/// The sum has a few times `centre` terms, each of which takes time with the root of `degrees`.
const LARGE_CENTRE: f64 = 1e3;
const MOST_DEGREES: f64 = 1e9;

/// Returns the probability that a t with this noncentrality, `centre`, exceeds `t`. Both are at least 0. NaN also
/// above 1e9 degrees of freedom. Above a `centre` of 1,000 the normal part beside it is left out: t exceeds where
/// chi / sqrt(degrees) is below centre / t, with an absolute error of about 1 / centre.
///
/// It is the sum of incomplete beta functions with Poisson's weights (Johnson, Kotz, Balakrishnan 1995, Continuous
/// Univariate Distributions 2, 31.4; Lenth 1989, Algorithm AS 243, Applied Statistics 38, 185-189), here of the upper
/// tail, in which all terms are positive, and from the largest weight on (Benton, Krishnamoorthy 2003, Computational
/// Statistics and Data Analysis 43, 249-267).
pub fn noncentral_t_above(t: f64, degrees: f64, centre: f64) -> f64 {
    if !(t >= 0.0 && degrees > 0.0 && degrees <= MOST_DEGREES && centre >= 0.0 && centre.is_finite()) {
        return f64::NAN;
    }
    if centre > LARGE_CENTRE {
        let ratio = centre / t;
        return if t == 0.0 {
            1.0
        } else {
            gamma(degrees / 2.0, ratio * ratio * degrees / 2.0).below
        };
    }
    let root = t / degrees.sqrt();
    let (x, y) = sides(root * root);
    let mean = centre * centre / 2.0;
    let weight = |half: f64| poisson(half / 2.0, mean) / 2.0;
    let above = |half: f64| beta(f64::midpoint(half, 1.0), degrees / 2.0, x, y).above;
    let mode = (2.0 * mean).floor();
    let mut sum = 0.0;
    let mut half = mode;
    loop {
        let most = weight(half); // the share above is at most 1, and grows
        sum += most * above(half);
        half += 1.0;
        if most <= EPSILON * sum || most == 0.0 {
            break;
        }
    }
    half = mode - 1.0;
    while half >= 0.0 {
        let term = weight(half) * above(half);
        sum += term;
        if term <= EPSILON * sum {
            break;
        }
        half -= 1.0;
    }
    sum.min(1.0)
}

/// Returns Poisson's probability of a number that need not be whole (Loader 2000).
fn poisson(number: f64, mean: f64) -> f64 {
    if number == 0.0 || mean == 0.0 {
        return if number == 0.0 { (-mean).exp() } else { 0.0 };
    }
    (-stirling_error(number) - deviance(number, mean, number - mean)).exp()
        / (std::f64::consts::TAU * number).sqrt()
}
