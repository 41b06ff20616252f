"""The views that SQL sees: the tables of all runs of a store, the run in front of each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dbdyno.model.column import Column, Type
from dbdyno.model.derived import DERIVED
from dbdyno.model.rawtables import RAW

_SQL_TYPES: dict[Type, str] = {"i64": "BIGINT", "f64": "DOUBLE", "str": "VARCHAR", "bool": "BOOLEAN"}
_SUFFIXES = {
    "_ns2": "ns²", "_ns": "ns", "_per_s": "1/s", "_s": "s", "_seconds": "s", "_aas": "s/s",
    "_bytes": "bytes", "_kib": "KiB", "_mhz": "MHz", "_ticks": "clock ticks",
}  # fmt: skip
_PER_SECOND = "seconds per second"


class ViewColumn(NamedTuple):
    name: str
    type: str  # as SQL names it
    unit: str  # empty: none; "unit": the column unit beside it says it
    doc: str


class View(NamedTuple):
    holds: str  # what kind of table it is
    columns: tuple[ViewColumn, ...]


OF_RUN = (
    ViewColumn("run_id", "VARCHAR", "", "the run's id"),
    ViewColumn("started", "TIMESTAMP", "", "start of the run, UTC, to the second"),
    ViewColumn("title", "VARCHAR", "", "workload, script or name of the recipe, as in the run's id"),
)
"""The first columns of each view; all three come from the run's id."""
_CELL = ViewColumn("cell", "VARCHAR", "", "the measurement: number, workload, variant, sessions, repeat")
RUNS = (
    ViewColumn("ended", "TIMESTAMP", "", "end of the run, UTC; NULL: running, or cut short"),
    ViewColumn("status", "VARCHAR", "", "running | complete | cut short"),
    ViewColumn("reason", "VARCHAR", "", "why it was cut short"),
    ViewColumn("dbdyno", "VARCHAR", "", "version that measured"),
    ViewColumn("workload", "VARCHAR", "", "NULL: own SQL, or an observation"),
    ViewColumn("engine", "VARCHAR", "", "what was under load"),
    ViewColumn("server", "VARCHAR", "", "version of the server"),
    ViewColumn("address", "VARCHAR", "", "host and port or socket directory, database, user"),
    ViewColumn("cpu", "VARCHAR", "", "model of the processor"),
    ViewColumn("cpus", "DOUBLE", "CPUs", "usable: by affinity and quota"),
    ViewColumn("kernel", "VARCHAR", "", "of the host"),
    ViewColumn("digest", "VARCHAR", "", "of the plan: equal for equal plans"),
)
"""Further columns of the view ``runs``."""
CLAIMS = (
    ViewColumn("id", "VARCHAR", "", "which claim: driver-starved, peak, ..."),
    ViewColumn("severity", "VARCHAR", "", "good | note | warning | invalid"),
    ViewColumn("subject", "VARCHAR", "", "what it is about, where there are several"),
    ViewColumn("claim", "VARCHAR", "", "the sentence"),
    ViewColumn("value", "DOUBLE", "unit", "its figure"),
    ViewColumn("unit", "VARCHAR", "", "of value, low and high"),
    ViewColumn("low", "DOUBLE", "unit", "lower end of its interval"),
    ViewColumn("high", "DOUBLE", "unit", "upper end"),
    ViewColumn("evidence", "VARCHAR", "", "which table and figures it rests on"),
    ViewColumn("cure", "VARCHAR", "", "what to do about it"),
    ViewColumn("cells", "VARCHAR[]", "", "the measurements it is about; empty: the whole run"),
)
"""Further columns of the view ``claims``."""


def views() -> Mapping[str, View]:
    """All views by name, those that are asked for most first."""
    return {
        "runs": View("one row for each run", (*OF_RUN, *RUNS)),
        "claims": View("what was concluded", (*OF_RUN, *CLAIMS)),
        **{name: View("derived", (*OF_RUN, *_columns(DERIVED[name]))) for name in _derived_in_order()},
        **{name: View("raw", (*OF_RUN, _CELL, *_columns(found))) for name, found in RAW.items()},
    }


def _derived_in_order() -> list[str]:
    first = [name for name in ("rungs", "ledger", "events") if name in DERIVED]
    return [*first, *(name for name in DERIVED if name not in first)]


def _columns(columns: tuple[Column, ...]) -> tuple[ViewColumn, ...]:
    has_unit = any(c.name == "unit" for c in columns)
    found: list[ViewColumn] = []
    for c in columns:
        unit = found[-1].unit if c.name in ("low", "high") else _unit(c, has_unit)
        found.append(ViewColumn(c.name, _SQL_TYPES[c.type], unit, c.doc))
    return tuple(found)


def _unit(column: Column, has_unit: bool) -> str:
    """By the column's name, else by what is said of it."""
    if column.type not in ("i64", "f64"):
        return ""
    if _PER_SECOND in column.doc or column.name == "aas":
        return "s/s"
    if has_unit and column.name in ("value", "tolerance", "total"):
        return "unit"
    name = "_" + column.name.removesuffix("_low").removesuffix("_high")
    return next((unit for end, unit in _SUFFIXES.items() if name.endswith(end)), "")
