"""Comparison of variants, runs and samples: effects with intervals, verdicts, accounts behind them. Pure."""

from dbdyno.analyze.compare.numbers import compare_samples
from dbdyno.analyze.compare.options import Options
from dbdyno.analyze.compare.runs import compare_runs
from dbdyno.analyze.compare.tight import rule, tight_enough
from dbdyno.analyze.compare.variants import compare_variants
from dbdyno.analyze.compare.verdict import MARGIN

__all__ = [
    "MARGIN",
    "Options",
    "compare_runs",
    "compare_samples",
    "compare_variants",
    "rule",
    "tight_enough",
]
