"""Table ``statements``: Top SQL of each cell, and of all cells of a load together. Pure.

Counters are exact between two reads. DB time is from samples: the exact time on a CPU and in the run queue
is divided by how often each statement was met runnable, and sleeps are what samples stand for.
"""

from __future__ import annotations

import polars as pl

from dbdyno.model.column import CELL
from dbdyno.model.data_sources.statements import FIGURES
from dbdyno.model.ledger_rows import groups
from dbdyno.model.session_time import account
from dbdyno.model.tables import Tables, conform, empty
from dbdyno.model.wait_families import Family, families_of

MOST = 500
"""Statements a cell, by time; all others are one row."""
SAMPLED = "sampled only"
AMONG = "lower bound: in some windows it is among all others"
COUNTERS, SAMPLES = "statement counters", "activity samples"
_CELL = [c.name for c in CELL]
_FIGURES = [c.name for c in FIGURES]
_TIMES = ("db_time_s", "cpu_s", "cpu_wait_s", "waited_s")
_BY = ["query_id", "hidden", "toplevel"]


def statements(tables: Tables) -> pl.DataFrame:
    """From ``windows``, ``ledger``, ``cut_statements`` and ``cut_statement_samples``."""
    counted, sampled = tables["cut_statements"], tables["cut_statement_samples"]
    made = [empty("statements")]
    for window in tables["windows"].to_dicts():
        mine = pl.col("cell") == window["cell"]
        ledger = tables["ledger"].filter(mine)
        exact = {n: account(ledger, n).aas for n in ("run", "runq")}
        whole = {n: None if v is None else v * window["wall_s"] for n, v in exact.items()}
        times = _times(sampled.filter(mine), whole, families_of(tables).among(Family.CLIENT))
        both = _joined(counted.filter(mine), times)
        made.append(_ranked(both, {name: window[name] for name in _CELL}))
    return pl.concat(made)


def statements_total(tables: Tables) -> pl.DataFrame:
    """The same over all usable cells of a workload, variant and load together (cell ``all``).

    A statement that was among the others of some cell has a lower bound.
    """
    made = [empty("statements")]
    for head, cells in groups(tables["windows"]):
        rows = tables["statements"].filter(pl.col("cell").is_in([w["cell"] for w in cells]))
        if len(cells) == 1 or rows.is_empty():
            made.append(conform("statements", rows.with_columns(**{k: pl.lit(v) for k, v in head.items()})))
            continue
        hidden = pl.when(pl.col("query_id").is_null()).then("user")
        cut = rows.filter(pl.col("others").is_not_null())["cell"].unique()
        top_wait = pl.col("top_wait").drop_nulls().mode().sort().first()
        among = pl.col("cell").is_in(cut.implode()).sum() < len(cut)
        sums = _summed(rows.with_columns(hidden=hidden), top_wait=top_wait, among=among)
        walls = rows.group_by("cell").agg(pl.col("wall_s").max())["wall_s"]
        lower = pl.col("among") & pl.col("others").is_null() & (pl.col("status") == "ok")
        status = pl.when(lower).then(pl.lit(AMONG)).otherwise("status")
        made.append(_ranked(sums.with_columns(status=status, wall_s=pl.lit(walls.sum())), head))
    return pl.concat(made)


def _times(sampled: pl.DataFrame, exact: dict[str, float | None], client: pl.Expr) -> pl.DataFrame:
    """Per query id seconds of the window, and the wait of most time."""
    if sampled["query_id"].null_count() == sampled.height:
        schema = {"query_id": pl.Int64, **dict.fromkeys(_TIMES, pl.Float64), "top_wait": pl.String}
        return pl.DataFrame(schema=schema)
    told = sampled.filter(~((pl.col("doing") == "wait") & client))
    seconds = pl.col("seconds")
    ran, waited = seconds.filter(pl.col("doing") == "run").sum(), seconds.filter(pl.col("doing") == "wait")
    unknown = seconds.filter(pl.col("doing") == "?").sum()
    label = pl.concat_str("wait_class", "wait_event", separator="/", ignore_nulls=True)
    made = told.group_by("query_id", maintain_order=True).agg(
        ran=ran, waited_s=waited.sum(), unknown=unknown,
        top_wait=label.filter(pl.col("doing") == "wait").sort_by(waited, descending=True).first(),
    )  # fmt: skip
    share = pl.col("ran") / pl.col("ran").sum()
    parts = {"cpu_s": exact["run"], "cpu_wait_s": exact["runq"]}
    made = made.with_columns((share.fill_nan(0.0) * pl.lit(v, pl.Float64)).alias(n) for n, v in parts.items())
    # Without task states it is not known who was on a CPU: then all of it is time of the statement.
    on_cpu = pl.col("cpu_s") + pl.col("cpu_wait_s")
    blind = pl.col("unknown").sum() > 0
    made = made.with_columns(pl.when(~blind).then(c).alias(c) for c in parts)
    busy = pl.coalesce(pl.when(~blind).then(on_cpu), pl.col("ran") + pl.col("unknown"))
    return made.with_columns(db_time_s=busy + pl.col("waited_s")).select("query_id", *_TIMES, "top_wait")


def _joined(counted: pl.DataFrame, times: pl.DataFrame) -> pl.DataFrame:
    """A statement that samples met and that did not end in between has no counters."""
    hidden = pl.when(pl.col("query_id").is_null()).then("user")
    sums = _summed(
        counted.with_columns(hidden=hidden, source=pl.lit(COUNTERS), others=pl.lit(None, pl.Int64))
    )
    named = times.drop_nulls("query_id")
    met = sums.join(
        named.with_columns(toplevel=True), on=["query_id", "toplevel"], how="left", maintain_order="left"
    )
    met = met.with_columns(
        source=pl.when(pl.col("db_time_s").is_null())
        .then("source")
        .otherwise(pl.lit(f"{COUNTERS}, {SAMPLES}"))
    )
    only = named.join(counted, on="query_id", how="anti").with_columns(
        toplevel=True, status=pl.lit(SAMPLED), source=pl.lit(SAMPLES)
    )
    return pl.concat([met, only], how="diagonal_relaxed")


def _summed(rows: pl.DataFrame, **more: pl.Expr) -> pl.DataFrame:
    """By statement: over users, databases, cells. NULL is left out, and no known value is NULL."""
    sums = [*_FIGURES, *(n for n in ("others", *_TIMES[:3]) if n in rows.columns)]
    bad = pl.col("status").filter(~pl.col("status").is_in(["ok", SAMPLED]))
    return rows.group_by(*_BY, pl.col("others").is_not_null().alias("rest"), maintain_order=True).agg(
        *(_known_sum(n) for n in sums),
        *(pl.when(pl.col(n).n_unique() == 1).then(pl.col(n).first()).alias(n) for n in ("user", "database")),
        pl.col("wall_s").max(),
        status=bad.first().fill_null(pl.col("status").sort().first()),
        source=pl.col("source").sort_by(pl.col("source").str.len_chars()).last(),
        **more,
    ).drop("rest")  # fmt: skip


def _known_sum(name: str) -> pl.Expr:
    return pl.when(pl.col(name).null_count() < pl.len()).then(pl.col(name).sum()).alias(name)


def _ranked(rows: pl.DataFrame, head: dict[str, object]) -> pl.DataFrame:
    """The :data:`MOST` of most time, and all others in one row; shares are of top-level statements."""
    if rows.is_empty():
        return empty("statements")
    rows = rows.with_columns(weight=pl.coalesce("exec_ns", pl.col("db_time_s") * 1e9, pl.lit(0.0)))
    one = rows.filter(pl.col("others").is_null()) if "others" in rows.columns else rows
    one = one.sort("weight", descending=True, maintain_order=True)
    rest = [one[MOST:], rows.filter(pl.col("others").is_not_null())]
    parts = [one[:MOST], _rest(pl.concat(rest))]
    made = pl.concat(parts, how="diagonal_relaxed").with_row_index("rank", offset=1)
    top = pl.col("exec_ns").filter("toplevel").sum()
    times = pl.col("db_time_s").sum()
    made = made.with_columns(
        share=pl.when((top > 0) & pl.col("toplevel")).then(pl.col("exec_ns") / top),
        db_time_share=pl.when(times > 0).then(pl.col("db_time_s") / times),
        **{name: pl.lit(value) for name, value in head.items()},
    )
    return conform("statements", made.select(c for c in made.columns if c in _COLUMNS))


_COLUMNS = set(empty("statements").columns)


def _rest(rows: pl.DataFrame) -> pl.DataFrame:
    bad = pl.col("status").filter(~pl.col("status").is_in(["ok", SAMPLED]))
    return rows.group_by("toplevel", maintain_order=True).agg(
        *(_known_sum(n) for n in (*_FIGURES, *_TIMES[:3])),
        pl.col("wall_s").max(),
        others=pl.col("others").fill_null(1).sum(),
        status=bad.first().fill_null("ok"),
        source=pl.col("source").sort_by(pl.col("source").str.len_chars()).last(),
    )
