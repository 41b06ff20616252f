"""The answer in words: what was run, the peak, where it stops scaling, and where the time then goes."""

from __future__ import annotations

from itertools import takewhile
from typing import Any, NamedTuple

from dbdyno.model.claim import stops_scaling
from dbdyno.model.environment import ServerFacts
from dbdyno.model.results import Results
from dbdyno.model.units import format_ns, format_rate
from dbdyno.present import figures, observation
from dbdyno.present.figures import Series

PLATEAU = 0.97
"""A rung belongs to the plateau below the peak from this share of the peak's rate on."""

_TIMES = {
    "run_aas": "on a CPU",
    "runq_aas": "waiting for a CPU (CPU WAIT)",
    "sleep_aas": "asleep in the server's waits",
    "client_aas": "at the client",
    "pool_queue_aas": "queued for a server connection of the pool",
    "unaccounted_aas": "unaccounted for",
}


class Answer(NamedTuple):
    """The figures behind the words; every one may be unknown."""

    series: Series
    rate_column: str  # work_per_s where known, else calls_per_s
    unit: str  # "LIO/s"
    first: dict[str, Any]  # row of rungs
    peak: dict[str, Any] | None
    last_good: dict[str, Any] | None  # last rung before the first that scales badly
    top: dict[str, Any]
    plateau: dict[str, Any] | None  # the first rung that delivers almost as much as the peak, if not the peak

    @property
    def stops(self) -> bool:
        """Whether a rung above ``last_good`` scales badly."""
        return self.last_good is not None and self.last_good["sessions"] < self.top["sessions"]


def answer(results: Results, series: Series) -> Answer | None:
    """Peak and limit of one ladder; ``None`` where no rung was measured."""
    rows = [r for r in figures.ladder(results, series).to_dicts() if r["status"] != "invalid"]
    if not rows:
        return None
    work = all(r["work_per_s"] for r in rows)  # known, and the calls do any
    column = "work_per_s" if work else "calls_per_s"
    unit = f"{figures.work_short(results, series.workload)}/s" if work else "calls/s"
    known = [r for r in rows if r[column] is not None]
    peak = max(known, key=lambda r: float(r[column])) if known else None
    return Answer(
        series, column, unit, rows[0], peak, _last_good(rows), rows[-1], _plateau(known, column, peak)
    )


def title(results: Results) -> str:
    """``lio on SYSTEM 18.4, 1 to 8 sessions on 2 CPUs``."""
    server = results.environment.server
    if figures.is_observation(results):
        return observation.title(results, server_name(server))
    rungs = results.tables["rungs"]
    workloads = ", ".join(dict.fromkeys(rungs["workload"].to_list())) or "nothing"
    steps: list[int] = rungs["sessions"].unique().sort().to_list()
    ladder = f", {steps[0]} to {steps[-1]} sessions" if len(steps) > 1 else ""
    ladder = f", {_sessions({'sessions': steps[0]})}" if len(steps) == 1 else ladder
    cpus = figures.usable_cpus(results)
    where = f" on {figures.cpus_text(cpus)}" if cpus else ""
    return f"{workloads} on {server_name(server)}{ladder}{where}"


def server_name(server: ServerFacts) -> str:
    return f"{server.product or server.engine} {server.version}"


def sentences(results: Results) -> list[str]:
    """What the client limited, then a paragraph a series; of an observation, how active it was, with what."""
    if figures.is_observation(results):
        return observation.sentences(results)
    series = figures.series_of(results)
    if not series:
        return ["No rung was measured."]
    limited = [f.text for f in results.findings if f.id == "client-limited"]
    return limited + [_paragraph(results, s, named=len(series) > 1) for s in series]


def _last_good(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    known = list(takewhile(lambda r: r["scaling"] is not None, rows))
    bad = stops_scaling([r["scaling"] for r in known])
    return known[-1 if bad is None else max(0, bad - 1)] if known else None


def _plateau(known: list[dict[str, Any]], column: str, peak: dict[str, Any] | None) -> dict[str, Any] | None:
    first = next((r for r in known if peak and r[column] >= PLATEAU * peak[column]), None)
    return None if first is peak else first


def _paragraph(results: Results, series: Series, *, named: bool) -> str:
    found = answer(results, series)
    lead = f"{series.label}: " if named else ""
    if found is None:
        return f"{lead}no rung gave usable figures."
    if found.peak is None:
        return f"{lead}the throughput is unknown."
    return lead + " ".join(s for s in (_peak(found), _limit(found), _time(found)) if s)


def _peak(found: Answer) -> str:
    peak = found.peak
    assert peak is not None
    sessions = _sessions(peak)
    text = f"Peak {format_rate(peak[found.rate_column])} {found.unit} at {sessions}"
    base = found.first[found.rate_column]
    if base and peak["sessions"] != found.first["sessions"]:
        text += f", {peak[found.rate_column] / base:.2f} times the rate of {_sessions(found.first)}"
    if found.plateau is not None:
        share = 100 * found.plateau[found.rate_column] / peak[found.rate_column]
        text += f" ({share:.0f} % of it already at {_sessions(found.plateau)})"
    p95 = peak["response_p95_ns"]
    return f"{text}." if p95 is None else f"{text}; 95 % of its calls took at most {format_ns(p95)}."


def _limit(found: Answer) -> str:
    if found.first["sessions"] == found.top["sessions"]:
        return ""
    if found.last_good is None:
        return "Scaling is unknown." if found.first["scaling"] is None else ""
    last, top = found.last_good, found.top
    if not found.stops:
        share = f"efficiency {100 * last['scaling']:.0f} %"
        return f"Throughput scales to {_sessions(last)}, the highest load measured ({share})."
    share = "" if top["scaling"] is None else f"; efficiency {100 * top['scaling']:.0f} % at {_sessions(top)}"
    return f"Throughput does not scale beyond {_sessions(last)}{share}."


def _time(found: Answer) -> str:
    """What a session-second goes to at the top rung, the largest account first."""
    top = found.top
    known = {c: top[c] / top["sessions"] for c in _TIMES if top.get(c) is not None}
    complete = known.keys() >= _TIMES.keys() - {"pool_queue_aas"}
    if not complete:
        known.pop("unaccounted_aas", None)  # it holds what is unknown
    large = [c for c in sorted(known, key=lambda c: -known[c])[:2] if known[c] >= 0.005]
    if not large:
        return "Where the time goes is unknown."
    words = " and ".join(f"{100 * known[c]:.0f} % {_TIMES[c]}" for c in large)
    if "sleep_aas" in large and top["top_wait"]:
        sleep = _TIMES["sleep_aas"]
        words = words.replace(sleep, f"{sleep} (first of all {top['top_wait']})")
    return (
        f"At {_sessions(top)} a session spends {words}{'' if complete else '; not all of the rest is known'}."
    )


def _sessions(row: dict[str, Any]) -> str:
    return f"{row['sessions']} session{'' if row['sessions'] == 1 else 's'}"
