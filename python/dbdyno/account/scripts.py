"""Tables of scripts: of each cell, and of all cells of a load together (cell ``all``). Pure.

A script's calls per second are its share of those of all sessions, so that they add up. Quantiles of
several cells come from all their calls together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from dbdyno.account.making import makes
from dbdyno.account.window.cells import key
from dbdyno.model.results.ledger_rows import groups
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.quantiles import QUANTILES
from dbdyno.model.schema.tables import Tables, conform, empty, known_quantiles_ns, sum_of_known

_CELL = [c.name for c in CELL]
_BY = {
    "script_rates": ["script", "name", "weight"],
    "command_rates": ["script", "name", "command", "line", "text"],
    "script_failures": ["script", "name", "kind", "code"],
    "script_durations": ["script", "low_ns", "high_ns"],
}
NAMES = tuple(_BY)
_SUMS = {
    "script_rates": ["calls", "errors", "retried", "retries", "in_call_ns"],
    "command_rates": ["executions", "failures", "retries", "total_ns"],
    "script_failures": ["count"],
    "script_durations": ["count"],
}
_QUANTILES = {f"{one.key}_ns": one.q for one in QUANTILES}


@makes(*NAMES)
def scripts(cells: Sequence[RawCell], rates: pl.DataFrame, kinds: Callable[[], Mapping[str, str]]) -> Tables:
    """Returns the tables of these cells, from the driver's tables and ``rates``. ``kinds`` loads the kind
    of failure by the server's error code."""
    frames_by_name: dict[str, list[pl.DataFrame]] = {name: [empty(name)] for name in NAMES}
    for cell in cells:
        if "scripts" not in cell.tables or cell.tables["scripts"].is_empty():
            continue
        raw = _raw(cell, kinds())
        for name, frame in _figures(key(cell), raw, _rate(rates, [cell.id])).items():
            frames_by_name[name].append(frame)
    return {name: pl.concat(frames) for name, frames in frames_by_name.items()}


@makes(*NAMES, stage="total")
def scripts_total(tables: Tables) -> Tables:
    """Returns the same tables over all usable cells of a workload, variant and load together."""
    frames_by_name: dict[str, list[pl.DataFrame]] = {name: [empty(name)] for name in NAMES}
    for head, cells in groups(tables["windows"]):
        ids = [w["cell"] for w in cells]
        in_load = {name: tables[name].filter(pl.col("cell").is_in(ids)) for name in NAMES}
        if in_load["script_rates"].height:
            for name, frame in _figures(head, in_load, _rate(tables["rates"], ids)).items():
                frames_by_name[name].append(frame)
    return {name: pl.concat(frames) for name, frames in frames_by_name.items()}


def _raw(cell: RawCell, kinds: Mapping[str, str]) -> Tables:
    """Returns the driver's tables with the names of scripts and the kinds of failures."""
    raw = cell.tables
    names = raw["scripts"].select("script", "name").unique()
    tables = {"script_rates": raw["scripts"], "script_durations": raw["script_histogram"]}
    for name, derived_name in (("script_commands", "command_rates"), ("script_errors", "script_failures")):
        known = name in raw
        tables[derived_name] = (
            raw[name].join(names, on="script", maintain_order="left") if known else empty(derived_name)
        )
    if "sqlstate" in tables["script_failures"].columns:
        kind = pl.col("code").replace_strict(kinds, default="other", return_dtype=pl.String)
        tables["script_failures"] = (
            tables["script_failures"].rename({"sqlstate": "code"}).with_columns(kind=kind)
        )
    return tables


def _figures(head: Mapping[str, object], raw: Tables, rate: float | None) -> Tables:
    """Returns sums over sessions and cells, with means and shares."""
    derived = {}
    for name, by in _BY.items():
        more = [pl.col("message").first()] if name == "script_failures" else []
        more += [pl.col("max_ns").max()] if name in ("script_rates", "command_rates") else []
        known = [sum_of_known(n) for n in _SUMS[name]]
        derived[name] = raw[name].group_by(by, maintain_order=True).agg(*known, *more).sort(by[0])
    commands = derived["command_rates"].sort("script", "command")
    total = pl.col("total_ns")
    derived["command_rates"] = commands.with_columns(
        mean_ns=_ratio(total, pl.col("executions")), time_share=_ratio(total, total.sum().over("script"))
    )
    derived["script_rates"] = _with_shares(derived["script_rates"], derived["script_durations"], rate)
    named = [pl.lit(head[k]).alias(k) for k in _CELL]
    return {name: conform(name, frame.with_columns(named)) for name, frame in derived.items()}


def _with_shares(frame: pl.DataFrame, histogram: pl.DataFrame, rate: float | None) -> pl.DataFrame:
    calls, spent = pl.col("calls"), pl.col("in_call_ns")
    share = _ratio(calls, calls.sum())
    qs = list(_QUANTILES.values())
    rows = [known_quantiles_ns(histogram.filter(pl.col("script") == n), qs) for n in frame["script"]]
    quantiles = pl.DataFrame(rows, schema=dict.fromkeys(_QUANTILES, pl.Int64), orient="row")
    return frame.with_columns(
        *quantiles,
        calls_share=share,
        time_share=_ratio(spent, spent.sum()),
        mean_ns=_ratio(spent, calls),
        calls_per_s=share * pl.lit(rate, pl.Float64),
    )


def _rate(rates: pl.DataFrame, cells: Sequence[str]) -> float | None:
    """Returns calls per second of all sessions: the mean over these cells; None if unknown."""
    of_cells = (pl.col("scope") == "rung") & (pl.col("name") == "calls_per_s")
    known = rates.filter(of_cells & pl.col("cell").is_in(cells))["value"].drop_nulls()
    return None if known.is_empty() else float(known.mean())  # type: ignore[arg-type]


def _ratio(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    return pl.when(whole > 0).then(part / whole)
