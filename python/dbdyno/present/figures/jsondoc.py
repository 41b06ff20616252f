"""Returns runs, comparisons, ladders and machines as JSON documents with stable keys; unknown is ``None``.

docs/json.md and docs/analyze.md explain each key.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import polars as pl

from dbdyno.model.plan.kinds import kind_of, speaking_of
from dbdyno.model.results.analyses import PARTS, Machines, Regression, Scaling
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.comparison import Comparison, SampleComparison
from dbdyno.model.results.results import Results
from dbdyno.model.schema.table import Table
from dbdyno.model.schema.tables import REGISTERED, empty
from dbdyno.model.sources.source import TRACE
from dbdyno.present.figures import headline, selection, sources_used
from dbdyno.present.figures.figures import is_observation

FORMAT = 1
"""Increased when a key of any of the documents changes its meaning or is removed, not for new keys."""


def document(results: Results, also: Collection[str] = ()) -> dict[str, Any]:
    """Returns identity, plan, environment, tables, sources, claims, comparison and scaling of a run.
    ``also``: tables that it leaves out otherwise, for their number of rows."""
    with speaking_of(kind_of(results.plan)):
        return {
            "format": FORMAT,
            "run": results.info.model_dump(mode="json"),
            "title": headline.title(results),
            "doubts": headline.doubt_sentences(results),
            "answer": [finding(f) for f in results.reply],
            "summary": headline.sentences(results),
            "plan": results.plan.model_dump(mode="json"),
            "environment": results.environment.model_dump(mode="json"),
            **tables(results, also),
            "sources": plain(results.tables["sources"]),
            "ledger_sources": [_tier(t) for t in sources_used.tiers(results)],
            "observation": _observation(results),
            "comparison": None if results.comparison is None else comparison(results.comparison),
            "scaling": [_scaling(s) for s in results.scaling],
            "answers": [_answer(a) for a in results.answers],
            "findings": [finding(f) for f in results.findings],
        }


def tables(results: Results, also: Collection[str] = ()) -> dict[str, list[dict[str, Any]]]:
    """Returns the rows of all tables that are registered for the JSON document, and of those of ``also``, by
    name and former names.

    Rows of single sessions are left out where the table says so.
    """
    shown = [table for table in REGISTERED.values() if table.shown and (table.json or table.name in also)]
    return by_name(
        shown, {t.name: _whole(results.tables.get(t.name, empty(t.name)), t.sessions) for t in shown}
    )


def by_name(records: Iterable[Table], frames: Mapping[str, pl.DataFrame]) -> dict[str, list[dict[str, Any]]]:
    """Returns the rows of tables under their names and, while :data:`FORMAT` is 1, their former names."""
    rows = {t.name: plain(frames[t.name]) for t in records}
    return rows | {older: rows[t.name] for t in records for older in t.older}


def _whole(rows: pl.DataFrame, sessions: str) -> pl.DataFrame:
    if sessions == "all":
        return rows
    for column in {"scope", "who"} & set(rows.columns):
        rows = rows.filter(pl.col(column) != "session")
    return rows


def _tier(tier: sources_used.Tier) -> dict[str, Any]:
    """Returns the data source of waits, its tier, and the number of cells that used it."""
    kind = "exact" if tier.source == TRACE else "sampled"
    return {"source": tier.source, "tier": kind, "cells": tier.cells}


def _observation(results: Results) -> dict[str, Any] | None:
    """Returns events and microstates of all windows of an observation together; None for other runs."""
    if not is_observation(results):
        return None
    tables = {"events": selection.events(results), "microstates": selection.microstates(results)}
    return {name: plain(table) for name, table in tables.items()}


def finding(claim: Claim) -> dict[str, Any]:
    """Returns a claim of a run with its figure in flat keys."""
    figure = {"value": None, "unit": "", "low": None, "high": None}
    if claim.value is not None:
        figure = {key: plain(getattr(claim.value, key)) for key in figure}
    named = {"id": claim.id, "severity": claim.severity, "subject": claim.subject, "claim": claim.text}
    return {**named, **figure, "evidence": claim.evidence, "cure": claim.advice, "cells": list(claim.cells)}


def _answer(claim: Claim) -> dict[str, Any]:
    """Returns a claim of a ladder."""
    return {"id": claim.id, "claim": claim.text, "value": plain(claim.value), "evidence": claim.evidence}


def comparison(compared: Comparison | SampleComparison) -> dict[str, Any]:
    """Returns a comparison of runs, of variants, or of two files of numbers."""
    return {"format": FORMAT, **compared.model_dump(mode="json")}


def scaling(scalings: Sequence[Scaling]) -> dict[str, Any]:
    """Returns the fits and answers of ladders; values that are not finite become None."""
    return {"format": FORMAT, "scalings": [_scaling(s) for s in scalings]}


def _scaling(scaling: Scaling) -> dict[str, Any]:
    """Returns one ladder: its points, all fits (the best first), the curve, the residuals, the answers."""
    ladder = scaling.ladder
    ladders = {key: getattr(ladder, key) for key in _LADDER}
    record: dict[str, Any] = plain(
        {
            **ladders,
            "best": scaling.best.model if scaling.best else None,
            "fits": scaling.fits,
            "answers": [_answer(a) for a in scaling.answers],
            "regressions": [regression(r) for r in scaling.regressions],
            "refused": scaling.refused,
            "notes": [*ladder.notes, *scaling.notes],
            "points": ladder.points,
            "residuals": scaling.residuals,
            "curve": scaling.curve,
        }
    )
    return record


_LADDER = ("name", "load_unit", "throughput_unit", "of_work", "machine", "think_s")


def regression(fitted: Regression) -> dict[str, Any]:
    """Returns CPU per unit of work in one range of loads."""
    parts = {p.name: plain(p) for p in fitted.parts}
    named = {n: {k: v for k, v in parts[n].items() if k != "name"} for n in PARTS if n in parts}
    return {**plain(fitted), "parts": named}


def machines(compared: Comparison | None, pairs: Iterable[Machines]) -> dict[str, Any]:
    """Returns the comparison with a key ``machines``; if ``compared`` is None, the machines alone."""
    document = {"format": FORMAT} if compared is None else comparison(compared)
    records = [_machines(pair) for pair in pairs]
    return {**document, "machines": records} if records else document


def _machines(machines: Machines) -> dict[str, Any]:
    """Returns a pair of ladders."""
    record = plain(machines)
    speeds = [record[k] for k in ("one_session", "peak", "per_core", "per_thread", "per_cpu_second")]
    for speed in (*speeds, *(at[k] for at in record["at_loads"] for k in ("throughput", "response"))):
        speed["reason"] = speed["reason"] or None
    a, b, loads = (record.pop(k) for k in ("a", "b", "peak_loads"))
    return {
        **record,
        "claims": [c.text for c in machines.claims],
        "notes": [n.text for n in machines.notes],
        "format": FORMAT,
        "ladders": [a["name"], b["name"]],
        "machines": [a["machine"], b["machine"]],
        "throughput_unit": a["throughput_unit"],
        "load_unit": a["load_unit"],
        "peak": {**record["peak"], "loads": loads},
    }


def plain(value: Any) -> Any:
    """Converts a value of the model to JSON types: dataclasses and rows become objects, infinite or NaN
    None."""
    if isinstance(value, pl.DataFrame):
        return plain(value.to_dicts())
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
