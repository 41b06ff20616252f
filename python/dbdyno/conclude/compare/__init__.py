"""Comparison of variants, runs and samples: effects with intervals, verdicts, accounts behind them. Pure."""

from typing import TYPE_CHECKING

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from dbdyno.conclude.compare.comparisons import compare_runs, compare_samples, compare_variants
    from dbdyno.conclude.compare.stopping_rule import rule, tight_enough
    from dbdyno.conclude.compare.table import MARGIN, Options

__all__ = [
    "MARGIN",
    "Options",
    "compare_runs",
    "compare_samples",
    "compare_variants",
    "rule",
    "tight_enough",
]

lazy(__name__)
