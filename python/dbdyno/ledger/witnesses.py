"""Source against source: the same quantity from every witness, with relative differences and a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl

from dbdyno.ledger.joint import Tables
from dbdyno.model.bycell import ByCell
from dbdyno.model.column import CELL
from dbdyno.model.tables import rows

TOLERANCE: dict[str, tuple[float, float]] = {
    # quantity: (relative, absolute); a difference within either agrees
    "cpu_used": (0.05, 0.05),  # cores; task figures are up to a tick old, one tick a task and read
    "cpu_used_machine": (0.10, 0.10),  # cores; /proc/stat is sampled by ticks
    "run_and_runq": (0.10, 0.10),  # seconds per second; besides, the samples' own interval
    "executions": (0.0, 0.01),  # calls: they are whole, and sums of quotients are not
    "work_per_call": (1e-6, 0.0),
}
_CELL = [c.name for c in CELL]
_NEEDED = ("windows", "rates", "cut_tasks", "cut_work", "cut_levels")
_SERVER = ("session", "helper:", "other")
_BUSY = ("user", "nice", "system", "irq", "softirq")  # guest time lies inside user (proc_stat(5))


class Testimony(NamedTuple):
    quantity: str
    source: str
    value: float | None
    unit: str
    status: str


def witnesses(cut: Tables, ledger: pl.DataFrame) -> pl.DataFrame:
    """Table ``witnesses`` of all cells."""
    made: list[dict[str, Any]] = []
    parts = ByCell({**{name: cut[name] for name in _NEEDED}, "ledger": ledger})
    for cell in cut["windows"]["cell"]:
        mine = parts.of(cell)
        window = mine["windows"].row(0, named=True)
        head = {name: window[name] for name in _CELL}
        heard = [*_cpu(mine), *_machine(mine), *_runnable(mine), *_executions(mine), *_work(mine)]
        made += [head | row for row in _judged(heard, mine["ledger"])]
    return rows("witnesses", made)


def _judged(heard: list[Testimony], ledger: pl.DataFrame) -> Iterator[dict[str, Any]]:
    references: dict[str, float] = {}
    for t in heard:
        row = t._asdict() | {"relative_difference": None, "verdict": "unknown"}
        if t.value is not None and t.quantity not in references:
            references[t.quantity] = t.value
            row["verdict"] = "reference"
        elif t.value is not None:
            reference = references[t.quantity]
            difference = t.value - reference
            row["relative_difference"] = difference / reference if reference else None
            row["verdict"] = "agrees" if _agrees(t, difference, reference, ledger) else "differs"
        yield row


def _agrees(t: Testimony, difference: float, reference: float, ledger: pl.DataFrame) -> bool:
    relative, absolute = TOLERANCE[t.quantity]
    if t.quantity == "run_and_runq":
        memo = ledger.filter((pl.col("who") == "rung") & (pl.col("account") == "runnable"))
        low, high = memo["low"].min(), memo["high"].max()
        if isinstance(low, float) and isinstance(high, float) and low <= reference <= high:
            return True
    return abs(difference) <= max(relative * abs(reference), absolute)


def _used(
    tasks: pl.DataFrame, roles: tuple[str, ...] | None, name: str = "run_ns"
) -> tuple[float | None, str]:
    """Sum over the tasks of ``roles`` (None: all), per second; unknown where one of the sessions' is."""
    mine = tasks
    if roles is not None:
        mine = tasks.filter(pl.any_horizontal(pl.col("role").str.starts_with(r) for r in roles))
    bad = mine.filter(pl.col(name).is_null() & (pl.col("role") == "session"))
    if bad.height or mine.is_empty():
        return None, str(bad["status"][0]) if bad.height else "off"
    return float((mine[name] / mine["over_ns"]).sum()), "ok"


def _level(cut: Tables, origin: str, key: str, scope: str | None = None) -> tuple[float | None, str]:
    """Growth per ns of wall time of one counter (the innermost group's)."""
    found = cut["cut_levels"].filter((pl.col("origin") == origin) & (pl.col("key") == key))
    if scope is not None:
        found = found.filter(pl.col("scope") == scope)
    if found.is_empty():
        return None, "not here" if origin == "cgroup" else "off"
    row = found.row(0, named=True)
    return (None, row["status"]) if row["delta"] is None else (row["delta"] / row["wall_ns"], "ok")


def _shares_group(cut: Tables) -> bool:
    """The driver runs in the server's group: then that counts both."""
    places = {
        scope: set(
            cut["cut_levels"].filter((pl.col("origin") == "cgroup") & (pl.col("scope") == scope))["place"]
        )
        for scope in ("server", "driver")
    }
    return bool(places["server"] & places["driver"])


def _cpu(cut: Tables) -> Iterator[Testimony]:
    shared = _shares_group(cut)
    value, status = _used(cut["cut_tasks"], None if shared else _SERVER)
    yield Testimony("cpu_used", "os tasks", value, "cores", status)
    value, status = _level(cut, "cgroup", "usage_ns", "server")
    yield Testimony("cpu_used", "cgroup, driver included" if shared else "cgroup", value, "cores", status)


def _machine(cut: Tables) -> Iterator[Testimony]:
    value, status = _used(cut["cut_tasks"], None)
    yield Testimony("cpu_used_machine", "os tasks, driver included", value, "cores", status)
    parts = [_level(cut, "host", f"cpu.{name}_ns") for name in _BUSY]
    bad = next((s for v, s in parts if v is None), None)
    busy = None if bad else sum(v for v, _ in parts if v is not None)
    yield Testimony("cpu_used_machine", "host", busy, "cores", bad or "ok")
    steal, status = _level(cut, "host", "cpu.steal_ns")
    yield Testimony("steal", "host", steal, "cores", status)


def _runnable(cut: Tables) -> Iterator[Testimony]:
    sessions = ("session",)
    (run, status), (runq, _) = (_used(cut["cut_tasks"], sessions, n) for n in ("run_ns", "runq_ns"))
    both = None if run is None or runq is None else run + runq
    yield Testimony("run_and_runq", "os tasks", both, "seconds per second", status)
    memo = cut["ledger"].filter(
        (pl.col("scope") == "memo") & (pl.col("who") == "rung") & (pl.col("account") == "runnable")
    )
    sleep = cut["ledger"].filter((pl.col("scope") == "rung") & (pl.col("account") == "client"))
    sampled = sleep.height > 0 and sleep["aas"].null_count() == 0 and both is not None
    value = (float(memo["aas"].sum()) if memo.height else 0.0) if sampled else None
    status = "ok" if sampled else (str(sleep["status"][0]) if sleep.height else "off")
    if not sampled and status == "ok":
        status = "not here"
    yield Testimony("run_and_runq", "activity samples", value, "seconds per second", status)


def _executions(cut: Tables) -> Iterator[Testimony]:
    """The driver's calls against the engine's, for sessions that both know, from the barrier on.

    The engine's are its own count where it keeps one for a session, else its count of work over the work
    of one call at calibration: equal only if every call was executed, once, with the same plan.
    """
    own = cut["cut_work"].filter(pl.col("name").is_in(["calls", "executions"]))
    calibrated = _rung_rate(cut, "work_per_call_calibrated")
    if own.height:
        counted, source = own.select("session", "status", counted="value"), "engine counters"
    elif calibrated is not None:
        work = cut["cut_work"].filter("is_work")
        counted = work.select("session", "status", counted=pl.col("value") / calibrated["value"])
        source = "engine counters, by work"
    else:
        return
    if counted.is_empty():
        return
    driven = cut["rates"].filter((pl.col("scope") == "session") & (pl.col("name") == "executions"))
    both = driven.select("session", "value").join(counted.drop_nulls("counted"), on="session")
    known, status = both.height > 0, str(counted["status"][0])
    status = "ok" if known else status if status != "ok" else "lost"
    yield Testimony("executions", "driver", _total(both["value"], known), "calls", status)
    yield Testimony("executions", source, _total(both["counted"], known), "calls", status)


def _work(cut: Tables) -> Iterator[Testimony]:
    """Over the rung, its lowest and highest session, and at calibration."""
    whole = _rung_rate(cut, "work_per_call")
    if whole is None:
        return
    mine = cut["rates"].filter((pl.col("name") == "work_per_call") & (pl.col("scope") == "session"))
    known = mine.filter(pl.col("source").str.starts_with("engine"))["value"].drop_nulls().sort()
    yield Testimony("work_per_call", whole["source"], whole["value"], whole["unit"], whole["status"])
    if len(known):
        yield Testimony("work_per_call", "engine counters, lowest session", known[0], whole["unit"], "ok")
        yield Testimony("work_per_call", "engine counters, highest session", known[-1], whole["unit"], "ok")
    calibrated = _rung_rate(cut, "work_per_call_calibrated")
    if calibrated is not None and whole["source"] != "calibration":
        yield Testimony("work_per_call", "calibration", calibrated["value"], whole["unit"], "ok")


def _rung_rate(cut: Tables, name: str) -> dict[str, Any] | None:
    rows = cut["rates"].filter((pl.col("scope") == "rung") & (pl.col("name") == name))
    return rows.row(0, named=True) if rows.height else None


def _total(values: pl.Series, known: bool) -> float | None:
    return float(values.sum()) if known else None
