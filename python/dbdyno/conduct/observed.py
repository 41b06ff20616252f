"""One window of an observation, and the cell that is made of it when it is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from dbdyno import observe
from dbdyno.conduct.absence import Hole
from dbdyno.conduct.marks import NOTHING, Mark
from dbdyno.conduct.session_numbers import Numbers
from dbdyno.model.plan import Observation, Plan
from dbdyno.model.protocols import Server, Watch
from dbdyno.model.raw import CellMeta, CellStatus, RawCell
from dbdyno.model.tables import RAW, empty
from dbdyno.plan import OBSERVED, observed_cell

STOPPED = "stopped by the user"


@dataclass
class Window:
    watch: Watch
    t0_ns: int
    t1_ns: int
    first: Mark = field(default=NOTHING)


@dataclass(frozen=True)
class End:
    """Why a window ended before its time."""

    reason: str
    lost: bool  # the server went away
    resume: bool = False  # with a new watch, as if it had just begun
    silent: bool = False  # the server did not answer, or came late with it


def closed(
    server: Server,
    plan: Plan,
    window: Window,
    last: Mark,
    end: End | None,
    number: int,
    numbers: Numbers,
    away: Sequence[Hole],
    *,
    now_ns: int,
) -> RawCell:
    """The cell of a window whose watch has been stopped. It may be too short to be of use."""
    tables = numbers.of(observe.frames(window.watch))
    tables["counters"] = pl.concat([window.first.counters, last.counters])
    tables["backends"] = pl.concat([window.first.backends, last.backends])
    tables["host"] = pl.concat([tables["host"], window.first.host, last.host])
    tables["sources"] = observe.sources(server, tables, driven=False, said=observe.Said.by(window.watch))
    t1_ns = _end_ns(window, tables, end, now_ns)
    early = end is not None and (end.silent or t1_ns < window.t1_ns)
    status: CellStatus = "short" if early else "ok"
    reason = _reason(end) if early else None
    if missed := _missed_ns(away, window.t0_ns, t1_ns):
        status, reason = "short", f"{max(away).words}: nothing was sampled meanwhile"
        status = "invalid" if 2 * missed >= t1_ns - window.t0_ns else status
    meta = CellMeta(
        cell=observed_cell(number, window.t1_ns - window.t0_ns),
        workload=OBSERVED,
        calibration=None,
        start_ns=window.t0_ns,
        t0_ns=window.t0_ns,
        t1_ns=t1_ns,
        end_ns=t1_ns,
        driver_threads=0,
        usable_cpus=plan.cpus,
        status=status,
        chosen=(plan.experiment.observation or Observation()).some,
        reason=reason,
    )
    return RawCell(meta, {name: tables.get(name, empty(name)) for name in RAW})


def _missed_ns(away: Sequence[Hole], t0_ns: int, t1_ns: int) -> int:
    """Of a window. While the machine is suspended its clock stands still: no part of a window is missing."""
    return sum(
        max(min(h.to_ns, t1_ns) - max(h.from_ns, t0_ns), 1)
        for h in away
        if h.to_ns > t0_ns and h.from_ns < t1_ns
    )


def _end_ns(window: Window, tables: dict[str, pl.DataFrame], end: End | None, now_ns: int) -> int:
    """Of a server that went away nothing is known after the last reading of its tasks."""
    if end is None:
        return window.t1_ns
    if not end.lost:
        return min(window.t1_ns, now_ns)
    tasks = tables["tasks"].filter((pl.col("status") == "ok") & pl.col("run_ns").is_not_null())
    asked = tables["sampler"].filter(pl.col("status") == "ok")
    for reads, at in (
        (tasks.filter(pl.col("role") == "session"), "after_ns"),
        (tasks.filter(pl.col("role").str.starts_with("helper:")), "after_ns"),
        (asked, "end_ns"),
    ):
        if reads.height:
            return min(window.t1_ns, int(reads[at].max()))  # type: ignore[arg-type]
    return window.t0_ns


def _reason(end: End | None) -> str | None:
    if end is None or not end.lost:
        return None if end is None else end.reason
    return f"the server went away ({end.reason}); the window ends with the last reading of its sessions"
