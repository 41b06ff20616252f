//! A root of a function between two arguments.

const MOST_STEPS: usize = 200;

/// Returns an argument between `low` and `high` where `f`, which has another sign at each of them, is 0, to
/// `tolerance` or twice the rounding (Brent 1973, Algorithms for Minimization without Derivatives, chapter 4).
///
/// # Errors
///
/// The first error of `f`.
pub fn root<E>(
    mut f: impl FnMut(f64) -> Result<f64, E>,
    low: f64,
    high: f64,
    tolerance: f64,
) -> Result<f64, E> {
    // b is the best argument, a the one before it, and c lies on the other side of the root.
    let (mut a, mut b) = (low, high);
    let (mut at_a, mut at_b) = (f(a)?, f(b)?);
    let (mut c, mut at_c) = (a, at_a);
    let (mut step, mut last_step) = (b - a, b - a);
    for _ in 0..MOST_STEPS {
        if at_c.abs() < at_b.abs() {
            (a, b, c) = (b, c, b);
            (at_a, at_b, at_c) = (at_b, at_c, at_b);
        }
        let nearest = 2.0 * f64::EPSILON * b.abs() + tolerance / 2.0;
        let half = (c - b) / 2.0;
        if half.abs() <= nearest || at_b == 0.0 {
            break;
        }
        let (p, q) = interpolated([a, b, c], [at_a, at_b, at_c]);
        let is_quick = last_step.abs() >= nearest && at_a.abs() > at_b.abs();
        if is_quick && 2.0 * p < (3.0 * half * q - (nearest * q).abs()).min((last_step * q).abs()) {
            (last_step, step) = (step, p / q);
        } else {
            (last_step, step) = (half, half);
        }
        (a, at_a) = (b, at_b);
        b += if step.abs() > nearest {
            step
        } else {
            nearest.copysign(half)
        };
        at_b = f(b)?;
        if (at_b > 0.0) == (at_c > 0.0) {
            (c, at_c) = (a, at_a);
            (step, last_step) = (b - a, b - a);
        }
    }
    Ok(b)
}

/// Returns numerator, at least 0, and denominator of the step from `b` to where the inverse quadratic through the three
/// points, or the line through two, is 0.
fn interpolated([a, b, c]: [f64; 3], [at_a, at_b, at_c]: [f64; 3]) -> (f64, f64) {
    let (half, s) = ((c - b) / 2.0, at_b / at_a);
    #[expect(clippy::float_cmp, reason = "one is the copy of the other")]
    let (p, q) = if a == c {
        (2.0 * half * s, 1.0 - s)
    } else {
        let (q, r) = (at_a / at_c, at_b / at_c);
        (
            s * (2.0 * half * q * (q - r) - (b - a) * (r - 1.0)),
            (q - 1.0) * (r - 1.0) * (s - 1.0),
        )
    };
    if p > 0.0 { (p, -q) } else { (-p, q) }
}
