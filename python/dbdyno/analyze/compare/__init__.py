"""Comparison of variants, runs and samples: effects with intervals, verdicts, and the accounts behind. Pure."""

from dbdyno.analyze.compare.tight import LEAST_REPEATS, RULE, tight_enough

__all__ = ["LEAST_REPEATS", "RULE", "tight_enough"]
