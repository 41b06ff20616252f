"""Distribution functions of numbers, and roots, as the core computes them (``crates/dyno-stats``).

Functions without an effect, so pure rooms may call them. Arguments outside of a function's domain, and NaN,
give NaN. Imported where they are called, since most commands do not need the core.
"""

from dbdyno._core import (
    binomial_below,
    binomial_count,
    chi_square_quantile,
    f_above,
    f_quantile,
    find_root,
    noncentral_t_above,
    students_quantile,
    students_tail,
)

__all__ = [
    "binomial_below",
    "binomial_count",
    "chi_square_quantile",
    "f_above",
    "f_quantile",
    "find_root",
    "noncentral_t_above",
    "students_quantile",
    "students_tail",
]
