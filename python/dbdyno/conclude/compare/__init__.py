"""Comparison of variants, runs and samples: effects with intervals, verdicts, and the accounts behind them.
Pure."""

from typing import TYPE_CHECKING

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from dbdyno.conclude.compare.comparisons import compare_runs, compare_variants
    from dbdyno.conclude.compare.samples import compare_samples
    from dbdyno.conclude.compare.stopping_rule import rule, tight_enough
    from dbdyno.conclude.compare.table import MARGIN, Options, costs_among

lazy(__name__)
