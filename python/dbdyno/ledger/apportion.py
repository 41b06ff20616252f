"""From the joint table of samples to seconds: here the raking will be.

In this first form a wait's sleep is its share of samples whose task was asleep, times W. The next one rakes
the joint table to the exact margins (run, run queue, off) by iterative proportional fitting, and splits
each wait event into sleep and run queue; it replaces this one function.
"""

from __future__ import annotations

import polars as pl


def apportion(joint: pl.DataFrame) -> pl.DataFrame:
    """``joint`` (per task, kind and detail, with its ``share``) with ``ns``, that share of the task's W."""
    return joint.with_columns(ns=pl.col("share") * pl.col("wall_ns"))
