"""Why a figure is unknown, and what would make it known."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from dbdyno.model.results import Results

# Column of table rungs -> where its status stands.
_RATES = (
    *("calls_per_s", "work_per_s", "work_per_call", "cpu_per_call_ns", "cpu_per_work_ns"),
    *(f"response_{s}_ns" for s in ("mean", "p50", "p95", "p99", "max")),
)
_LEDGER = {
    "run_aas": ("rung", "run"),
    "runq_aas": ("rung", "runq"),
    "sleep_aas": ("rung", "sleep"),
    "client_aas": ("rung", "client"),
    "pool_queue_aas": ("rung", "pool.queue"),
    "unaccounted_aas": ("rung", "unaccounted"),
    "helpers_aas": ("helper", "run"),
}
# Where no row says why: the source that would have told.
_WITNESS = {"helpers_aas": "os tasks", "driver_cpus": "driver tasks", "driver_starved": "driver tasks"}
_WORDS = {
    "not here": "the server's processes are not seen from here",
    "not permitted": "a right is missing",
    "not supported": "this kernel or server version does not offer it",
    "off": "it was switched off",
    "lost": "the source broke off",
    "vanished": "the process ended while it was read",
    "too brief": "many sessions were too brief to be sampled",
    "shared": "sessions take turns on the server connections of a pool",
}
_OPTIONAL = ("pool_queue_aas",)
"""Not unknown but not there, where no row of the ledger says otherwise: a rung without a pooler."""
_FIXED = {
    "scaling": "the rate of this rung or of the lowest one is unknown",
    "top_wait": "no wait was seen, or there were no activity samples",
}


class Unknown(NamedTuple):
    """One reason for unknown figures."""

    column: str
    why: str
    cure: str


def reasons(results: Results, columns: tuple[str, ...]) -> list[Unknown]:
    """One line for each of ``columns`` of table ``rungs`` that holds a NULL."""
    rungs = results.tables["rungs"]
    absent = [c for c in columns if c in rungs.columns and rungs[c].null_count()]
    return [_reason(results, c) for c in absent if c not in _OPTIONAL or _evidence(results, c).height]


def grouped(unknowns: list[Unknown]) -> dict[tuple[str, str], list[str]]:
    """Columns by their common (why, cure)."""
    groups: dict[tuple[str, str], list[str]] = {}
    for u in unknowns:
        groups.setdefault((u.why, u.cure), []).append(u.column)
    return groups


def in_words(status: str) -> str:
    """A status of the schema as a clause."""
    return _WORDS.get(status, status)


def _reason(results: Results, column: str) -> Unknown:
    if column in _FIXED:
        return Unknown(column, _FIXED[column], "")
    rows = _evidence(results, column)
    failed = rows.filter(pl.col("status") != "ok").select("status", "source").unique(maintain_order=True)
    if failed.is_empty() and column in _WITNESS:
        named = results.tables["sources"].filter(pl.col("name") == _WITNESS[column])
        failed = named.filter(pl.col("status") != "ok").select("status", pl.col("name").alias("source"))
    if failed.is_empty():
        return Unknown(column, "no source gave it", "see the table of sources")
    why = "; ".join(f"{source}: {in_words(status)}" for status, source in failed.rows())
    return Unknown(column, why, _cure(results, failed["source"].to_list()))


def _evidence(results: Results, column: str) -> pl.DataFrame:
    if column in _LEDGER:
        scope, account = _LEDGER[column]
        named = (pl.col("account") == account) | pl.col("account").str.starts_with(f"{account}.")
        rows = results.tables["ledger"].filter((pl.col("scope") == scope) & named)
        return rows.filter(pl.col("aas").is_null())
    name = column if column in _RATES else ""
    rates = results.tables["rates"]
    return rates.filter((pl.col("scope") == "rung") & (pl.col("name") == name) & pl.col("value").is_null())


def _cure(results: Results, names: list[str]) -> str:
    """What would make the failing sources available, as they say."""
    sources = results.tables["sources"].filter(pl.col("name").is_in(names) & (pl.col("status") != "ok"))
    return "; ".join(dict.fromkeys(d for d in sources["detail"].to_list() if d))
