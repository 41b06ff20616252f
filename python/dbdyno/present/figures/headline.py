"""The answer of a run or an observation: its title, its first claims, and the figures they rest on."""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.engine.environment import ServerFacts
from dbdyno.model.plan.kinds import COMMANDS, OBSERVATION, PHASES, kind_of
from dbdyno.model.plan.plan import Observation
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.raw import LEFT_OUT
from dbdyno.model.results.results import Results
from dbdyno.model.text.nouns import at_once, noun
from dbdyno.model.units import NS_PER_S, counted, format_given, format_ns
from dbdyno.present.figures import figures, profile
from dbdyno.present.figures.figures import Series
from dbdyno.present.figures.selection import pick_of, rows_of

_NAMES = {"DB time": "db_time", "DB CPU": "db_cpu", "CPU WAIT": "cpu_wait"}


class Overview(NamedTuple):
    """Means over all windows; seconds per second. None: unknown."""

    windows: int
    wall_s: float
    sessions: int  # that were seen
    db_time: float | None
    db_cpu: float | None
    cpu_wait: float | None
    top: list[dict[str, Any]]  # rows of table top_events
    brief: int  # besides, sessions too brief to be sampled
    why: str  # DB time is unknown


def overview(results: Results) -> Overview | None:
    """None where no window was measured."""
    pick = pick_of(results)
    if pick is None:
        return None
    windows = results.tables["windows"]
    rows = rows_of(results, "profile", pick)
    known = {n: v for n, v in rows.select("name", "per_s").rows() if n in _NAMES}
    found = {short: known.get(name) for name, short in _NAMES.items()}
    met = results.ask("microstates", _met)
    return Overview(
        len(windows),
        float(windows["wall_s"].sum()),
        met.height,
        **found,
        top=profile.events(results, pick),
        brief=_brief(results),
        why=next(iter(rows.filter(pl.col("name") == "DB time")["status"]), "off"),
    )


def _met(processes: pl.LazyFrame) -> pl.LazyFrame:
    """Sessions that were seen; by their processes where those have no number."""
    whose = (pl.col("role") == "session") & ~pl.col("worker")
    unnumbered = pl.when(pl.col("session").is_null()).then(pl.struct("pid", "start_ticks"))
    return processes.filter(whose).select("session", unnumbered.alias("process")).unique()


def observation_title(results: Results, server: str) -> str:
    """``Observation of SYSTEM 18.4: 60.0 s in 6 windows``."""
    windows = results.tables["windows"]
    seconds = format_ns(float(windows["wall_s"].sum()) * NS_PER_S)
    measured = f": {seconds} in {counted(len(windows), 'window')}" if len(windows) else ""
    return f"Observation of {server}{measured}"


def observation_sentences(results: Results) -> list[str]:
    """How many sessions were active, on what, and where nothing was seen; and which sessions were chosen."""
    active = [a.text for a in results.answers if a.id == ACTIVITY]
    return [*active, *_filter(results)] if results.tables["windows"].height else active


def _brief(results: Results) -> int:
    return sum(int(f.value.value) for f in results.findings if f.id == "brief-sessions" and f.value)


def of_plan(asked: Observation) -> list[tuple[str, str]]:
    """What was chosen to be observed; empty: all sessions."""
    pairs = [("user", asked.user), ("database", asked.database), ("application", asked.application)]
    pairs.append(("pid", ", ".join(map(str, asked.pids))))
    return [(name, value) for name, value in pairs if value]


def _filter(results: Results) -> list[str]:
    asked = results.plan.experiment.observation or Observation()
    words = ", ".join(f"{name} {value}" for name, value in of_plan(asked))
    return [f"Only sessions with {words}."] if words else []


def idle(results: Results) -> bool:
    """An observation in which no session did anything."""
    found = overview(results) if figures.is_observation(results) else None
    return found is not None and found.db_time is not None and found.db_time < LEAST and not found.brief


LEAST = 0.0005
"""Seconds per second: less is shown as 0."""

# A run: the figures of its ladders.

FIRST = "client-limited"
SEARCHED = ("rate-target", "auto-rates")
"""What a search of rates found: it says the rate that is delivered, too."""
PARAGRAPH = (
    *SEARCHED,
    "nothing-measured",
    *(ABOUT_COMMANDS := ("executions-failed", "commands-compared", "speed-up", "orders", "command-time")),
    "paced-capacity",
    "phase",
    "phase-target",
    "phase-recovery",
    "peak",
    "scales-to",
    "scaling-limit",
    "scales-to-the-top",
    "session-time",
)
"""Claims that make one paragraph for each ladder, after those of :data:`FIRST`; some are of older runs."""

ACTIVITY = "activity"
"""The claim that is the headline of an observation."""


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
    unit = f"{figures.work_short(results, series.workload)}/s" if work else f"{noun('calls')}/s"
    known = [r for r in rows if r[column] is not None]
    peak = max(known, key=lambda r: float(r[column])) if known else None
    return LadderFigures(series, column, unit, peak, rows[-1])


def title(results: Results) -> str:
    """``lio on SYSTEM 18.4, 1 to 8 sessions on 2 CPUs``."""
    return kind_of(results.plan).choice(_TITLES, _ladder_title)(results)


def _ladder_title(results: Results) -> str:
    server, rungs = results.environment.server, results.tables["rungs"]
    workloads = ", ".join(dict.fromkeys(rungs["workload"].to_list())) or "nothing"
    steps: list[int] = rungs["sessions"].unique().sort().to_list()
    ladder = "".join(f", {at_once(str(n))}" for n in steps[-1:])
    if len(steps) > 1:
        ladder = f", {steps[0]} to {steps[-1]} {noun('at_once')}"
    if paced := sorted(rungs["rate_per_s"].drop_nulls().unique().to_list()):
        last = f" to {format_given(paced[-1])}" if len(paced) > 1 else ""
        ladder = f", {format_given(paced[0])}{last} {noun('calls')}/s due{ladder}"
    cpus = figures.usable_cpus(results)
    where = f" on {figures.cpus_text(cpus)}" if cpus else ""
    return f"{workloads} on {server_name(server)}{ladder}{where}"


def _commands_title(results: Results) -> str:
    """``xz, 4 variants, 1 to 8 jobs at once on 2 CPUs``."""
    tables = results.tables
    jobs = tables["execution_rates"]["job"].drop_nulls().unique(maintain_order=True).to_list()
    steps: list[int] = tables["rungs"]["sessions"].unique().sort().to_list()
    variants, cpus = tables["rungs"]["variant"].n_unique(), figures.usable_cpus(results)
    at_once = f"{steps[0]} to {steps[-1]}" if len(steps) > 1 else f"{steps[-1]}" if steps else ""
    parts = [
        ", ".join(jobs[:3]) + (f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""),
        f"{variants} variants" if variants > 1 else "",
        f"{at_once} jobs at once" if steps and steps[-1] > 1 else "",
    ]
    return ", ".join(filter(None, parts)) + (f" on {figures.cpus_text(cpus)}" if cpus else "")


_TITLES = {
    OBSERVATION: lambda results: observation_title(results, server_name(results.environment.server)),
    COMMANDS: _commands_title,
}
"""Kinds of runs whose titles are not those of a ladder."""


def server_name(server: ServerFacts) -> str:
    return f"{server.product or server.engine} {server.version}".rstrip()


DOUBTFUL = 0.1
"""Share of the CPUs: where others had as much, figures are those of the server and of them."""
_OTHERS = ("foreign-load", "steal")
"""Claims about who else had CPU time: in CPUs, and as a share of them."""


def doubts(results: Results) -> list[Claim]:
    """What makes the headline a statement about more than the server: it stands above it, and the headline is
    then no assertion. Not of observations: what else runs there is part of what is observed."""
    if figures.is_observation(results):
        return []
    known = [f for f in results.findings if f.id in _OTHERS and f.value is not None]
    return [f for f in known if _share(f, figures.usable_cpus(results)) >= DOUBTFUL]


def _share(found: Claim, cpus: float | None) -> float:
    value = found.value.value if found.value is not None else 0.0
    return value / (cpus or 1.0) if found.id == "foreign-load" else value


def doubt_sentences(results: Results) -> list[str]:
    """Each doubt with its cure; empty where there is none."""
    found = doubts(results)
    told = [f"{f.text} {_sentence(f.advice)}".rstrip() for f in found]
    return [*told, "What follows was measured beside that, and is no proof."] if found else []


def _sentence(advice: str) -> str:
    return f"To do: {advice}." if advice else ""


def sentences(results: Results) -> list[str]:
    """What the client limited, then a paragraph a ladder; of an observation, how active it was, with what."""
    if figures.is_observation(results):
        return observation_sentences(results)
    found = sorted((c for c in results.findings if c.id in PARAGRAPH), key=lambda c: PARAGRAPH.index(c.id))
    if found and found[0].id == SEARCHED[0]:
        found = [c for c in found if c.id != "paced-capacity"]
    if kind_of(results.plan).among((PHASES,)):
        order = [v.name for v in results.plan.variants]
        found.sort(key=lambda c: order.index(c.subject) if c.subject in order else len(order))
    if commands := [c for c in found if c.id in ABOUT_COMMANDS]:
        ladders_too = figures.one_variant(results) and results.tables["rungs"]["sessions"].n_unique() > 1
        ladders_too = ladders_too and not any(c.once for c in results.plan.cells)
        found = [*commands, *(c for c in found if ladders_too and c.id not in ABOUT_COMMANDS)]
    leads = [(f"{c.subject}: " if c.subject else "", c.text) for c in found]
    ladders = figures.grouped((lead, text.removeprefix(lead)) for lead, text in leads)
    limited = [c.text for c in results.findings if c.id == FIRST]
    return limited + [lead + " ".join(texts) for lead, texts in ladders.items()]
