"""A run as one JSON document with stable keys: docs/json.md says what each means."""

from __future__ import annotations

from typing import Any

import polars as pl

from dbdyno.model.results import Results
from dbdyno.model.source import TRACE
from dbdyno.model.tables import empty
from dbdyno.present import compare_json, headline, scaling_record, selection, sources_used
from dbdyno.present.claim_record import answer_record, finding_record
from dbdyno.present.figures import is_observation
from dbdyno.present.plain import plain

FORMAT = 1
"""Raised when a key changes its meaning or goes; new keys do not raise it."""

_TABLES = ("rungs", "windows", "witnesses", "sources", "placements")
_LEDGER = ("microstates", "profile", "top_events")


def document(results: Results) -> dict[str, Any]:
    """Identity, plan, environment, rungs, ledger of rungs and helpers, findings, sources; unknown is None."""
    tables = results.tables
    whole, events = (tables[n].filter(pl.col("scope") != "session") for n in ("ledger", "events"))
    rates = tables["rates"].filter(pl.col("scope") == "rung")
    return {
        "format": FORMAT,
        "run": results.info.model_dump(mode="json"),
        "title": headline.title(results),
        "summary": headline.sentences(results),
        "plan": results.plan.model_dump(mode="json"),
        "environment": results.environment.model_dump(mode="json"),
        **{name: plain(tables.get(name, empty(name))) for name in _TABLES},
        "rates": plain(rates),
        "ledger": plain(whole.filter(pl.col("who") != "session")),
        "ledger_witnesses": [_tier(t) for t in sources_used.tiers(results)],
        "events": plain(events),
        **{name: plain(tables[name]) for name in _LEDGER},
        "observation": _observation(results),
        "comparison": None if results.comparison is None else compare_json.document(results.comparison),
        "scaling": [scaling_record.record_of(s) for s in results.scaling],
        "answers": [answer_record(a) for a in results.answers],
        "findings": [finding_record(f) for f in results.findings],
    }


def _tier(found: sources_used.Tier) -> dict[str, Any]:
    """Which data source the waits of how many cells are from."""
    kind = "exact" if found.source == TRACE else "sampled"
    return {"source": found.source, "tier": kind, "cells": found.cells}


def _observation(results: Results) -> dict[str, Any] | None:
    """Of an existing workload: all windows together. Their profile and top events have the cell ``all``."""
    if not is_observation(results):
        return None
    return {
        "events": plain(selection.events(results)),
        "microstates": plain(selection.microstates(results)),
    }
