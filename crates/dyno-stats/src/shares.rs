//! Both sides of a distribution function, and its inverse.

/// A distribution function at one point. The smaller of both sides is as exact as the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// Probability of a smaller value.
    pub below: f64,
    /// Probability of a larger value.
    pub above: f64,
    /// Density per unit of the logarithm of the argument, for a beta distribution of that of x / (1 - x).
    pub slope: f64,
}

impl Shares {
    pub(crate) const NONE: Self = Self {
        below: f64::NAN,
        above: f64::NAN,
        slope: f64::NAN,
    };
    pub(crate) const ALL_BELOW: Self = Self {
        below: 1.0,
        above: 0.0,
        slope: 0.0,
    };
    pub(crate) const ALL_ABOVE: Self = Self {
        below: 0.0,
        above: 1.0,
        slope: 0.0,
    };

    pub(crate) fn below(below: f64, slope: f64) -> Self {
        let below = if below > 1.0 { 1.0 } else { below }; // NaN stays
        Self {
            below,
            above: 1.0 - below,
            slope,
        }
    }

    pub(crate) fn above(above: f64, slope: f64) -> Self {
        let above = if above > 1.0 { 1.0 } else { above };
        Self {
            below: 1.0 - above,
            above,
            slope,
        }
    }
}

const MOST_STEPS: usize = 200;
/// Share of the distance over which the density changes that the square of the last step may be: what is left then
/// is below the rounding.
const LAST: f64 = 1e-17;

/// Returns the logarithm of the argument at which `shares` are `below` and `above`, which add up to 1 and lie between
/// 0 and 1. Newton's steps in the logarithm of the smaller share, which is concave, so that they converge from
/// anywhere; with bisection where rounding or underflow would mislead them.
pub(crate) fn quantile(shares: impl Fn(f64) -> Shares, below: f64, above: f64, start: f64) -> f64 {
    let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
    let mut at = start;
    for _ in 0..MOST_STEPS {
        let now = shares(at);
        if now.slope.is_nan() || now.below.is_nan() {
            return f64::NAN;
        }
        let (excess, width) = if below <= above {
            ((now.below / below).ln(), now.below / now.slope)
        } else {
            (-(now.above / above).ln(), now.above / now.slope)
        };
        let step = -excess * width;
        if step * step <= LAST * width {
            return at + step;
        }
        if excess < 0.0 {
            low = at;
        } else {
            high = at;
        }
        let next = at + step;
        at = if next > low && next < high {
            next
        } else if low.is_finite() && high.is_finite() {
            f64::midpoint(low, high)
        } else {
            at + at.abs().max(1.0).copysign(-excess)
        };
    }
    at
}
