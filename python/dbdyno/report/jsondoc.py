"""A run as one JSON document with stable keys: docs/json.md says what each means."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from dbdyno.model.results import Results
from dbdyno.report import headline

FORMAT = 1
"""Raised when a key changes its meaning or goes; new keys do not raise it."""

_TABLES = ("rungs", "windows", "witnesses", "sources")


def document(results: Results) -> dict[str, Any]:
    """Identity, plan, environment, rungs, ledger of rungs and helpers, findings, sources; unknown is None."""
    tables = results.tables
    whole = tables["ledger"].filter(pl.col("scope") != "session")
    rates = tables["rates"].filter(pl.col("scope") == "rung")
    return {
        "format": FORMAT,
        "run": results.info.model_dump(mode="json"),
        "title": headline.title(results),
        "summary": headline.sentences(results),
        "plan": results.plan.model_dump(mode="json"),
        "environment": results.environment.model_dump(mode="json"),
        **{name: records(tables[name]) for name in _TABLES},
        "rates": records(rates),
        "ledger": records(whole),
        "findings": [f.model_dump(mode="json") for f in results.findings],
    }


def records(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows as dicts that JSON can hold: NaN and infinity, which it cannot, are unknown too."""
    return [{k: _value(v) for k, v in row.items()} for row in frame.to_dicts()]


def _value(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
