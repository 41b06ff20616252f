"""How the waits of the ledger were measured: at every switch, or by samples; and what would be better."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from dbdyno.model.results import Results
from dbdyno.model.source import TRACE
from dbdyno.present.accounts import POOLER
from dbdyno.present.missing_values import in_words

_ESTIMATED = "Seconds by event are estimated; their sums (CPU, run queue, sleep) are exact."
_WORDS = {
    TRACE: "Waits{where}: exact. The scheduler trace measures sleep and run queue at every switch.",
    "wait event word, raked": f"Waits{{where}}: sampled from the server's memory{{hz}}. {_ESTIMATED}",
    "activity samples, raked": f"Waits{{where}}: sampled from the server's activity view{{hz}}. {_ESTIMATED}",
    "activity samples, the server's word alone": "Waits{where}: sampled from the server's activity view{hz}. "
    "The server's processes are not visible, so sleep and run queue are not separated.",
}
_READS = {"wait event word, raked": "wait event word"}
_SAMPLES = "activity samples"


class Tier(NamedTuple):
    """One data source of the waits, and for how many measurements it was used."""

    source: str
    cells: int

    @property
    def short(self) -> str:
        """For a table's caption."""
        name, *_ = self.source.split(",")
        return f"{'exact' if self.source == TRACE else 'sampled'} ({name})"


def tiers(results: Results, cell: str | None = None) -> list[Tier]:
    """The data sources of table events, the most used first; of one cell, or of all."""
    silent = (pl.col("status") == "no samples") | (pl.col("source") == POOLER)
    rows = results.tables["events"].filter((pl.col("scope") == "rung") & ~silent)
    if cell is not None:
        rows = rows.filter(pl.col("cell") == cell)
    rows = rows.select("cell", pl.col("source").str.split("; ")).explode("source")
    counted = rows.group_by("source", maintain_order=True).agg(pl.col("cell").n_unique())
    return [Tier(s, n) for s, n in counted.sort("cell", descending=True, maintain_order=True).rows()]


def caption(results: Results, cell: str | None = None) -> str:
    """``Waits: exact (scheduler trace).``"""
    found = tiers(results, cell)
    return f"Waits: {' and '.join(t.short for t in found) or 'not available'}."


def named(source: str) -> str:
    """Data sources as tables name them, for readers: ``wait event word, sampled``."""
    return source.replace(", raked", ", sampled")


def words(results: Results) -> list[str]:
    """Sentences: how waits were measured, then why not better, and the cure."""
    found = tiers(results)
    whole = results.tables["windows"].height
    told = [_tier(results, t, whole) for t in found]
    if not found:
        told.append("Waits: unknown. No data source read them together with the tasks.")
    if {t.source for t in found} != {TRACE}:
        told += _cures(results, found)
    return told


def _tier(results: Results, tier: Tier, whole: int) -> str:
    where = f" ({tier.cells} of {whole} {_cells(results)})" if tier.cells < whole else ""
    text = _WORDS.get(tier.source, f"Waits{{where}}: {tier.source}.")
    return text.format(hz=_rate(results, tier.source), where=where)


def _cells(results: Results) -> str:
    return "measurements" if results.plan.experiment.observation is None else "windows"


def _rate(results: Results, source: str) -> str:
    """How often it was asked: the activity view's rate is the plan's; the memory's its source says."""
    if source.startswith(_SAMPLES):
        return f" at {results.plan.experiment.sample_hz:g} Hz"
    name = _READS.get(source, "")
    reads = results.tables["sources"].filter((pl.col("name") == name) & (pl.col("status") == "ok"))
    told: list[str] = reads["provenance"].str.extract(r"(\d[\d.]*) ?Hz").drop_nulls().to_list()
    return f" at {told[0]} Hz" if told else ""


def _cures(results: Results, found: list[Tier]) -> list[str]:
    """Why better data sources were not used."""
    better = [TRACE]
    if not any(t.source == "wait event word, raked" for t in found):
        better.append("wait event word")
    rows = results.tables["sources"].filter(pl.col("name").is_in(better) & (pl.col("status") != "ok"))
    return [
        f"More exact: the {name}. It was not used: {in_words(status)}{f'; {detail}' if detail else ''}."
        for name, status, detail in rows.select("name", "status", "detail").unique(maintain_order=True).rows()
    ]
