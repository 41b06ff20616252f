"""The ledger made ready for showing: its leaves (nothing counted twice), in one fixed order."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from dbdyno.model.results import Results
from dbdyno.present.figures import Series, of_series

BRACKET = "runq.throttled_bracket"  # lies inside runq: shown beside it, never added (DESIGN, section 3)
THROTTLED = "runq.throttled"
POOLER = "pooler"  # the data source of the queue for a pool's connections
INSIDE = (BRACKET, THROTTLED, "block_io")  # parts of other accounts
NO_LABEL = "no wait event"
UNSEEN = "seen by no sample"
NAMES = {
    "run": "CPU",
    "run.user": "CPU, user",
    "run.system": "CPU, kernel",
    "runq": "CPU WAIT",
    "client": "client",
    "pool.queue": "pool queue",
    "unaccounted": "unaccounted",
}


class Segment(NamedTuple):
    """A segment of the stack."""

    key: str  # "run.user", "sleep:" or "runq:" and a wait class
    label: str
    family: str  # what its colour stands for: an account or, for a sleep and its run queue, a wait's family
    waiting: bool  # in the run queue under that label: hatched


def leaves(ledger: pl.DataFrame, scope: str) -> pl.DataFrame:
    """Rows of ``scope`` that add up to the whole: an account's parts where it and all of them are known, else
    its total. ``sleep`` without detail that is not known gives way to its events."""
    rows = ledger.filter((pl.col("scope") == scope) & ~pl.col("account").is_in(INSIDE))
    group = ["cell", "session", "who"]
    whole = [*group, pl.coalesce("parent", "account")]
    part, known = pl.col("parent").is_not_null(), pl.col("aas").is_not_null()
    divided = part.any().over(whole) & known.all().over(whole)
    total = (~part).any().over(whole)
    event = (pl.col("account") == "sleep") & pl.col("detail").is_not_null()
    unseen = (pl.col("account") == "sleep") & pl.col("detail").is_null() & ~known
    drop = pl.when(divided).then(~part).otherwise(part & total) | (unseen & event.any().over(group))
    return rows.filter(~drop)


def throttled(results: Results, series: Series) -> dict[int, str]:
    """Per rung the throttled time (seconds per second), measured or as a bracket, where known and not 0."""
    rows = of_series(results.tables["ledger"], series).filter(
        (pl.col("scope") == "rung") & pl.col("account").is_in([BRACKET, THROTTLED])
    )
    measured = pl.col("account") == THROTTLED
    rows = rows.filter(measured | ~measured.any().over("cell"))
    ends = rows.group_by("sessions").agg(
        pl.coalesce("low", pl.lit(0.0)).mean().alias("low"), pl.coalesce("high", "aas").mean().alias("high")
    )
    return {
        int(n): f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"
        for n, low, high in ends.filter(pl.col("high") > 0).select("sessions", "low", "high").rows()
    }


def wait_class(detail: str | None) -> str:
    """``A`` of ``A/b``; a sleep without detail was seen by no sample."""
    return UNSEEN if detail is None else detail.split("/", 1)[0].split(":", 1)[0]


def wait_classes(detail: str = "detail") -> pl.Expr:
    """:func:`wait_class` of a column."""
    return pl.col(detail).str.extract(r"^([^/:]+)").fill_null(UNSEEN)
