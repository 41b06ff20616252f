"""What a ladder needs of a measurement that has just ended: its rates, and a row for the screen.

A small part of what is derived when all is over, so that the next measurement need not wait. How sessions
slept is the plain share of the samples: without intervals, and without what a connection pooler shares out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from dbdyno.account import window
from dbdyno.account.ledger import accounts
from dbdyno.account.ledger.sample_rows import detail
from dbdyno.account.rungs import rungs
from dbdyno.account.window.attribution import pooled
from dbdyno.model.plan import Plan
from dbdyno.model.raw import RawCell
from dbdyno.model.session_time import judged
from dbdyno.model.tables import rows
from dbdyno.model.wait_families import AT_CLIENT, WaitFamilies, families_of

Tables = Mapping[str, pl.DataFrame]


def just_measured(cell: RawCell, plan: Plan) -> dict[str, pl.DataFrame]:
    """Tables ``windows``, ``rates``, ``rungs`` and ``histogram`` of one cell."""
    tables = window.cut_without_samples([cell]) if pooled(cell) else window.cut_rates([cell])
    tables["cut_samples"] = window.cut_samples([cell])
    tables["ledger"] = accounts(tables)["ledger"] if pooled(cell) else _ledger(tables)
    tables["rates"] = judged(tables, plan)
    tables["rungs"] = rungs(tables)
    return {n: tables[n] for n in ("windows", "rates", "rungs")} | {"histogram": tables["cell_histogram"]}


def _ledger(cut: Tables) -> pl.DataFrame:
    """Run, run queue and sleep of all sessions together, as far as they are known."""
    tasks = cut["cut_tasks"].filter((pl.col("role") == "session") & (pl.col("wall_ns") > 0))
    wall = float((tasks["wall_ns"] / tasks["over_ns"]).sum())
    run, runq = (_known(tasks[f"{n}_ns"] / tasks["over_ns"]) for n in ("run", "runq"))
    slept = _named(_slept(cut), families_of(cut))
    share = float(slept["share"].sum())
    asleep = wall * share
    if run is not None and runq is not None:
        runq = min(runq, wall - run) if wall > run else 0.0  # reads may be stale by a tick
        asleep = wall - run - runq
    made = [_row("run", None, run), _row("runq", None, runq)]
    made += [_row(account, name, asleep * part / share) for account, name, part in slept.iter_rows()]
    none = 0.0 if cut["cut_samples"].height else None
    made.append(_row("unaccounted", None, none if share or none is None else asleep))  # seen by no sample
    made += [_row(n, None, none) for n in ("sleep", "client") if n not in set(slept["account"])]
    head = cut["windows"].select("cell", "workload", "variant", "sessions", "repeat").row(0, named=True)
    return rows("ledger", [head | row for row in made])


def _slept(cut: Tables) -> pl.DataFrame:
    """Label -> ``share`` of the sessions' samples that were asleep under it."""
    spans = cut["cut_sampler"].select("via", "sample", weight=pl.col("high_ns") - pl.col("low_ns"))
    seen = cut["cut_samples"].filter(pl.col("role") == "session")
    seen = seen.filter(pl.col("via") == seen["via"].min()).join(spans, on=["via", "sample"])
    state = pl.col("task_state")
    asleep = pl.when(state.is_null()).then(pl.col("wait_class").is_not_null()).otherwise(state != "R")
    whole = float(seen["weight"].sum()) or 1.0
    slept = seen.filter(asleep).group_by("wait_class", "wait_event", maintain_order=True)
    return slept.agg(share=pl.col("weight").sum() / whole).filter(pl.col("share") > 0)


def _named(slept: pl.DataFrame, families: WaitFamilies) -> pl.DataFrame:
    client = families.among(*AT_CLIENT)
    account = pl.when(client).then(pl.lit("client")).otherwise(pl.lit("sleep"))
    return slept.select(account.alias("account"), pl.when(~client).then(detail()).alias("detail"), "share")


def _known(values: pl.Series) -> float | None:
    return None if values.is_empty() or values.null_count() else float(values.sum())


def _row(account: str, name: str | None, aas: float | None) -> dict[str, Any]:
    known = {"status": "ok" if aas is not None else "off", "source": "os tasks, activity samples"}
    return {"scope": "rung", "who": "rung", "account": account, "detail": name, "aas": aas, **known}
