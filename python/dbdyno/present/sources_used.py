"""Which witness filled the ledger: measured at every switch, or sampled, and what would make it better."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from dbdyno.model.results import Results
from dbdyno.present.accounts import EXACT, POOLER
from dbdyno.present.missing_values import in_words

_WORDS = {
    EXACT: "scheduler trace, exact: sleep and run queue are measured at every switch of every task, "
    "not sampled",
    "wait event word, raked": "sampled: wait event word read from the server's memory{hz}, "
    "raked to the exact margins (run, run queue, off)",
    "activity samples, raked": "sampled: the server's activity view{hz}, raked to the exact margins "
    "(run, run queue, off)",
    "activity samples, the server's word alone": "sampled: the server's activity view{hz}, its word alone: "
    "the tasks are not visible, so sleep and run queue cannot be separated",
}
_READS = {"wait event word, raked": "wait event word"}
_SAMPLES = "activity samples"


class Tier(NamedTuple):
    """One witness of the joint table, and how many cells it filled."""

    source: str
    cells: int

    @property
    def short(self) -> str:
        """For a table's caption."""
        return f"{self.source}{', exact' if self.source == EXACT else ''}"


def tiers(results: Results, cell: str | None = None) -> list[Tier]:
    """The witnesses of table events, the commonest first; of one cell, or of all."""
    silent = (pl.col("status") == "no samples") | (pl.col("source") == POOLER)
    rows = results.tables["events"].filter((pl.col("scope") == "rung") & ~silent)
    if cell is not None:
        rows = rows.filter(pl.col("cell") == cell)
    rows = rows.select("cell", pl.col("source").str.split("; ")).explode("source")
    counted = rows.group_by("source", maintain_order=True).agg(pl.col("cell").n_unique())
    return [Tier(s, n) for s, n in counted.sort("cell", descending=True, maintain_order=True).rows()]


def caption(results: Results, cell: str | None = None) -> str:
    """``Witness: scheduler trace, exact.``"""
    found = tiers(results, cell)
    return f"Witness: {' and '.join(t.short for t in found)}." if found else "Witness: none."


def words(results: Results) -> list[str]:
    """Sentences: which tier filled the ledger, then what kept a better one away and the cure."""
    found = tiers(results)
    whole = results.tables["windows"].height
    told = [_tier(results, t, whole) for t in found]
    if not found:
        told.append("No witness saw waits and tasks together: the ledger has no joint table.")
    if {t.source for t in found} != {EXACT}:
        told += _cures(results, found)
    return told


def _tier(results: Results, tier: Tier, whole: int) -> str:
    text = _WORDS.get(tier.source, tier.source).format(hz=_rate(results, tier.source))
    where = f" ({tier.cells} of {whole} {_cells(results)})" if tier.cells < whole else ""
    return f"{text[:1].upper()}{text[1:]}{where}."


def _cells(results: Results) -> str:
    return "cells" if results.plan.experiment.observation is None else "windows"


def _rate(results: Results, source: str) -> str:
    """How often it was asked: the activity view's rate is the plan's; the memory's its source says."""
    if source.startswith(_SAMPLES):
        return f" at {results.plan.experiment.sample_hz:g} Hz"
    name = _READS.get(source, "")
    reads = results.tables["sources"].filter((pl.col("name") == name) & (pl.col("status") == "ok"))
    told: list[str] = reads["provenance"].str.extract(r"(\d[\d.]*) ?Hz").drop_nulls().to_list()
    return f" at {told[0]} Hz" if told else ""


def _cures(results: Results, found: list[Tier]) -> list[str]:
    """Why the better witnesses were not to be had."""
    better = [EXACT]
    if not any(t.source == "wait event word, raked" for t in found):
        better.append("wait event word")
    rows = results.tables["sources"].filter(pl.col("name").is_in(better) & (pl.col("status") != "ok"))
    return [
        f"Better would be the {name}: {in_words(status)}{f'; {detail}' if detail else ''}."
        for name, status, detail in rows.select("name", "status", "detail").unique(maintain_order=True).rows()
    ]
