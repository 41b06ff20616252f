"""The server's state (active, idle, ...) of what its memory told: that has labels, and no states."""

from __future__ import annotations

import polars as pl

from dbdyno.account.ledger.sample_rows import LABEL


def with_states(mine: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    """``mine`` (sums of what was seen) with those read from memory divided among states.

    ``part`` tells what part of a row, and of its weight, each is.
    By what the server's answers (``seen``, via sql) say of this label of this task; else of this label in
    its cell; else the state is NULL. ``answers``: how many such answers (of a cell's, the task's part),
    NULL where the state was seen.
    """
    read = pl.col("via") == "memory"
    memory = mine.filter(read)
    told = mine.filter(~read).with_columns(answers=pl.lit(None, dtype=pl.Float64), part=1.0)
    if memory.is_empty():
        return told
    asked = seen.filter(~read & (pl.col("there") > 0))
    labels = memory.select("task", "cell", *LABEL).unique(maintain_order=True)
    by_task = _given(labels, asked, ["task", *LABEL])
    rest = labels.join(by_task, on=["task", *LABEL], how="anti", nulls_equal=True)
    by_cell = _given(rest, asked, ["cell", *LABEL])
    parts = pl.concat([by_task, by_cell])
    unknown = labels.join(parts, on=["task", *LABEL], how="anti", nulls_equal=True)
    unknown = unknown.select("task", *LABEL, state=pl.lit(None, dtype=pl.String), part=1.0, answers=0.0)
    parts = pl.concat([parts, unknown.select(parts.columns)])
    split = memory.drop("state").join(parts, on=["task", *LABEL], nulls_equal=True, maintain_order="left")
    return pl.concat([told, split.select(told.columns)])


def _given(labels: pl.DataFrame, asked: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """P(state | label) of ``labels`` as far as ``asked`` has them, by ``key``."""
    weights = asked.group_by(*key, "state").agg(w=pl.col("weight").sum(), n=pl.col("there").sum())
    whole = weights.group_by(key).agg(all=pl.col("w").sum(), answers=pl.col("n").sum().cast(pl.Float64))
    shares = weights.join(whole, on=key, nulls_equal=True)
    found = labels.join(shares, on=key, nulls_equal=True, maintain_order="left")
    sharing = pl.col("task").n_unique().over(*key)
    return found.select(
        "task", *LABEL, "state", part=pl.col("w") / pl.col("all"), answers=pl.col("answers") / sharing
    )
