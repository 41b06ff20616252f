"""The stopping rule of ``--until``: a fixed-width sequential procedure (Chow and Robbins 1965)."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from dbdyno.model.comparison import Tightness
from dbdyno.model.plan import Plan

LEAST_REPEATS = 4
"""Before these many no interval is believed to be tight: the variance of two or three values says little."""

RULE = (
    "The run stops after the first repeat, from the {least}th on, when every 95 % interval is within "
    "±{target} (Chow and Robbins 1965: with variants the ratio to the baseline, else the mean rate). Because it "
    "stops when the spread happens to look small, its intervals hold a little less often than 95 %."
)


def tight_enough(tables: Mapping[str, pl.DataFrame], plan: Plan, target: float) -> Tightness:
    """Whether every interval's half-width is at most ``target`` (0.02 is 2 %). ``tables``: ``windows``, ``rates``."""
    raise NotImplementedError
