"""A figure over stored runs of one workload, with the same parameters, on the same machine."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import polars as pl

from dbdyno.conclude.run.paced import delivered
from dbdyno.conclude.snapshots.trend import concluded
from dbdyno.model.errors import StoreError, UsageError, did_you_mean
from dbdyno.model.plan.driving import PlannedScript
from dbdyno.model.plan.pacing import Pacing
from dbdyno.model.plan.plan import Plan, Workload
from dbdyno.model.results.ledger_rows import together_at
from dbdyno.model.results.raw import LEFT_OUT
from dbdyno.model.results.trend import ALIASES, FIGURES, Figure, LeftOut, Point, Trend
from dbdyno.model.schema.quantiles import QUANTILES, RESPONSE, fewest_calls
from dbdyno.model.units import counted, format_given, format_ns
from dbdyno.store import Listed, Run

Say = Callable[[str], None]
_REPORTED_FROM = 50  # least number of runs whose reading is reported
_LONGEST = 40  # characters
_QUANTILE = {one.response: one.name for one in QUANTILES}


def trend(
    runs: Sequence[Listed],
    figure: str,
    sessions: int | None,
    variant: str | None,
    machine: str | None,
    say: Say,
) -> Trend:
    """Returns the figure of the runs that are comparable with the newest one, and why others are left out.

    ``runs``: oldest first. ``sessions``: at this number; by default at the peak for throughput, at the
    highest number for other figures. ``machine``: part of its name. Raises :class:`UsageError` if no run has
    the figure.
    """
    wanted = figure_of(figure)
    if len(runs) >= _REPORTED_FROM:
        say(f"Reading {counted(len(runs), 'run')} ...")
    read = [_Member(run, wanted, sessions, variant) for run in runs]
    usable = [m for m in read if not m.why and (machine or "").casefold() in m.keys["machine"].casefold()]
    if not usable:
        why = (read[-1].why or "other machines") if read else "there are no runs"
        raise UsageError(f"no run has this figure: {why}", "dbdyno runs lists them; --figure, --sessions")
    newest = usable[-1]
    joined: list[Point] = []
    left_out_by_reason: dict[str, list[str]] = {}
    for member in read:
        why = member.why or member.differs(newest)
        if why or member.point is None:
            left_out_by_reason.setdefault(why, []).append(member.run.id)
        else:
            joined.append(_with_remark(member.point, joined[-1:]))
    at = (
        "the peak"
        if sessions is None and wanted.column == "work_per_s"
        else newest.load or counted(newest.sessions, "session")
    )
    return concluded(
        Trend(
            wanted,
            newest.unit,
            f"{newest.workload} at {at}",
            newest.keys["machine"],
            joined,
            [LeftOut(why, tuple(ids)) for why, ids in left_out_by_reason.items()],
            workload=newest.described,
            common=newest.keys,
        )
    )


def figure_of(name: str) -> Figure:
    """Raises :class:`UsageError` that suggests the nearest name."""
    figure = FIGURES.get(ALIASES.get(name, name)) or next(
        (f for f in FIGURES.values() if f.column == name), None
    )
    if figure is None:
        raise UsageError(f"no figure {name!r}", did_you_mean(name, (*FIGURES, *ALIASES)))
    return figure


class _Member:
    """A run's point of a figure, or ``why`` it has none; ``keys`` must be equal in comparable runs."""

    def __init__(self, run: Listed, figure: Figure, sessions: int | None, variant: str | None) -> None:
        self.run, self.unit, self.sessions, self.load = run, "", 0, ""
        self.workload = ""
        self.described: Workload | None = None
        self.point: Point | None = None
        self.keys: dict[str, str] = {}
        self.why = ""
        try:
            self._read(figure, sessions, variant)
        except StoreError as error:
            self.why = f"cannot be read: {error.message}"

    def differs(self, other: _Member) -> str:
        """Returns why it is not comparable with ``other``; empty if it is."""
        for key, value in self.keys.items():
            if value != other.keys[key]:
                return f"other {key}: {_short(value)}, not {_short(other.keys[key])}"
        return "" if self.unit == other.unit else f"other unit: {self.unit}"

    def _read(self, figure: Figure, sessions: int | None, variant: str | None) -> None:
        if self.run.status in ("broken", "running"):
            self.why = "broken" if self.run.status == "broken" else "in progress"
            return
        record = Run(self.run.path)
        plan, info, around = record.plan, record.info, record.environment
        if plan.experiment.observation is not None:
            self.why = "observations have no load of their own"
            return
        if plan.experiment.noise is not None:
            self.why = "noise measurements have windows and restarts of their own"
            return
        rates = _rates(plan)
        if rates and figure.unit in ("work/s", "calls/s"):
            self.why = "paced: its throughput was set (--figure p95)"
            return
        if rates and plan.adaptive is not None:
            self.why = "paced, rates auto: its rates are its own"
            return
        workload = plan.cells[0].workload if plan.cells else ""
        name = variant or (plan.variants[0].name if plan.variants else "base")
        rungs = record.read_table("rungs")
        if rungs is None:
            self.why = f"not derived: dbdyno rebuild {self.run.id}"
            return
        rows = rungs.filter((pl.col("workload") == workload) & (pl.col("variant") == name)).to_dicts()
        row, self.unit = _row(rows, figure, sessions)
        if row is None:
            at = "" if sessions is None else f" at {counted(sessions, 'session')}"
            self.why = f"not measured{at}" if rows or variant is None else f"no variant {variant}"
            needed = fewest_calls(RESPONSE.get(figure.column, 0.0))
            if needed > 1 and any(r["calls"] and sessions in (None, r["sessions"]) for r in rows):
                self.why = f"fewer than {needed:,} calls{at}, which it needs"
            return
        if self.unit == "work/s":
            info_of_workload = info.workloads.get(workload)
            self.unit = f"{info_of_workload.work_short if info_of_workload else 'work'}/s"
        self.sessions, self.workload = row["sessions"], workload
        self.described = None if plan.scripts else info.workloads.get(workload)
        scripts = plan.variant(name).scripts or plan.scripts
        size = info.calibrations.get(name) or info.calibrations.get(workload)
        cpu = around.host.cpu
        self.keys = {
            "workload": f"{workload}{_mix(scripts)}",
            "parameters": _parameters(plan, name),
            "machine": f"{around.host.limits.usable_cpus:g} CPUs of {cpu.model or 'an unknown model'}",
            "target": "embedded" if around.server.embedded else around.server.where,
        }
        if sessions is None:
            self.keys["load levels"] = _levels(plan)
        self.keys["rates"] = rates or "none"
        self.load = (
            f"{format_given(row['rate_per_s'])}/s, {counted(row['sessions'], 'session')}" if rates else ""
        )
        if figure.by_call or self.unit == "calls/s":
            self.keys["size of a call"] = str(size.size) if size else "fixed"
        versions = {
            "server": around.server_of(name).version,
            "kernel": around.host.kernel,
            "dbdyno": info.dbdyno,
        }
        unusable = row["status"] in LEFT_OUT or (bool(rates) and not delivered(dict(row)))
        self.point = Point(
            self.run.id,
            info.name,
            info.started,
            row[figure.column] or row["calls_per_s"],
            row["sessions"],
            unusable,
            {**_texts(scripts), **versions, **around.server_of(name).settings},
            "",
            *interval_of(record, row, figure),
        )


def _row(
    rows: Sequence[Mapping[str, Any]], figure: Figure, sessions: int | None
) -> tuple[Mapping[str, Any] | None, str]:
    """Returns the selected rung and the unit of its figure: work units if every row has them, else calls."""
    column, unit = figure.column, figure.unit
    if column == "work_per_s" and not all(r["work_per_s"] for r in rows):
        column = unit = "calls_per_s"
        unit = "calls/s"
    candidates = [r for r in rows if r[column] and sessions in (None, r["sessions"])]
    if not candidates:
        return None, unit
    good = [r for r in candidates if r["status"] not in LEFT_OUT] or candidates
    if figure.column == "work_per_s":
        return max(good, key=lambda r: float(r[column])), unit
    return max(candidates, key=lambda r: (int(r["sessions"]), r["rate_per_s"] or 0.0)), unit


class Tabled(Protocol):
    def read_table(self, name: str) -> pl.DataFrame | None: ...


def interval_of(record: Tabled, row: Mapping[str, Any], figure: Figure) -> tuple[float | None, float | None]:
    """Returns the ends of the 95 % interval of a rung's quantile; None for both without one."""
    of_runs = record.read_table("response_quantiles") if figure.column in _QUANTILE else None
    if of_runs is None:
        return None, None
    same = [pl.col(c) == row[c] for c in ("workload", "variant", "sessions")]
    same += [pl.col("cell") == together_at(row["rate_per_s"]), pl.col("quantile") == _QUANTILE[figure.column]]
    found = of_runs.filter(*same)
    return found.select("low_ns", "high_ns").row(0) if found.height else (None, None)


def _parameters(plan: Plan, name: str) -> str:
    """Returns everything that a variant sets, as a text that is equal for equal loads."""
    chosen = plan.variant(name)
    own = chosen.params or plan.experiment.params
    texts = [f"{key}={value}" for key, value in sorted(own.items())]
    think = plan.experiment.think
    return ", ".join(filter(None, (*texts, chosen.words(), f"think={think}" if think else ""))) or "none"


def _mix(scripts: Sequence[PlannedScript]) -> str:
    """Returns names and weights of several scripts: ``: pay, weight 3; look, weight 1``. Their texts may
    change from run to run, as in comparisons of two runs."""
    names = "; ".join(f"{s.name}, weight {s.weight}" for s in scripts)
    return f": {names}" if len(scripts) > 1 else ""


_SCRIPT = "script "


def _texts(scripts: Sequence[PlannedScript]) -> dict[str, str]:
    """Returns the texts of the scripts by name; long ones shortened, with a checksum that differs wherever
    they do."""
    texts = {s.name: " ".join(s.text.split()) for s in scripts}
    return {
        f"{_SCRIPT}{name}": _short(text)
        if len(text) <= _LONGEST
        else f"{_short(text)} ({zlib.crc32(text.encode()):08x})"
        for name, text in texts.items()
    }


def _with_remark(point: Point, before: Sequence[Point]) -> Point:
    """Returns the point with the scripts whose text is not that of the point before."""
    around = point.around or {}
    old = (before[0].around or {}) if before else around
    changed = [n for n in around if n.startswith(_SCRIPT) and around[n] != old.get(n)]
    if not changed:
        return point
    parts = [f"other text of {', '.join(changed)}", *(["unusable measurement"] if point.flagged else [])]
    return replace(point, remark="; ".join(parts))


def _levels(plan: Plan) -> str:
    if plan.adaptive is not None:
        return f"auto up to {plan.adaptive.top}"
    return ", ".join(map(str, sorted({c.sessions for c in plan.cells})))


def _rates(plan: Plan) -> str:
    """Returns rates and arrivals of paced load; empty for other load."""
    paced = {c.pacing for c in plan.cells if c.pacing is not None}
    kinds = sorted({f"{p.arrivals}{_limit(p)}" for p in paced})
    rates = ", ".join(f"{format_given(r)}/s" for r in sorted({p.rate_per_s for p in paced}))
    return " ".join([rates, *kinds]) if paced else ""


def _limit(pacing: Pacing) -> str:
    limit = pacing.latency_limit_ns
    return "" if limit is None else f" dropped after {format_ns(limit)}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
