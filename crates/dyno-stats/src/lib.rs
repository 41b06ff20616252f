//! Distribution functions and their inverses, to a relative error of 1e-12, also in the tails; and roots.
//! `tests/unit/stats/test_special.py` compares them with scipy and with 50 digits of mpmath.
//!
//! Arguments outside of a function's domain, and NaN, give NaN.

#![expect(clippy::many_single_char_names, reason = "as the formulas name them")]

mod beta;
mod gamma;
mod laws;
mod noncentral;
mod root;
mod shares;

pub use beta::beta;
pub use gamma::{gamma, gamma_quantile, log_gamma};
pub use laws::{
    binomial_below, binomial_count, chi_square_quantile, f_above, f_quantile, students_quantile,
    students_tail,
};
pub use noncentral::noncentral_t_above;
pub use root::root;
pub use shares::Shares;
