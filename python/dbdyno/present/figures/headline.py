"""Writes the answer of a run or an observation: its title, its first claims, and the figures they rest on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.plan.kinds import COMMANDS, OBSERVATION, PHASES, SERVED, kind_of
from dbdyno.model.plan.plan import Observation, Workload
from dbdyno.model.results.claim import DISTURBED, Claim
from dbdyno.model.results.comparison import Comparison
from dbdyno.model.results.raw import LEFT_OUT
from dbdyno.model.results.results import Results
from dbdyno.model.text.nouns import at_once, capital, noun
from dbdyno.model.units import NS_PER_S, counted, format_given, format_ns
from dbdyno.present.figures import figures, profile
from dbdyno.present.figures.figures import Series
from dbdyno.present.figures.selection import pick_of, rows_of
from dbdyno.present.figures.sources_used import in_words

TRANSACTIONS, STATEMENTS = "transactions", "executions"
"""Names in the load profile."""
_NAMES = {"DB time": "db_time", "DB CPU": "db_cpu", "CPU WAIT": "cpu_wait"}


class Rate(NamedTuple):
    """The count of a name of the load profile, over all windows in which it is known."""

    total: float | None
    per_s: float | None
    why: str  # reason why it is unknown; "5 of 6 windows" if some do not know it; else empty


_ALL_UNKNOWN = re.compile(r"^.*\bunknown: ")
"""Begin of a reason that first lists all figures of its data source."""


def reason(status: str) -> str:
    """Returns a status of table ``profile`` as the reason why one figure is unknown."""
    return _ALL_UNKNOWN.sub("", in_words(status))


def rate(rows: pl.DataFrame, name: str) -> Rate:
    """Returns the rate of a name, from rows of table ``profile`` of one cell or of all windows together."""
    for row in rows.filter(pl.col("name") == name).to_dicts():
        return Rate(row["total"], row["per_s"], "" if row["status"] == "ok" else reason(row["status"]))
    return Rate(None, None, reason("off"))


class Overview(NamedTuple):
    """Means in seconds per second over the windows in which they are known; None if unknown."""

    windows: int
    wall_s: float
    sessions: int  # distinct sessions
    db_time: float | None
    db_cpu: float | None
    cpu_wait: float | None
    top: list[dict[str, Any]]  # rows of table top_events
    brief: int  # further sessions that were too brief to be sampled
    why: str  # status of DB time: the reason if that is unknown; "5 of 6 windows" if some do not know it
    transactions: Rate
    statements: Rate


def overview(results: Results) -> Overview | None:
    """Returns the means over all windows; None if no window was measured."""
    pick = pick_of(results)
    if pick is None:
        return None
    windows = results.tables["windows"]
    rows = rows_of(results, "profile", pick)
    known = {n: v for n, v in rows.select("name", "per_s").rows() if n in _NAMES}
    figures_by_name = {short: known.get(name) for name, short in _NAMES.items()}
    sessions = results.ask("microstates", _distinct_sessions)
    return Overview(
        len(windows),
        float(windows["wall_s"].sum()),
        sessions.height,
        **figures_by_name,
        top=profile.events(results, pick),
        brief=sum(int(f.value.value) for f in results.findings if f.id == "brief-sessions" and f.value),
        why=next(iter(rows.filter(pl.col("name") == "DB time")["status"]), "off"),
        transactions=rate(rows, TRANSACTIONS),
        statements=rate(rows, STATEMENTS),
    )


def _distinct_sessions(processes: pl.LazyFrame) -> pl.LazyFrame:
    """Returns one row per session; sessions without a number are identified by their process."""
    whose = (pl.col("role") == "session") & ~pl.col("worker")
    unnumbered = pl.when(pl.col("session").is_null()).then(pl.struct("pid", "start_ticks"))
    return processes.filter(whose).select("session", unnumbered.alias("process")).unique()


def observation_title(results: Results, server: str) -> str:
    """Returns ``Observation of SYSTEM 18.4: 60.0 s in 6 windows``."""
    windows = results.tables["windows"]
    seconds = format_ns(float(windows["wall_s"].sum()) * NS_PER_S)
    measured = f": {seconds} in {counted(len(windows), 'window')}" if len(windows) else ""
    return f"Observation of {server}{measured}"


def observation_sentences(results: Results) -> list[str]:
    """Returns how many sessions were active and on what, where nothing was seen, and which sessions were
    selected."""
    active = [a.text for a in results.answers if a.id == ACTIVITY]
    return [*active, *_filter(results)] if results.tables["windows"].height else active


def of_plan(observation: Observation) -> list[tuple[str, str]]:
    """Returns the filters of the observed sessions as names and values; empty for all sessions."""
    pairs = [
        ("user", observation.user),
        ("database", observation.database),
        ("application", observation.application),
    ]
    pairs.append(("pid", ", ".join(map(str, observation.pids))))
    return [(name, value) for name, value in pairs if value]


def _filter(results: Results) -> list[str]:
    observation = results.plan.experiment.observation or Observation()
    words = ", ".join(f"{name} {value}" for name, value in of_plan(observation))
    return [f"Only sessions with {words}."] if words else []


def idle(results: Results) -> bool:
    """Returns whether it is an observation in which no session did anything."""
    means = overview(results) if figures.is_observation(results) else None
    return (
        means is not None and means.db_time is not None and means.db_time < profile.LEAST and not means.brief
    )


# A run: the figures of its ladders.

FIRST = ("variants-unmeasured", "client-limited")
SEARCHED = ("rate-target", "auto-rates")
"""Claims of a search for rates. They state the delivered rate, so paced-capacity is left out beside them."""
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
"""Claims that form one paragraph per ladder, after those of :data:`FIRST`. Some occur only in older runs."""

ACTIVITY = "activity"
"""The claim that is the headline of an observation."""


class LadderFigures(NamedTuple):
    """The rows of a ladder that are shown large, and their unit."""

    series: Series
    rate_column: str  # work_per_s if known, else calls_per_s
    unit: str  # "LIO/s"
    peak: dict[str, Any] | None  # row of rungs; None if no rate is known
    top: dict[str, Any]


def answer(results: Results, series: Series) -> LadderFigures | None:
    """Returns the peak and the highest load of one ladder; None if nothing usable was measured."""
    rows = [r for r in figures.ladder(results, series).to_dicts() if r["status"] not in LEFT_OUT]
    if not rows:
        return None
    work = all(r["work_per_s"] for r in rows)  # neither None nor 0
    column = "work_per_s" if work else "calls_per_s"
    unit = f"{figures.work_short(results, series.workload)}/s" if work else f"{noun('calls')}/s"
    known = [r for r in rows if r[column] is not None]
    peak = max(known, key=lambda r: float(r[column])) if known else None
    return LadderFigures(series, column, unit, peak, rows[-1])


def title(results: Results) -> str:
    """Returns the title of a run: ``Logical I/O (lio) on SYSTEM 18.4, 1 to 8 sessions on 2 CPUs``."""
    return kind_of(results.plan).choice(_TITLES, _ladder_title)(results)


def _ladder_title(results: Results) -> str:
    rungs = results.tables["rungs"]
    workloads = capital(", ".join(_names_in_words(results)) or "nothing")
    steps: list[int] = rungs["sessions"].unique().sort().to_list()
    ladder = "".join(f", {at_once(str(n))}" for n in steps[-1:])
    if len(steps) > 1:
        ladder = f", {steps[0]} to {steps[-1]} {noun('at_once')}"
    if paced := sorted(rungs["rate_per_s"].drop_nulls().unique().to_list()):
        last = f" to {format_given(paced[-1])}" if len(paced) > 1 else ""
        ladder = f", {format_given(paced[0])}{last} {noun('calls')}/s due{ladder}"
    measured = set(rungs["variant"])
    servers = results.environment.server_names(measured)
    alone = f", variant {min(measured)} alone" if _is_alone(results) else ""
    return f"{workloads} on {servers}{alone}{ladder}{_on_cpus(results)}"


def _is_alone(results: Results) -> bool:
    """Returns whether one of several variants was measured."""
    return figures.one_variant(results) and bool(figures.unmeasured(results))


def _on_cpus(results: Results) -> str:
    """Returns `` on 2 CPUs``, or of variants with different limits `` on 0.5 to 2 CPUs``."""
    cpus = [k.cpus for k in figures.limits_of_cpus(results)]
    least = f"{cpus[0]:g} to " if len(set(cpus)) > 1 else ""
    return f" on {least}{figures.cpus_text(cpus[-1])}" if cpus else ""


def _names_in_words(results: Results) -> list[str]:
    names = dict.fromkeys(results.tables["rungs"]["workload"].to_list())
    known = results.info.workloads
    return [workload_title(known[n]) if n in known else n for n in names]


def workload_title(workload: Workload) -> str:
    """Returns title and name of a workload: ``logical I/O (lio)``; its title alone if that has the name."""
    title, name = workload.title, workload.name
    return title if name in title.split() else f"{title} ({name})" if title else name


def _commands_title(results: Results) -> str:
    """Returns ``xz, 4 variants, 1 to 8 jobs at once on 2 CPUs``."""
    tables = results.tables
    jobs = tables["execution_rates"]["job"].drop_nulls().unique(maintain_order=True).to_list()
    steps: list[int] = tables["rungs"]["sessions"].unique().sort().to_list()
    variants = tables["rungs"]["variant"].n_unique()
    at_once = f"{steps[0]} to {steps[-1]}" if len(steps) > 1 else f"{steps[-1]}" if steps else ""
    parts = [
        ", ".join(jobs[:3]) + (f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""),
        f"{variants} variants" if variants > 1 else "",
        f"{at_once} jobs at once" if steps and steps[-1] > 1 else "",
    ]
    return ", ".join(filter(None, parts)) + _on_cpus(results)


_TITLES = {
    OBSERVATION: lambda results: observation_title(results, results.environment.server.name),
    COMMANDS: _commands_title,
}
"""Titles of the kinds of runs that are not ladders."""


BESIDE = "The figures below may be wrong because of that."
"""Ends the doubts above an answer."""
DOUBTFUL = 0.1
"""Share of the CPUs above which other users make the figures doubtful; and of the measurements that the
answer rests on, because a mean hardly changes by fewer."""
_OTHERS = ("foreign-load", "steal")
"""Claims about CPU time of others: in CPUs, and as a share of them."""


def doubts(results: Results) -> list[Claim]:
    """Returns the claims that put the headline in doubt, because others used much CPU beside measurements
    that it rests on; they stand above it.

    Empty for observations, where other load is part of what is observed, and where no rate is known.
    """
    if figures.is_observation(results) or not results.tables["rungs"]["calls_per_s"].count():
        return []
    known = [f for f in results.findings if f.id in _OTHERS and f.value is not None]
    measured = set(results.tables["windows"]["cell"])
    basis = {cell for c in results.reply for cell in c.cells or measured} or measured
    return [
        f
        for f in known
        if _share(f, results.plan.cpus) >= DOUBTFUL
        and len(basis.intersection(f.cells or measured)) >= DOUBTFUL * len(basis)
    ]


def _share(claim: Claim, cpus: float) -> float:
    value = claim.value.value if claim.value is not None else 0.0
    return value / cpus if claim.id == "foreign-load" else value


def doubt_sentences(results: Results) -> list[str]:
    """Returns each doubt with its cure; empty without doubts."""
    doubtful = doubts(results)
    texts = [f"{f.text} {_sentence(f.advice)}".rstrip() for f in doubtful]
    return [*texts, BESIDE] if doubtful else []


def _sentence(advice: str) -> str:
    return f"To do: {advice}." if advice else ""


def compared(results: Results) -> Comparison | None:
    """Returns the comparison that is the answer of a run of several variants; None for other runs."""
    return results.comparison if kind_of(results.plan).among((SERVED,)) else None


def claims_shown_elsewhere(results: Results) -> list[Claim]:
    """Returns the claims that a list of claims leaves out, because the lead and the tables contain them."""
    replied = set(map(_key, results.reply))
    ids = (*FIRST, DISTURBED) if compared(results) else (*FIRST, DISTURBED, *PARAGRAPH)
    return [c for c in results.findings if c.id in ids or _key(c) in replied]


def _key(claim: Claim) -> tuple[str, str, tuple[str, ...]]:
    return claim.id, claim.subject, claim.cells


def answer_sentences(results: Results) -> list[str]:
    """Returns the lead: the answer to the question of the recipe if it names one, then the rest of
    :func:`sentences`; of several variants, their verdicts instead of a paragraph for each."""
    replies = list(dict.fromkeys(c.text for c in results.reply))
    limited = [c.text for c in results.findings if c.id in FIRST]
    comparison = compared(results)
    if comparison is None:
        rest = sentences(results, without=results.reply)
    else:
        rest = [*limited, *comparison.summary]
    return [*replies, *(s for s in rest if not any(r.startswith(s) for r in replies))]


def sentences(results: Results, without: Sequence[Claim] = ()) -> list[str]:
    """Returns the limits of the client, then one paragraph per ladder; for an observation, its activity."""
    if figures.is_observation(results):
        return observation_sentences(results)
    left_out = set(map(_key, without))
    claims = [c for c in _in_paragraphs(results) if _key(c) not in left_out]
    ladders = figures.grouped((c.subject, c.text.removeprefix(f"{c.subject}: ")) for c in claims)
    alike = figures.grouped((" ".join(texts), subject) for subject, texts in ladders.items())
    limited = [c.text for c in results.findings if c.id in FIRST]
    return limited + [
        f"{'; '.join(subjects)}: {text}" if any(subjects) else text for text, subjects in alike.items()
    ]


def _in_paragraphs(results: Results) -> list[Claim]:
    """Returns the claims of the paragraphs, in their order."""
    claims = sorted((c for c in results.findings if c.id in PARAGRAPH), key=lambda c: PARAGRAPH.index(c.id))
    if claims and claims[0].id == SEARCHED[0]:
        claims = [c for c in claims if c.id != "paced-capacity"]
    if kind_of(results.plan).among((PHASES,)):
        order = [v.name for v in results.plan.variants]
        claims.sort(key=lambda c: order.index(c.subject) if c.subject in order else len(order))
    if commands := [c for c in claims if c.id in ABOUT_COMMANDS]:
        ladders_too = figures.one_variant(results) and results.tables["rungs"]["sessions"].n_unique() > 1
        ladders_too = ladders_too and not any(c.once for c in results.plan.cells)
        claims = [*commands, *(c for c in claims if ladders_too and c.id not in ABOUT_COMMANDS)]
    return claims
