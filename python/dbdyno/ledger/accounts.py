"""The table ``ledger``: exact and sampled accounts of sessions and rungs, helpers, those beside, memos."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.ledger.apportion import apportion
from dbdyno.ledger.cpu import cpu_accounts
from dbdyno.ledger.joint import Tables, observations, shares
from dbdyno.ledger.sampled import Sampled
from dbdyno.ledger.throttle import throttle_bracket
from dbdyno.model.column import CELL
from dbdyno.model.tables import conform, empty

_HALVES = ("run.user", "run.system")  # they lie inside run


def ledger(cut: Tables) -> pl.DataFrame:
    """Table ``ledger`` of all cells in ``cut`` (the tables of ``window.cut``)."""
    tasks = cut["cut_tasks"]
    own = tasks.filter(pl.col("role") == "session")
    seen = observations(cut)
    joint = apportion(shares(cut, seen))
    who = pl.col("role").str.strip_prefix("helper:")
    parts = [
        *_sessions(Sampled(cut, own, joint, ["cell", "session"]), own, "session"),
        *_sessions(Sampled(cut, own, joint, ["cell"], seen), own, "rung"),
        _scoped(throttle_bracket(cut), "rung", pl.lit("rung")),
        _scoped(_cpu(tasks, pl.col("role").str.starts_with("helper:")), "helper", who),
        _scoped(_cpu(tasks, pl.col("role").is_in(["other", "driver", "dbdyno"])), "beside", who),
    ]
    found = [p for p in parts if p.height]
    if not found:
        return empty("ledger")
    keys = cut["windows"].select(c.name for c in CELL)
    return conform(
        "ledger", keys.join(pl.concat(found, how="diagonal_relaxed"), on="cell", maintain_order="right")
    )


def _sessions(sampled: Sampled, own: pl.DataFrame, scope: str) -> Sequence[pl.DataFrame]:
    """All accounts of sessions or rungs, in the order of reading, then their memos."""
    cpu = cpu_accounts(own, sampled.by)
    waits = sampled.accounts()
    left = sampled.unaccounted(pl.concat([cpu.filter(~pl.col("account").is_in(_HALVES)), waits]))
    name = pl.lit(scope)
    return [*(_scoped(f, scope, name) for f in (cpu, waits, left)), _scoped(sampled.memos(), "memo", name)]


def _cpu(tasks: pl.DataFrame, which: pl.Expr) -> pl.DataFrame:
    return cpu_accounts(tasks.filter(which), ["cell", "role"], split=False)


def _scoped(frame: pl.DataFrame, scope: str, who: pl.Expr) -> pl.DataFrame:
    if frame.is_empty():
        return frame
    return frame.with_columns(scope=pl.lit(scope), who=who).drop("role", strict=False)
