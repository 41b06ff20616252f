"""Table ``statements``: Top SQL of each cell, and of all cells of a load together. Pure.

Counters are exact between two reads. DB time is from samples: the exact time on a CPU and in the run queue
is divided by the number of runnable samples of each statement, and each sleeping sample stands for the
time between samples. A sample has only the statement's id: if several roles or databases executed it, each
gets time in proportion to its execution time.
"""

from __future__ import annotations

import polars as pl

from dbdyno.account.making import makes
from dbdyno.account.statement_ledger import knows_statements, statement_times
from dbdyno.model.plan.plan import Observation, Plan
from dbdyno.model.results.ledger_rows import among, groups
from dbdyno.model.results.session_time import account, event_name
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.data_sources.statements import FIGURES, KEY, LIO
from dbdyno.model.schema.tables import ByCell, Tables, conform, empty, sum_of_known
from dbdyno.model.sources.source import TRACE
from dbdyno.model.sources.wait_families import Family, families_of

MOST, MOST_BY = 50, 10
"""Statements that are kept by time, and by each of logical I/O, calls and execution time; all others are
one row."""
SAMPLED = "sampled only"
AMONG = "lower bound: in some windows it is among all others"
UNCOUNTED = "lower bound: in some windows nothing was counted"
COUNTERS, SAMPLES = "statement counters", "activity samples"
_CELL = [c.name for c in CELL]
_KEY = [c.name for c in KEY]
_FIGURES = [c.name for c in FIGURES]
_TIMES = ("db_time_s", "cpu_s", "cpu_wait_s", "waited_s")
_ENDS = ("wall_s", "evictions")
"""Columns with one value for all statements of a cell."""
_COLUMNS = set(empty("statements").columns)
_NEEDED = ("ledger", "statement_ledger", "cut_statement_waits", "cut_statement_samples")


@makes("statements", reads=("ledger", "statement_ledger"))
def top_statements(tables: Tables, plan: Plan) -> pl.DataFrame:
    """Returns table ``statements`` of each cell."""
    return statements(tables, plan.experiment.observation)


def statements(tables: Tables, chosen: Observation | None = None) -> pl.DataFrame:
    """Returns the top statements from ``windows``, ``ledger``, ``cut_statements`` and
    ``cut_statement_samples``. An observation of one role or one database counts only the statements of
    that role or database."""
    counted = tables["cut_statements"]
    for name in ("user", "database"):
        if (wanted := getattr(chosen, name, None)) is not None:
            counted = counted.filter(pl.col(name) == wanted)
    parts = ByCell({n: tables[n] for n in _NEEDED} | {"cut_statements": counted})
    client = families_of(tables).among(Family.CLIENT)
    frames = [empty("statements")]
    for window in tables["windows"].to_dicts():
        in_cell = parts.of(window["cell"])
        traced = knows_statements(in_cell)
        if in_cell["statement_ledger"].height:  # also of samples, unless the states of tasks are unknown
            times = statement_times(in_cell["statement_ledger"])
        else:
            exact = {n: account(in_cell["ledger"], n).aas for n in ("run", "runq")}
            whole = {n: None if v is None else v * window["wall_s"] for n, v in exact.items()}
            times = _times(in_cell["cut_statement_samples"], whole, client)
        both = _joined(in_cell["cut_statements"], times, TRACE if traced else SAMPLES)
        frames.append(_ranked(both, {**{n: window[n] for n in _CELL}, **{n: both[n].max() for n in _ENDS}}))
    return pl.concat(frames)


@makes("statements", stage="total")
def statements_total(tables: Tables) -> pl.DataFrame:
    """Returns the top statements over all usable cells of a workload, variant and load together (cell
    ``all``). A statement that some cell has among its others has a lower bound."""
    frames = [empty("statements")]
    for head, cells in groups(tables["windows"]):
        rows = among(tables["statements"], cells)
        if len(cells) == 1 or rows.is_empty():
            frames.append(rows.with_columns(**{k: pl.lit(v) for k, v in head.items()}))
            continue
        ends = rows.group_by("cell").agg(pl.col(_ENDS).max()).select(_ENDS).sum()
        frames.append(_ranked(_together(rows), {**head, **ends.row(0, named=True)}))
    return pl.concat([conform("statements", m) for m in frames])


def _times(sampled: pl.DataFrame, exact: dict[str, float | None], client: pl.Expr) -> pl.DataFrame:
    """Returns seconds of the window and the longest wait, by query id."""
    if sampled["query_id"].null_count() == sampled.height:
        schema = {"query_id": pl.Int64, **dict.fromkeys(_TIMES, pl.Float64), "top_wait": pl.String}
        return pl.DataFrame(schema=schema)
    samples = sampled.filter(~((pl.col("doing") == "wait") & client))
    seconds = pl.col("seconds")
    ran, waited = seconds.filter(pl.col("doing") == "run").sum(), seconds.filter(pl.col("doing") == "wait")
    unknown = seconds.filter(pl.col("doing") == "?").sum()
    label = event_name()
    by_query = samples.group_by("query_id", maintain_order=True).agg(
        ran=ran,
        waited_s=waited.sum(),
        unknown=unknown,
        top_wait=label.filter(pl.col("doing") == "wait").sort_by(waited, descending=True).first(),
    )
    share = pl.col("ran") / pl.col("ran").sum()
    parts = {"cpu_s": exact["run"], "cpu_wait_s": exact["runq"]}
    by_query = by_query.with_columns(
        (share.fill_nan(0.0) * pl.lit(v, pl.Float64)).alias(n) for n, v in parts.items()
    )
    # Without task states nobody knows who was on a CPU. Then all samples count as time of the statement.
    on_cpu = pl.col("cpu_s") + pl.col("cpu_wait_s")
    blind = pl.col("unknown").sum() > 0
    by_query = by_query.with_columns(pl.when(~blind).then(c).alias(c) for c in parts)
    busy = pl.coalesce(pl.when(~blind).then(on_cpu), pl.col("ran") + pl.col("unknown"))
    return by_query.with_columns(db_time_s=busy + pl.col("waited_s")).select("query_id", *_TIMES, "top_wait")


def _joined(counted: pl.DataFrame, times: pl.DataFrame, source: str) -> pl.DataFrame:
    """Joins counters and sampled times. A statement that was sampled but did not end in between has no
    counters."""
    named = times.drop_nulls("query_id")
    own, every = pl.col("exec_ns"), pl.col("exec_ns").sum().over("query_id", "toplevel")
    # Samples have only the query id: roles and databases share its time by execution time.
    part = pl.when(every > 0).then(own / every).otherwise(1 / pl.len().over("query_id", "toplevel"))
    with_times = counted.with_columns(part=part).join(
        named.with_columns(toplevel=True), on=["query_id", "toplevel"], how="left", maintain_order="left"
    )
    sampled = pl.col("db_time_s").is_not_null()
    with_times = with_times.with_columns(
        *(pl.col(n) * pl.col("part") for n in _TIMES),
        source=pl.when(sampled).then(pl.lit(f"{COUNTERS}, {source}")).otherwise(pl.lit(COUNTERS)),
    )
    only = named.join(counted, on="query_id", how="anti").with_columns(
        toplevel=True, status=pl.lit(SAMPLED), source=pl.lit(source)
    )
    return pl.concat([with_times, only], how="diagonal_relaxed").with_columns(others=pl.lit(None, pl.Int64))


def _together(rows: pl.DataFrame) -> pl.DataFrame:
    """Sums rows over cells by statement, and the rows of all others. Counts are lower bounds if a cell has
    only samples."""
    counted = rows.group_by("cell").agg(pl.col("calls").is_not_null().any())["calls"]
    some_counted = counted.any() and not counted.all()
    rows = _with_roles(rows)
    cut = rows.filter(pl.col("others").is_not_null())["cell"].unique()
    rest = pl.col("others").is_not_null()
    sums = rows.group_by(*_KEY, rest.alias("rest"), maintain_order=True).agg(
        *_sums(),
        pl.col("others").sum().alias("count"),
        top_wait=pl.col("top_wait").drop_nulls().mode().sort().first(),
        among=pl.col("cell").is_in(cut.implode()).sum() < len(cut),
    )
    lower = pl.col("among") & ~pl.col("rest") & (pl.col("status") == "ok")
    missed = pl.lit(some_counted) & pl.col("calls").is_not_null() & (pl.col("status") == "ok")
    status = pl.when(lower).then(pl.lit(AMONG)).when(missed).then(pl.lit(UNCOUNTED)).otherwise("status")
    return sums.with_columns(others=pl.when("rest").then("count"), status=status).drop(
        "rest", "count", "among"
    )


def _with_roles(rows: pl.DataFrame) -> pl.DataFrame:
    """Divides the rows of a statement that has only samples in a cell among the roles and databases that
    have its counters in other cells, by execution time."""
    own = pl.col("others").is_null()
    only = own & (pl.col("status") == SAMPLED)
    if not rows.select(only.any() & (own & ~only).any()).item():
        return rows  # there are no such rows, or none to divide them among
    by_statement = ["query_id", "toplevel"]
    counted = rows.filter(own & ~only).group_by(_KEY, maintain_order=True).agg(pl.col("exec_ns").sum())
    every = pl.col("exec_ns").sum().over(by_statement)
    part = pl.when(every > 0).then(pl.col("exec_ns") / every).otherwise(1 / pl.len().over(by_statement))
    roles = counted.with_columns(part=part).drop("exec_ns")
    sampled = rows.filter(only)
    divided = sampled.drop("user", "database").join(roles, on=by_statement, maintain_order="left")
    divided = divided.with_columns(pl.col(_TIMES[:3]) * pl.col("part")).select(rows.columns)
    alone = sampled.join(roles, on=by_statement, how="anti", maintain_order="left")
    return pl.concat([rows.filter(~only), divided, alone])


def _sums() -> list[pl.Expr]:
    """Returns aggregations that leave out NULL; a sum of NULLs alone is NULL."""
    bad = pl.col("status").filter(~pl.col("status").is_in(["ok", SAMPLED]))
    longest = pl.col("source").sort_by(pl.col("source").str.len_chars()).last()
    sums = [sum_of_known(n) for n in (*_FIGURES, *_TIMES[:3])]
    return [*sums, longest, bad.first().fill_null(pl.col("status").sort().first()).alias("status")]


def _ranked(rows: pl.DataFrame, head: dict[str, object]) -> pl.DataFrame:
    """Ranks statements, keeps those of most time, logical I/O and calls, and sums all others in one row.

    Shares are of top-level statements. Time is DB time if the ledger has it: execution time lacks commits,
    planning, and the wait of a woken session for a CPU.
    """
    if rows.is_empty():
        return empty("statements")
    executed = pl.coalesce("exec_ns", pl.lit(0.0))
    in_ledger = rows["db_time_s"].is_not_null().any()
    by = {
        "time": pl.coalesce("db_time_s", pl.lit(0.0)) if in_ledger else executed,
        "executed": executed,
        "lio": pl.sum_horizontal(LIO),
        "calls": pl.col("calls").fill_null(0),
    }
    some = rows.filter(pl.col("others").is_null()).sort(
        by["time"], executed, descending=True, maintain_order=True
    )
    places = {n: e.rank("ordinal", descending=True) for n, e in by.items()}
    kept = (
        (places["time"] <= MOST)
        | (places["executed"] <= MOST_BY)
        | (places["lio"] <= MOST_BY)
        | (places["calls"] <= MOST_BY)
    )
    some = some.with_columns(kept=kept)
    shown = some.filter("kept")
    if shown.height < rows.height:
        rest = pl.concat(
            [some.filter(~pl.col("kept")), rows.filter(pl.col("others").is_not_null())], how="diagonal"
        )
        others = rest.group_by("toplevel", maintain_order=True)
        shown = pl.concat(
            [shown, others.agg(*_sums(), pl.col("others").fill_null(1).sum())], how="diagonal_relaxed"
        )
    shown = shown.with_row_index("rank", offset=1)
    top_exec, times = pl.col("exec_ns").filter("toplevel").sum(), pl.col("db_time_s").sum()
    shown = shown.with_columns(
        share=pl.when((top_exec > 0) & pl.col("toplevel")).then(pl.col("exec_ns") / top_exec),
        db_time_share=pl.when(times > 0).then(pl.col("db_time_s") / times),
        **{n: pl.lit(v) for n, v in head.items()},
    )
    return conform("statements", shown.select(c for c in shown.columns if c in _COLUMNS))
