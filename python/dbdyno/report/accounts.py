"""The ledger made ready for showing: its leaves (nothing counted twice), in one fixed order."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from dbdyno.model.results import Results
from dbdyno.report.figures import Series, of_series

BRACKET = "runq.throttled_bracket"  # lies inside runq: shown beside it, never added (DESIGN, section 3)
OTHER_SLEEP = "other waits"
_NAMES = {
    "run": "CPU",
    "run.user": "CPU, user",
    "run.system": "CPU, kernel",
    "runq": "CPU WAIT (run queue)",
    "client": "client",
    "unaccounted": "unaccounted",
}
_ORDER = ("run", "run.user", "run.system", "runq", "sleep", "client", "unaccounted")


class Account(NamedTuple):
    """A segment of the stack."""

    key: str  # "run.user", "sleep:LWLock/BufferMapping"
    label: str
    family: str  # what its colour stands for: an account or, for a sleep, its wait class
    shade: int  # 0 strongest; waits of one class differ by it


def leaves(ledger: pl.DataFrame, scope: str) -> pl.DataFrame:
    """Rows of ``scope`` that add up to the whole: a total is dropped where all its parts are known.

    ``run`` against ``run.user`` and ``run.system``; ``sleep`` without detail against its events. Where a
    part is unknown, the parts are dropped and the total stays.
    """
    rows = ledger.filter((pl.col("scope") == scope) & (pl.col("account") != BRACKET))
    group = ["cell", "session", "who"]
    split = pl.col("account").is_in(["run.user", "run.system"])
    halves = (split & pl.col("aas").is_not_null()).sum().over(group)
    total = (pl.col("account") == "run").any().over(group)
    event = (pl.col("account") == "sleep") & pl.col("detail").is_not_null()
    plain = (pl.col("account") == "sleep") & pl.col("detail").is_null()
    drop = (
        ((halves == 2) & (pl.col("account") == "run"))
        | ((halves < 2) & total & split)
        | (plain & event.any().over(group))
    )
    return rows.filter(~drop)


def rung_accounts(results: Results, series: Series) -> pl.DataFrame:
    """Per rung and account the mean over repeats: sessions, key, account, detail, aas (NULL: unknown)."""
    rows = leaves(of_series(results.tables["ledger"], series), "rung")
    key = pl.when(pl.col("account") == "sleep").then(
        pl.concat_str(pl.lit("sleep:"), pl.col("detail").fill_null("all waits"))
    )
    repeats = pl.col("cell").n_unique().over("sessions").alias("repeats")
    # A repeat without the row did not see that wait: nothing there. One with NULL does not know: left out.
    asked = pl.col("repeats").first() - pl.col("aas").null_count()
    mean = pl.when(asked > 0).then(pl.col("aas").sum() / asked).alias("aas")
    return (
        rows.with_columns(key.otherwise(pl.col("account")).alias("key"), repeats)
        .group_by("sessions", "key", maintain_order=True)
        .agg(pl.col("account").first(), pl.col("detail").first(), mean)
        .sort("sessions", maintain_order=True)
    )


def throttled(results: Results, series: Series) -> dict[int, str]:
    """Per rung the bracket of throttled time (seconds per second), where it is known and not nothing."""
    rows = of_series(results.tables["ledger"], series).filter(
        (pl.col("scope") == "rung") & (pl.col("account") == BRACKET)
    )
    ends = rows.group_by("sessions").agg(
        pl.col("low").mean().fill_null(0.0), pl.coalesce("high", "aas").mean().alias("high")
    )
    some = ends.filter(pl.col("high") > 0)
    return {
        int(n): f"{low:.2f} to {high:.2f}" for n, low, high in some.select("sessions", "low", "high").rows()
    }


def accounts_of(results: Results, events: int = 6) -> list[Account]:
    """All accounts of the run in stacking order; the ``events`` longest waits by name, the rest as one."""
    ledger = leaves(results.tables["ledger"], "rung")
    known = ledger.filter(pl.col("aas").is_not_null())
    found = set(known["account"].to_list())
    further = sorted(found - set(_ORDER))  # accounts of other ledgers, e.g. without OS tasks
    order = [*_ORDER[:4], *further, *_ORDER[4:]]
    made: list[Account] = []
    for account in (a for a in order if a in found):
        if account == "sleep":
            made += _sleeps(known.filter(pl.col("account") == "sleep"), events)
        else:
            made.append(Account(account, _NAMES.get(account, account), account, 0))
    return made


def missing(results: Results, series: Series) -> list[str]:
    """Accounts of which at least one rung of the series does not know the time."""
    rows = rung_accounts(results, series).filter(pl.col("aas").is_null())
    return [_NAMES.get(a, a) for a in rows["account"].unique(maintain_order=True).to_list()]


def stack(results: Results, series: Series, accounts: list[Account]) -> pl.DataFrame:
    """Rows for the stack charts: sessions, key, label, order, aas, share (of session time)."""
    rows = rung_accounts(results, series).filter(pl.col("aas") != 0)
    names = {a.key: a.label for a in accounts}
    orders = {a.key: i for i, a in enumerate(accounts)}
    other = f"sleep:{OTHER_SLEEP}"
    return (
        rows.with_columns(
            pl.when(pl.col("key").is_in(list(names))).then("key").otherwise(pl.lit(other)).alias("key")
        )
        .group_by("sessions", "key")
        .agg(pl.col("aas").sum())
        .with_columns(
            pl.col("key").replace_strict(names, default=OTHER_SLEEP).alias("label"),
            pl.col("key").replace_strict(orders, default=len(orders), return_dtype=pl.Int64).alias("order"),
            (pl.col("aas") / pl.col("sessions")).alias("share"),
        )
        .sort("sessions", "order")
    )


def _sleeps(rows: pl.DataFrame, events: int) -> list[Account]:
    """Waits by class, the classes and their events by falling time."""
    totals = (
        rows.filter(pl.col("aas") > 0)
        .group_by(pl.col("detail").fill_null("all waits"))
        .agg(pl.col("aas").sum())
        .sort(["aas", "detail"], descending=[True, False])
    )
    shown: list[str] = totals["detail"].to_list()[:events]
    classes = list(dict.fromkeys(wait_class(d) for d in shown))
    made = [
        Account(f"sleep:{detail}", detail, f"sleep:{name}", shade)
        for name in classes
        for shade, detail in enumerate(d for d in shown if wait_class(d) == name)
    ]
    if len(totals) > events:
        made.append(Account(f"sleep:{OTHER_SLEEP}", OTHER_SLEEP, f"sleep:{OTHER_SLEEP}", 0))
    return made


def wait_class(detail: str) -> str:
    """``LWLock`` of ``LWLock/BufferMapping``."""
    for separator in ("/", ":"):
        if separator in detail:
            return detail.split(separator, 1)[0]
    return detail
