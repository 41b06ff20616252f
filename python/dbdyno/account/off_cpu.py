"""Tables ``sleep_profile`` and ``sleep_code``: sleep by code, wait event, session and statement. Pure.

Each sleep was chosen with a known probability, so its time stands for time / probability (Horvitz and
Thompson, 1952, J. Am. Stat. Assoc. 47:663): sums over the chosen sleeps are unbiased. They are scaled to
the exact sleep of each wait event in the ledger. The time of wait events without a chosen sleep is "not
sampled". Lost stacks may belong to any row: each lower end assumes that none does, each upper end that all
do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from dbdyno.account import cpu_profile as code
from dbdyno.account.losses import lost_sleep
from dbdyno.account.making import makes
from dbdyno.account.window.cells import key
from dbdyno.model.results.cpu_profile import LABELS, NOT_SAMPLED, UNKNOWN, WAIT, as_text, labels
from dbdyno.model.results.raw import RawCell
from dbdyno.model.results.session_time import wait_label
from dbdyno.model.schema.tables import Tables, conform, empty
from dbdyno.model.sources.code_areas import CodeAreas

_GROUP = ["scope", "who"]
_KERNEL = ("kernel", "total_kernel", "mode")


@makes("sleep_profile", "sleep_code", reads=("events", "rates"))
def sleep_profile(
    cells: Sequence[RawCell], tables: Tables, areas: Callable[[], CodeAreas]
) -> dict[str, pl.DataFrame]:
    """Returns both tables of these cells. Reads ``task_cpu`` (for the owner of a task), ``events`` and
    ``rates``; ``areas`` loads the code areas of the server's program."""
    by_table: dict[str, list[pl.DataFrame]] = {
        name: [empty(name)] for name in ("sleep_profile", "sleep_code")
    }
    for cell in cells:
        if cell.height("sleep_samples"):
            measured = {
                n: tables[n].filter(pl.col("cell") == cell.id) for n in ("task_cpu", "events", "rates")
            }
            for name, frame in _cell_profiles(cell, measured, areas()).items():
                by_table[name].append(_conform(name, frame, key(cell)))
    return {name: pl.concat(frames) for name, frames in by_table.items()}


@makes("sleep_profile", stage="total")
def sleep_profile_total(windows: pl.DataFrame, sleep_profile: pl.DataFrame) -> pl.DataFrame:
    """Returns means over repeats as :func:`code.cpu_profile_total` does."""
    return _with_exact_waits(code.cpu_profile_total(windows, sleep_profile, "sleep_profile"))


def _conform(name: str, frame: pl.DataFrame, head: dict[str, Any]) -> pl.DataFrame:
    literals = {k: pl.lit(v) for k, v in head.items()}
    return conform(name, frame.drop(*_KERNEL, strict=False).with_columns(**literals))


def _cell_profiles(cell: RawCell, cut: Tables, areas: CodeAreas) -> dict[str, pl.DataFrame]:
    """Returns both tables of one cell, without its key."""
    samples = _samples(cell, cut["task_cpu"])
    weighted = _weighted(samples, _exact_sleep(cut["events"]))
    weighted = weighted._replace(
        whole=weighted.whole.with_columns(lost=pl.lit(lost_sleep(cell, samples), pl.Float64))
    )
    named = {f"profile_{part}": cell.tables[f"sleep_{part}"] for part in ("stacks", "frames")}
    code_met = code.code_of(replace(cell, tables=named), weighted.seen, areas)
    rows = code.bounded(code.rows_by(weighted, code_met), weighted.whole)
    rows = pl.concat([rows, _not_sampled(weighted)], how="diagonal")
    rows = rows.filter(pl.col("by") != "mode")
    stacks = pl.concat([_stacks(weighted.seen, code_met), _not_sampled_stacks(weighted.rest)], how="diagonal")
    return {"sleep_profile": _with_exact_waits(code.per_unit(rows, cut["rates"])), "sleep_code": stacks}


def _samples(cell: RawCell, tasks: pl.DataFrame) -> pl.DataFrame:
    """Returns a row per chosen sleep. ``aas`` is the time in the window that it stands for, in seconds per
    second."""
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    end = pl.min_horizontal((pl.col("t_ns") + pl.col("slept_ns")).fill_null(t1), pl.lit(t1))
    inside_ns = (end - pl.max_horizontal("t_ns", pl.lit(t0))).cast(pl.Float64)
    sleeps = cell.scan("sleep_samples").with_columns(
        aas=inside_ns / pl.col("chance") / (t1 - t0),
        mode=pl.lit("kernel"),
        n=pl.lit(1, pl.Int64),
        cuts=pl.col("cut").cast(pl.Int64),
        event=wait_label(),
        **labels(),
    )
    whose = tasks.filter(pl.col("scope") != "beside").unique(["pid", "tid"], keep="last")
    seen = sleeps.filter(pl.col("aas") > 0).drop("session").collect()
    return seen.join(whose.select("pid", "tid", "session", *_GROUP), on=["pid", "tid"])


def _exact_sleep(events: pl.DataFrame) -> pl.DataFrame:
    """Returns the ledger's exact sleep by wait event: summed over the sessions, and for each kind of
    helper."""
    kept = events.filter(pl.col("scope").is_in(["rung", "helper"]) & (pl.col("sleep") > 0))
    by = kept.group_by(*_GROUP, event=wait_label(), maintain_order=True)
    return by.agg(exact=pl.col("sleep").sum())


def _weighted(samples: pl.DataFrame, exact: pl.DataFrame) -> code.Weighted:
    """Scales the chosen sleeps to the exact sleep of their wait event."""
    by = [*_GROUP, "event"]
    sums = samples.group_by(by).agg(sampled=pl.col("aas").sum())
    seen = samples.join(sums, on=by).join(exact, on=by, maintain_order="left").drop_nulls("exact")
    # The exact total per wait event corrects the sampled one (poststratification; Cochran, Sampling
    # Techniques), so that only the division within an event has a sampling error.
    seen = seen.with_columns(aas=pl.col("aas") * pl.col("exact") / pl.col("sampled"))
    rest = exact.join(sums, on=by, how="anti", maintain_order="left")
    whole = seen.group_by(_GROUP, maintain_order=True).agg(
        sampled=pl.col("aas").sum(), effective=pl.col("aas").sum() ** 2 / (pl.col("aas") ** 2).sum()
    )
    return code.Weighted(seen, rest.select(*by, mode=pl.lit("kernel"), aas="exact"), whole)


def _not_sampled(weighted: code.Weighted) -> pl.DataFrame:
    """Returns a row in each kind; by wait event one row per event, as its time is known."""
    rows = code.not_sampled(weighted)
    events = weighted.rest.select(
        *_GROUP,
        "aas",
        by=pl.lit("wait"),
        name="event",
        samples=pl.lit(0, pl.Int64),
        status=pl.lit(NOT_SAMPLED),
        total="aas",
        total_low="aas",
        total_high="aas",
    )
    return pl.concat([rows.filter(pl.col("by") != "wait"), events], how="diagonal")


def _with_exact_waits(rows: pl.DataFrame) -> pl.DataFrame:
    """Sets the interval of a wait event to its value, as it is measured and not sampled."""
    by_wait = pl.col("by") == "wait"
    ends = ("low", "high", "total_low", "total_high")
    return rows.with_columns(
        *(pl.when(by_wait).then("aas").otherwise(n).alias(n) for n in ends),
        total=pl.when(by_wait).then("aas").otherwise("total"),
    )


def _under_wait_event(stack: pl.Expr) -> pl.Expr:
    """Puts a stack under the frame of its wait event."""
    frame = pl.concat_str(pl.lit(f"{WAIT}`"), as_text(pl.col("wait")))
    return pl.concat_str(frame, stack, separator=";", ignore_nulls=True)


def _stacks(seen: pl.DataFrame, code_met: code.Code) -> pl.DataFrame:
    """Returns stacks in folded form, each under the frame of its wait event."""
    return code.stacks(seen, code_met).with_columns(stack=_under_wait_event(pl.col("stack")))


def _not_sampled_stacks(rest: pl.DataFrame) -> pl.DataFrame:
    """Returns sleep without samples as stacks of one frame under that of its wait event."""
    stack = pl.lit(f"{UNKNOWN}`[{NOT_SAMPLED}]")
    events = rest.select(*_GROUP, "aas", wait="event", samples=pl.lit(0, pl.Int64))
    return events.with_columns(stack=_under_wait_event(stack), **{LABELS[1]: pl.lit(NOT_SAMPLED)})
