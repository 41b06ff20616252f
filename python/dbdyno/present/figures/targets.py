"""Finds the chart, row or section of a document that shows the figure of a claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dbdyno.model.results.claim import Claim
from dbdyno.model.results.results import Results
from dbdyno.present.document.document import Block, Chart, PageLink, Section, Table, walk
from dbdyno.present.figures import figures

_PLACES = {
    "throughput": ("peak", "scales-to", "scales-to-the-top", "scaling-limit", "target", "auto-ladder"),
    "stack-aas": ("session-time", "cpu-wait", "throttled", "unaccounted", "ledger-closes", "pool-queue"),
    "timeline": ("activity", "observation-gap"),
    "top": ("lock-bound", "hidden-run-queue", "idle-busy", "naive-cpu"),
    "commands": ("speed-up", "commands-compared", "orders", "command-time"),
    "executions": ("executions-failed", "execution-outliers", "first-execution", "serial-time"),
    "heat": ("response-modes", "slow-calls"),
    "spread": ("uneven-sessions",),
    "sessions": ("drift", "level-step"),
    "rungs": (
        *("client-limited", "driver-starved", "driver-share", "errors", "no-calls", "cell-short"),
        "variants-unmeasured",
        *("cell-invalid", "check-failed", "steal", "long-calls", "window-short", "sessions-lost"),
    ),
    "helpers": ("helpers", "io-workers", "parallel-workers", "autovacuum", "checkpoint"),
    "cross-check": (
        *("foreign-load", "cpu-differs", "work-constant", "work-not-constant", "executions-agree"),
        *("executions-disagree", "writes-as-planned", "writes-unexpected"),
    ),
    "profile": ("not-cached", "hardly-physical", "os-cached"),
    "plan": ("one-repeat",),
    "methods": ("data-sources-used", "not-measured", "few-samples", "sampler-starved", "sampler-late"),
    "comparison": ("rank",),
    "placement": tuple(f"placement-{what}" for what in ("groups", "all-share", "alike", "settled", "moved")),
}
_PLACE = {claim: place for place, claims in _PLACES.items() for claim in claims}
_ELSE = {"stack-aas": "timeline", "helpers": "cross-check", "spread": "sessions", "rungs": "timeline"}
"""Replacements for places that a document does not have."""


def row_id(number: int, sessions: int, rate_per_s: float | None = None) -> str:
    """Returns the id of a row in the table of rungs: number of the ladder in the run, sessions and rate."""
    return f"at-{number}-{sessions}" + ("" if rate_per_s is None else f"-{rate_per_s:g}")


Pages = Sequence[PageLink]
"""A server's pages about a claim."""


def no_pages(_: Claim) -> Pages:
    return ()


class Targets:
    """The ids of a document's blocks, by the claims that they show.

    ``pages``: returns those on which a server has more about a claim.
    """

    def __init__(
        self, results: Results, blocks: Iterable[Block], pages: Callable[[Claim], Pages] = no_pages
    ) -> None:
        self.pages = pages
        self._series = figures.series_of(results)
        self._windows = {w["cell"]: w for w in results.tables["windows"].to_dicts()}
        self._ids: list[tuple[str, str]] = []  # id, title
        for block in walk(blocks):
            if isinstance(block, Section | Chart) and block.id:
                self._ids.append((block.id, block.title))
            elif isinstance(block, Table):
                self._ids += [(row.id, "") for row in block.rows if row.id]

    def block_id(self, claim: Claim) -> str:
        """Returns the id of the block that shows a claim; empty without one."""
        place = _PLACE.get(claim.id, "")
        rows = {self._row(c) for c in claim.cells}
        if place == "rungs" and len(rows) == 1:
            place = rows.pop()
        return self.named(place, claim.subject) or self.named(_ELSE.get(place, ""), claim.subject)

    def named(self, place: str, subject: str = "") -> str:
        """Returns the id of a chart, section or row by its name; among several charts, the one of
        ``subject``."""
        candidates = [
            (i, title) for i, title in self._ids if place and (i == place or i.endswith(f"-{place}"))
        ]
        of_subject = [
            i for i, title in candidates if ": " in title and subject.endswith(title.rpartition(": ")[2])
        ]
        return next(iter([*of_subject, *(i for i, _ in candidates)]), "")

    def _row(self, cell: str) -> str:
        window = self._windows.get(cell)
        ladders = [(s.workload, s.variant) for s in self._series]
        key = None if window is None else (window["workload"], window["variant"])
        if window is None or key not in ladders:
            return ""
        return row_id(ladders.index(key), window["sessions"], window["rate_per_s"])
