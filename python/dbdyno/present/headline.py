"""The answer of a run or an observation: its title, its first claims, and the figures of its ladders."""

from __future__ import annotations

from typing import Any, NamedTuple

from dbdyno.model.environment import ServerFacts
from dbdyno.model.raw import LEFT_OUT
from dbdyno.model.results import Results
from dbdyno.present import figures, observation
from dbdyno.present.figures import Series

FIRST = "client-limited"
PARAGRAPH = ("nothing-measured", "peak", "scaling-limit", "scales-to-the-top", "session-time")
"""Claims that make one paragraph for each ladder, after those of :data:`FIRST`."""


class LadderFigures(NamedTuple):
    """A ladder's rows that are shown large, and in which unit."""

    series: Series
    rate_column: str  # work_per_s where known, else calls_per_s
    unit: str  # "LIO/s"
    peak: dict[str, Any] | None  # row of rungs; None: no rate is known
    top: dict[str, Any]


def answer(results: Results, series: Series) -> LadderFigures | None:
    """Peak and highest load of one ladder; ``None`` where nothing usable was measured."""
    rows = [r for r in figures.ladder(results, series).to_dicts() if r["status"] not in LEFT_OUT]
    if not rows:
        return None
    work = all(r["work_per_s"] for r in rows)  # known, and the calls do any
    column = "work_per_s" if work else "calls_per_s"
    unit = f"{figures.work_short(results, series.workload)}/s" if work else "calls/s"
    known = [r for r in rows if r[column] is not None]
    peak = max(known, key=lambda r: float(r[column])) if known else None
    return LadderFigures(series, column, unit, peak, rows[-1])


def title(results: Results) -> str:
    """``lio on SYSTEM 18.4, 1 to 8 sessions on 2 CPUs``."""
    server = results.environment.server
    if figures.is_observation(results):
        return observation.title(results, server_name(server))
    rungs = results.tables["rungs"]
    workloads = ", ".join(dict.fromkeys(rungs["workload"].to_list())) or "nothing"
    steps: list[int] = rungs["sessions"].unique().sort().to_list()
    ladder = f", {steps[0]} to {steps[-1]} sessions" if len(steps) > 1 else ""
    if len(steps) == 1:
        ladder = f", {steps[0]} session{'' if steps[0] == 1 else 's'}"
    cpus = figures.usable_cpus(results)
    where = f" on {figures.cpus_text(cpus)}" if cpus else ""
    return f"{workloads} on {server_name(server)}{ladder}{where}"


def server_name(server: ServerFacts) -> str:
    return f"{server.product or server.engine} {server.version}"


def sentences(results: Results) -> list[str]:
    """What the client limited, then a paragraph a ladder; of an observation, how active it was, with what."""
    if figures.is_observation(results):
        return observation.sentences(results)
    ladders: dict[str, list[str]] = {}
    found = [c for c in results.findings if c.id in PARAGRAPH]
    for claim in sorted(found, key=lambda c: PARAGRAPH.index(c.id)):
        lead = f"{claim.subject}: " if claim.subject else ""
        ladders.setdefault(lead, []).append(claim.text.removeprefix(lead))
    limited = [c.text for c in results.findings if c.id == FIRST]
    return limited + [lead + " ".join(texts) for lead, texts in ladders.items()]
