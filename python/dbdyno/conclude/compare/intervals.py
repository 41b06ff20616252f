"""Compares two intervals between snapshots: the largest changes in time. Pure.

The sums of an interval have no spread. If there are snapshots within it, they cut it into blocks, and a
statement's mean times per block give an interval of their ratio (Welch's t on logarithms). ``slower`` and
``faster`` hold at 5 % for all statements together (Holm).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.model.results.claim import Claim, Estimate
from dbdyno.model.results.interval import ALL, LOWER_BOUNDS, PER_S, IntervalFigures
from dbdyno.model.results.interval_comparison import IntervalComparison, IntervalSide
from dbdyno.model.text.visible import one_line, shortened
from dbdyno.model.units import NS_PER_S, format_ns
from dbdyno.stats.estimates import Mean, students_quantile, students_tail, welch_degrees
from dbdyno.stats.significance import holm

LEAST_BLOCKS = 3
"""Blocks per side that an interval of the ratio needs."""
ALPHA = 0.05
NOTABLE_S = 0.001
"""Seconds per second below which a change of a statement's time is not reported."""
_CLAIMS, _LONGEST = 5, 100
_KEY = ("user", "database", "query_id", "toplevel")
_OBJECT = ("database", "name")
_READS = [f"{part}_blocks_{how}" for part in ("table", "index", "toast") for how in ("hit", "read")]


def compare_intervals(a: IntervalSide, b: IntervalSide) -> IntervalComparison:
    """Returns B compared with A, the baseline. Statements are matched by query id, else by text; tables by
    name."""
    load = _load(a, b)
    statements = _statements(a, b)
    relations = _relations(a.figures, b.figures)
    claims = (*_claims(load, statements), *_conditions(a, b))
    return IntervalComparison(a, b, load, statements, relations, claims)


# Ratios.


class Ratio(NamedTuple):
    value: float
    low: float
    high: float
    p: float


def ratio_of(a: Sequence[float], b: Sequence[float]) -> Ratio | None:
    """Returns the ratio of the geometric means of blocks. None with too few blocks or a block of 0."""
    if min(len(a), len(b)) < LEAST_BLOCKS or min(*a, *b) <= 0:
        return None
    first, second = (Mean.of(math.log(v) for v in side) for side in (a, b))
    errors = [m.m2 / (m.n - 1) / m.n for m in (first, second)]
    change, error = second.value - first.value, math.sqrt(sum(errors))
    if error == 0:
        return Ratio(math.exp(change), math.exp(change), math.exp(change), 1.0 if change == 0 else 0.0)
    degrees = max(1, math.floor(welch_degrees((errors[0], first.n - 1), (errors[1], second.n - 1))))
    half = students_quantile(degrees) * error
    # exp(709) is the largest finite double
    low, high = (math.exp(max(-700.0, min(700.0, change + d))) for d in (-half, half))
    return Ratio(math.exp(change), low, high, students_tail(change / error, degrees))


def _ratio(name: str) -> pl.Expr:
    a, b = pl.col(f"{name}_a"), pl.col(f"{name}_b")
    return pl.when((a > 0) & b.is_not_null()).then(b / a).alias(f"{name}_ratio")


# Load.


def _load(a: IntervalSide, b: IntervalSide) -> pl.DataFrame:
    key = ["database", "figure", "unit"]
    both = _rates(a.figures).join(
        _rates(b.figures), on=key, how="full", coalesce=True, suffix="_b", maintain_order="left_right"
    )
    both = both.rename({"per_s": "per_s_a", "per_transaction": "per_transaction_a"})
    changed = (pl.col("per_s_a").fill_null(0) != 0) | (pl.col("per_s_b").fill_null(0) != 0)
    ratio = _transactions_ratio(a, b)
    total = (pl.col("database") == ALL) & (pl.col("figure") == "transactions")
    ends = [
        pl.when(total).then(pl.lit(None if ratio is None else end, pl.Float64)).alias(name)
        for name, end in (("low", ratio and ratio.low), ("high", ratio and ratio.high))
    ]
    rows = both.filter(changed).with_columns(_ratio("per_s"), _ratio("per_transaction"), *ends)
    return rows.sort(pl.col("database") != ALL, maintain_order=True)


def _rates(figures: IntervalFigures) -> pl.DataFrame:
    """Returns rows of each database and of the whole server."""
    names = [c.removesuffix(PER_S) for c in figures.databases.columns if c.endswith(PER_S)]
    first = ["transactions", "commits", "rollbacks", "logical_reads", "blocks_read", "blocks_hit"]
    rows = []
    for row in figures.databases.to_dicts():
        for name in sorted(names, key=lambda n: first.index(n) if n in first else len(first)):
            rows.append(_rate(row["database"], name, row[name + PER_S], row.get("transactions" + PER_S)))
    whole = figures.databases.filter(pl.col("database") == ALL)
    per_s = whole["transactions" + PER_S][0] if whole.height else None
    for name, (value, seconds) in figures.server.items():
        rows.append(_rate(ALL, name, None if value is None or seconds <= 0 else value / seconds, per_s))
    columns = {
        "database": pl.String,
        "figure": pl.String,
        "unit": pl.String,
        "per_s": pl.Float64,
        "per_transaction": pl.Float64,
    }
    return pl.DataFrame(rows, schema=columns, orient="row").unique(
        ["database", "figure", "unit"], keep="first", maintain_order=True
    )


def _rate(
    database: str, name: str, per_s: float | None, transactions: float | None
) -> tuple[str, str, str, float | None, float | None]:
    unit = "s" if name.endswith("_ns") else "bytes" if name.endswith("_bytes") else "count"
    unit = "blocks" if name in ("blocks_read", "blocks_hit", "logical_reads") else unit
    value = per_s if per_s is None or unit != "s" else per_s / NS_PER_S
    each = None if value is None or not transactions else value / transactions
    return database, name, unit, value, each


def _transactions_ratio(a: IntervalSide, b: IntervalSide) -> Ratio | None:
    rates = [
        [t / s for x in side.blocks for t, s in x.select("transactions", "seconds").head(1).rows() if t]
        for side in (a, b)
    ]
    return ratio_of(*rates)


def transactions_per_s(figures: IntervalFigures) -> float | None:
    """Returns transactions per second of all databases together; None if unknown."""
    row = figures.databases.filter(pl.col("database") == ALL)
    return None if row.is_empty() else row["transactions" + PER_S][0]


# Statements.


def _statements(a: IntervalSide, b: IntervalSide) -> pl.DataFrame:
    sides = [_rated(a.figures), _rated(_renumbered(b.figures, a.figures))]
    both = _joined(sides, list(_KEY))
    both = both.with_columns(
        _ratio("mean_ns"),
        delta=pl.col("time_per_s_b").fill_null(0) - pl.col("time_per_s_a").fill_null(0),
        delta_per_transaction=pl.col("time_per_transaction_b").fill_null(0)
        - pl.col("time_per_transaction_a").fill_null(0),
        status=pl.when(pl.col("lower_a").fill_null(False) | pl.col("lower_b").fill_null(False))
        .then(pl.lit("lower bound"))
        .otherwise(pl.lit("ok")),
    )
    texts = pl.concat([s.figures.interval.texts.select("query_id", "text") for s in (a, b)])
    both = both.join(texts.unique("query_id", keep="first"), on="query_id", how="left", maintain_order="left")
    both = _with_verdicts(both, a, b)
    order = pl.max_horizontal(pl.col("delta").abs(), 0)
    return both.sort(order, "time_per_s_b", "query_id", descending=True, nulls_last=True).drop(
        "lower_a", "lower_b"
    )


def _rated(figures: IntervalFigures) -> pl.DataFrame:
    per_s = transactions_per_s(figures)
    seconds = pl.col("seconds")
    time = pl.col("exec_ns") / NS_PER_S / seconds
    each = pl.lit(1 / per_s if per_s else None, pl.Float64)
    return figures.statements.select(
        *_KEY,
        calls_per_s=pl.col("calls") / seconds,
        time_per_s=time,
        calls_per_transaction=pl.col("calls") / seconds * each,
        time_per_transaction=time * each,
        mean_ns=pl.col("exec_ns") / pl.col("calls"),
        lower=pl.col("status").str.starts_with("lower"),
    )


def _renumbered(figures: IntervalFigures, baseline: IntervalFigures) -> IntervalFigures:
    """Returns statements with the baseline's ids where the text is equal: another server or version has other
    ids."""
    texts = [f.interval.texts.select("query_id", "text").unique("query_id") for f in (figures, baseline)]
    same = texts[0].join(texts[1].unique("text", keep="first"), on="text", suffix="_a")
    theirs = set(baseline.statements["query_id"].drop_nulls())
    known = {i: j for i, j in same.select("query_id", "query_id_a").iter_rows() if i not in theirs}
    if not known:
        return figures
    moved = figures.statements.with_columns(pl.col("query_id").replace(known))
    return replace(figures, statements=moved)


def _joined(sides: Sequence[pl.DataFrame], key: list[str]) -> pl.DataFrame:
    """Returns the columns of both sides with suffixes ``_a`` and ``_b``, and ``change``: new, gone or
    both."""
    named = [
        s.unique(key, keep="first", maintain_order=True)
        .rename({c: f"{c}_{n}" for c in s.columns if c not in key})
        .with_columns(pl.lit(True).alias(f"_{n}"))
        for s, n in zip(sides, "ab", strict=True)
    ]
    both = named[0].join(named[1], on=key, how="full", coalesce=True, nulls_equal=True)
    change = (
        pl.when(pl.col("_a").is_null())
        .then(pl.lit("new"))
        .when(pl.col("_b").is_null())
        .then(pl.lit("gone"))
        .otherwise(pl.lit("both"))
    )
    return both.with_columns(change=change).drop("_a", "_b")


def _with_verdicts(both: pl.DataFrame, a: IntervalSide, b: IntervalSide) -> pl.DataFrame:
    """Returns the statements with the ratio of mean times over blocks and its interval, if there are enough
    blocks."""
    means = [_means(side.blocks) for side in (a, b)]
    keys = both.filter(pl.col("change") == "both").select(_KEY).rows()
    ratios = {k: r for k in keys if (r := ratio_of(means[0].get(k, ()), means[1].get(k, ())))}
    adjusted = dict(zip(ratios, holm([r.p for r in ratios.values()]), strict=True))
    rows = []
    for key, change in zip(both.select(_KEY).iter_rows(), both["change"], strict=True):
        ratio = ratios.get(key)
        p = adjusted.get(key)
        word = "?" if change == "both" else change
        if ratio is not None and p is not None:
            word = "same" if p >= ALPHA else "slower" if ratio.value > 1 else "faster"
        rows.append((word, *((None,) * 3 if ratio is None else (ratio.value, ratio.low, ratio.high))))
    columns = {"change": pl.String, "blocks_ratio": pl.Float64, "low": pl.Float64, "high": pl.Float64}
    judged = both.drop("change").hstack(pl.DataFrame(rows, schema=columns, orient="row"))
    return judged.with_columns(mean_ns_ratio=pl.coalesce("blocks_ratio", "mean_ns_ratio")).drop(
        "blocks_ratio"
    )


def _means(blocks: Sequence[pl.DataFrame]) -> dict[tuple[Any, ...], list[float]]:
    """Returns the mean times in ns of each block in which a statement ended, by key."""
    means: dict[tuple[Any, ...], list[float]] = {}
    for block in blocks:
        ran = block.filter((pl.col("calls") > 0) & (pl.col("exec_ns") > 0))
        for *key, mean in ran.select(*_KEY, pl.col("exec_ns") / pl.col("calls")).iter_rows():
            means.setdefault(tuple(key), []).append(mean)
    return means


# Tables.


def _relations(a: IntervalFigures, b: IntervalFigures) -> pl.DataFrame:
    both = _joined([_accessed(a), _accessed(b)], list(_OBJECT))
    names = ("logical_reads", "rows_read", "rows_written")
    both = both.with_columns(
        *(_ratio(f"{n}_per_s") for n in names),
        delta=pl.col("logical_reads_per_s_b").fill_null(0) - pl.col("logical_reads_per_s_a").fill_null(0),
    )
    rows = pl.sum_horizontal(
        (pl.col(f"{n}_per_s_b").fill_null(0) - pl.col(f"{n}_per_s_a").fill_null(0)).abs() for n in names[1:]
    )
    return both.sort(pl.col("delta").abs(), rows, descending=True, nulls_last=True)


def _accessed(figures: IntervalFigures) -> pl.DataFrame:
    per_s = transactions_per_s(figures)
    comparable = figures.relations.filter(
        pl.col("status").is_in(["ok", "new", "remade", "index dropped", "partition dropped", *LOWER_BOUNDS])
    )
    counters = {
        "logical_reads": pl.sum_horizontal(_READS),
        "rows_read": pl.col("rows_read"),
        "rows_written": pl.col("rows_written"),
    }
    each = pl.lit(1 / per_s if per_s else None, pl.Float64)
    rates = {n: e / pl.col("seconds") for n, e in counters.items()}
    rates_by_table = comparable.select(
        *_OBJECT,
        **{f"{n}_per_s": r for n, r in rates.items()},
        **{f"{n}_per_transaction": r * each for n, r in rates.items()},
    )
    used = pl.any_horizontal(pl.col(f"{n}_per_s").fill_null(0) > 0 for n in counters)
    return rates_by_table.filter(used)


# -- claims --


def _claims(load: pl.DataFrame, statements: pl.DataFrame) -> Iterator[Claim]:
    total = load.filter((pl.col("database") == ALL) & (pl.col("figure") == "transactions"))
    for row in total.filter(pl.col("per_s_ratio").is_not_null()).to_dicts():
        value = Estimate(
            "ratio",
            row["per_s_ratio"],
            "ratio",
            row["low"],
            row["high"],
            "" if row["low"] is None else "Student's t of blocks",
        )
        values = {
            "a": row["per_s_a"],
            "b": row["per_s_b"],
            "ratio": row["per_s_ratio"],
            "low": row["low"],
            "high": row["high"],
        }
        yield claim("interval-transactions", values, value, parts=[] if row["low"] is None else ["interval"])
    notable = statements.filter((pl.col("delta").abs() >= NOTABLE_S) | (pl.col("change") == "slower"))
    for row in notable.head(_CLAIMS).to_dicts():
        yield _statement_claim(row)


def _statement_claim(row: dict[str, Any]) -> Claim:
    """Returns the claim of a statement. ``?`` and ``same`` mean that only the number of calls changed, or
    that its mean changed without a spread to judge it by."""
    change = row["change"]
    case = change if change in ("new", "gone", "slower", "faster") else "more" if row["delta"] > 0 else "less"
    text = shortened(one_line(" ".join((row["text"] or f"query id {row['query_id']}").split())), _LONGEST, 1)
    values = {
        "text": text,
        "database": row["database"] or "?",
        "query_id": row["query_id"],
        "time_a": fmt.seconds(row["time_per_s_a"] or 0.0),
        "time_b": fmt.seconds(row["time_per_s_b"] or 0.0),
        "mean_a": "?" if row["mean_ns_a"] is None else format_ns(row["mean_ns_a"]),
        "mean_b": "?" if row["mean_ns_b"] is None else format_ns(row["mean_ns_b"]),
        "calls_a": row["calls_per_s_a"] or 0.0,
        "calls_b": row["calls_per_s_b"] or 0.0,
        "ratio": row["mean_ns_ratio"],
        "low": row["low"],
        "high": row["high"],
    }
    value = None
    if row["mean_ns_ratio"] is not None:
        method = "" if row["low"] is None else "Student's t of blocks"
        value = Estimate("ratio", row["mean_ns_ratio"], "ratio", row["low"], row["high"], method)
    grave = case == "slower" or (case in ("new", "more") and row["delta"] >= 0.1)
    return claim(
        "interval-statement",
        values,
        value,
        case=case,
        each=str(row["query_id"] or "hidden"),
        severity="warning" if grave else "good" if case == "faster" else "note",
    )


def _conditions(a: IntervalSide, b: IntervalSide) -> Iterator[Claim]:
    """Yields the conditions that the comparison depends on."""
    blocks = [len(side.blocks) for side in (a, b)]
    values = {"a": blocks[0], "b": blocks[1], "least": LEAST_BLOCKS}
    yield claim("interval-spread", values, case="blocks" if min(blocks) >= LEAST_BLOCKS else "sums")
    one, other = a.figures.interval.last, b.figures.interval.last
    if one.server != other.server:
        yield claim("interval-servers", {"a": one.address, "b": other.address})
    bounded = [n for n, s in zip("AB", (a, b), strict=True) if _is_lower_bound(s.figures)]
    if bounded:
        yield claim("interval-resets", {"sides": " and ".join(bounded)})


def _is_lower_bound(figures: IntervalFigures) -> bool:
    return bool(figures.interval.resets or figures.interval.restarted or figures.interval.evictions)
