"""Tables of response time over time: the heat map, what went on in each second, modes, and what goes with
them. Pure.

All four are of single cells. The seconds are those of the raw table ``second_histogram``, longer intervals in
long windows. An activity is known by second from samples of waits, and from reads of tasks, the host, control
groups, devices and a few counters of the server about once a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dbdyno.account.making import makes
from dbdyno.account.window.cells import key, middle
from dbdyno.account.window.deltas import TASK
from dbdyno.account.window.tasks import reads_of
from dbdyno.model.results import device_reads
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.data_sources.responses import (
    BYTES,
    DURATION,
    FAR,
    FEW_CALLS,
    FEW_SECONDS,
    IMAGES,
    SHARE,
    UNCERTAIN,
)
from dbdyno.model.schema.tables import empty, rows
from dbdyno.model.sources.second_counters import (
    CHECKPOINT_START,
    CHECKPOINTS_BEGUN,
    FULL_PAGE_IMAGES,
    LATE_S,
    WAL_POSITION,
)
from dbdyno.model.sources.wait_families import AT_CLIENT, ROLE, Family
from dbdyno.model.units import NS_PER_S
from dbdyno.stats import association
from dbdyno.stats.modes import FEWEST, LEAST_SECONDS, Mode, bucket, low_of, modes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Tables = dict[str, pl.DataFrame]

TIMES, DURATIONS = 120, 40
"""Most bins of a heat map."""
_AT_WORK = (Family.IO, Family.COMMIT, Family.LOCK, Family.LATCH, Family.TIMER)
"""Waits of a process of the server while it is at work. In others it waits for work."""
_MOST_WAITS = 6
"""Wait events that are looked at, those that took most time."""
LEAST = {SHARE: 0.01, IMAGES: 1.0, BYTES: 1e3, DURATION: 1e5}
"""By unit, what an activity reaches in some second, or it is not looked at."""
_OF_KIND = 0.5
"""Least share of a script's calls in a mode for the mode to be that script's."""
_COVERED = 0.9
"""Least share of a mode's calls that such scripts have."""
_INSTANTS = 16
SAME = "always the same"


class _Seconds(NamedTuple):
    """Calls by interval and bucket."""

    length_s: int
    counts: Ints  # (intervals, buckets)
    inside: int
    """Intervals that lie in the window as a whole. In the last one calls end, but little is read."""

    @property
    def size(self) -> int:
        return len(self.counts)


class _Activity(NamedTuple):
    kind: str
    name: str
    values: Floats
    """By interval, in its unit."""
    own: bool = False
    """It is time of the sessions in their calls."""
    unit: str = SHARE
    late_s: float = 0.0
    """Delay in seconds with which the server may count an event."""
    tested: bool = True
    """Whether a mode may go with it; otherwise it is only drawn."""


@makes("response_heat", "activity_over_time", "response_modes", "mode_activities")
def response_times(cells: Sequence[RawCell]) -> Tables:
    """Returns the four tables of all cells that have calls by second."""
    frames: dict[str, list[pl.DataFrame]] = {
        name: [empty(name)]
        for name in ("response_heat", "activity_over_time", "response_modes", "mode_activities")
    }
    for cell in cells:
        seconds = _seconds(cell)
        if seconds is None:
            continue
        activities = list(_activities(cell, seconds))
        all_modes, goes = _modes(cell, seconds, [a for a in activities if a.tested])
        records = {
            "response_heat": _heat(seconds),
            "activity_over_time": _over_time(seconds, activities),
            "response_modes": all_modes,
            "mode_activities": goes,
        }
        for name, values in records.items():
            frames[name].append(rows(name, [key(cell) | row for row in values]))
    return {name: pl.concat(parts) for name, parts in frames.items()}


def _seconds(cell: RawCell) -> _Seconds | None:
    """Returns None if the run is older than these counts, or no measured call ended well."""
    table = cell.tables["second_histogram"]
    if table.is_empty():
        return None
    length = int(table["seconds"][0])
    places = bucket(table["low_ns"].to_numpy().astype(np.int64))
    intervals = table["second"].to_numpy() // length
    window_s = (cell.meta.t1_ns - cell.meta.t0_ns) / NS_PER_S
    size = max(int(intervals.max()) + 1, math.ceil(window_s / length))
    counts = np.zeros((size, int(places.max()) + 1), dtype=np.int64)
    np.add.at(counts, (intervals, places), table["count"].to_numpy())
    return _Seconds(length, counts, int(window_s // length))


# -- heat --


def _heat(seconds: _Seconds) -> list[dict[str, Any]]:
    together = -(-seconds.size // TIMES)
    low = int(np.flatnonzero(seconds.counts.any(axis=0))[0])
    buckets = -(-(seconds.counts.shape[1] - low) // DURATIONS)
    times, durations = np.nonzero(seconds.counts)
    counts = seconds.counts[times, durations]
    frame = pl.DataFrame({"time": times // together, "place": (durations - low) // buckets, "count": counts})
    bins = frame.group_by("time", "place").agg(pl.col("count").sum()).sort("time", "place")
    length = together * seconds.length_s
    return [
        {
            "start_s": float(time * length),
            "end_s": float((time + 1) * length),
            "low_ns": low_of(low + place * buckets),
            "high_ns": low_of(low + (place + 1) * buckets) - 1,
            "count": count,
        }
        for time, place, count in bins.rows()
    ]


def _over_time(seconds: _Seconds, activities: Sequence[_Activity]) -> list[dict[str, Any]]:
    together = -(-seconds.size // TIMES)
    length = together * seconds.length_s
    return [
        {
            "start_s": float(n * length),
            "end_s": float((n + 1) * length),
            "kind": activity.kind,
            "name": activity.name,
            "value": float(activity.values[n * together : (n + 1) * together].mean()),
            "unit": activity.unit,
        }
        for activity in activities
        for n in range(-(-seconds.size // together))
    ]


# -- activities --


def _activities(cell: RawCell, seconds: _Seconds) -> Iterator[_Activity]:
    """Yields what is known by second and not next to nothing."""
    edges = cell.meta.t0_ns + np.arange(seconds.size + 1) * seconds.length_s * NS_PER_S
    sampled = list(_of_samples(cell, edges))
    by_process = {a.name for a in sampled}
    of_tasks = [a for a in _of_tasks(cell, edges) if a.name not in by_process]
    others = (*_of_machine(cell, edges), *_of_server(cell, edges), *_of_devices(cell, edges))
    for activity in (*sampled, *of_tasks, *others):
        if activity.values.max(initial=0.0) >= LEAST[activity.unit]:
            yield activity


def _of_samples(cell: RawCell, edges: Ints) -> Iterator[_Activity]:
    """Yields the sessions' waits by event, and the server's own processes while they did not wait for work,
    from the sampler with more samples."""
    sampler = (
        cell.tables["sampler"].filter(pl.col("status") == "ok").with_columns(pl.col("via").fill_null("sql"))
    )
    if sampler.is_empty():
        return
    via = sampler.group_by("via").len().sort("len", "via")["via"][-1]
    times = sampler.filter(via=via).select("sample", at=(pl.col("start_ns") + pl.col("end_ns")) // 2)
    asked = np.histogram(times["at"].to_numpy(), edges)[0]
    chosen = pl.col("via").fill_null("sql") == via
    in_session, helper = pl.col("role") == "session", pl.col("role").str.starts_with(ROLE)
    label = pl.concat_str("wait_class", "wait_event", separator="/")
    waits = in_session & label.is_not_null() & (pl.col("task_state") != "R").fill_null(True)
    at_work = cell.meta.wait_families.among(*_AT_WORK) | pl.col("task_state").is_in(["R", "D"]).fill_null(
        False
    )
    name = pl.when(in_session).then(label).otherwise(pl.col("role").str.strip_prefix(ROLE)).alias("name")
    names = ("sample", "wait_class", "wait_event", "role", "task_state", "via")
    where = chosen & (waits | (helper & at_work))
    parts = [c.select("sample", "role", name) for c in cell.chunks("samples", *names, where=where)]
    if not parts:
        return
    met = pl.concat(parts).join(times, on="sample")
    families = cell.meta.wait_families
    top = met.filter(in_session).group_by("name").len().sort("len", "name", descending=[True, False])
    shown = [n for n in top["name"].to_list() if families.of(n) not in AT_CLIENT][:_MOST_WAITS]
    helpers = met.filter(helper)["name"].unique().sort().to_list()
    for kind, of_kind in (("wait", shown), ("process", helpers)):
        for each in of_kind:
            counts = np.histogram(met.filter(name=each)["at"].to_numpy(), edges)[0]
            yield _Activity(kind, each, _per(counts, asked), kind == "wait")


def _per(counts: Ints, asked: Ints) -> Floats:
    """Returns the mean number of waiting sessions in a sample; that of the interval before, if none was
    answered."""
    mean = counts / np.maximum(asked, 1)
    last = np.maximum.accumulate(np.where(asked > 0, np.arange(asked.size), 0))
    return np.asarray(mean[last], dtype=np.float64)


def _of_tasks(cell: RawCell, edges: Ints) -> Iterator[_Activity]:
    """Yields the run queue of sessions and of the driver, and the CPU time of other processes."""
    reads = reads_of(cell).sort("at_ns")
    parts: dict[tuple[str, str, bool], Floats] = {}
    for task in reads.partition_by(*TASK, maintain_order=True):
        role = str(task["role"][0])
        if role.startswith(ROLE):
            of, column = ("process", role.removeprefix(ROLE), False), "run_ns"
        elif role == "other":
            of, column = ("process", "other sessions", False), "run_ns"
        elif role == "session":
            of, column = ("run queue", "run queue of the server", True), "runq_ns"
        elif role == "driver":
            of, column = ("driver", "run queue of the driver", True), "runq_ns"
        else:
            continue
        grown = _growth(task["at_ns"].to_numpy(), task[column].to_numpy().astype(np.float64), edges)
        parts[of] = parts[of] + grown if of in parts else grown
    for (kind, name, own), values in parts.items():
        yield _Activity(kind, name, values, own)


def _growth(at_ns: Ints, figure: Floats, edges: Ints) -> Floats:
    """Returns the growth of a figure in each interval, per unit of time, spread evenly between reads."""
    highest = np.maximum.accumulate(figure)
    return np.asarray(np.diff(np.interp(edges, at_ns, highest)) / np.diff(edges))


def _of_machine(cell: RawCell, edges: Ints) -> Iterator[_Activity]:
    """Yields time for which a quota or the hypervisor kept tasks from running."""
    for table, kind, name, where in (
        ("cgroup", "quota", "CPU quota", (pl.col("key") == "throttled_ns") & (pl.col("scope") != "driver")),
        ("host", "hypervisor", "CPU time taken by the hypervisor", pl.col("key") == "cpu.steal_ns"),
    ):
        reads = cell.tables[table].filter(where).drop_nulls("value").select(middle().alias("at_ns"), "value")
        if len(reads) > 1:
            reads = reads.group_by("at_ns").agg(pl.col("value").max()).sort("at_ns")
            values = reads["value"].to_numpy().astype(np.float64)
            yield _Activity(kind, name, _growth(reads["at_ns"].to_numpy(), values, edges), True)


def _of_server(cell: RawCell, edges: Ints) -> Iterator[_Activity]:
    """Yields WAL, full-page images, and time with a checkpoint in progress, from the server's counters."""
    read = cell.tables["counter_series"].filter(pl.col("status") == "ok").drop_nulls("value")
    by_name = {
        str(name): (reads["at_ns"].to_numpy(), reads["value"].to_numpy())
        for (name,), reads in read.with_columns(at_ns=middle()).sort("at_ns").group_by("name")
    }
    for name, words, unit, late_s, tested in (
        (FULL_PAGE_IMAGES, "full-page images", IMAGES, LATE_S, True),
        (WAL_POSITION, "WAL", BYTES, 0.0, False),
    ):
        if name in by_name and by_name[name][0].size > 1:
            at_ns, values = by_name[name]
            grown = np.cumsum(np.diff(values, prepend=values[0]).clip(0))  # less than before: it was reset
            per_s = _growth(at_ns, grown, edges) * NS_PER_S
            yield _Activity("WAL", words, per_s, unit=unit, late_s=late_s, tested=tested)
    needed = [by_name[n] for n in (WAL_POSITION, CHECKPOINT_START, CHECKPOINTS_BEGUN) if n in by_name]
    if len(needed) == 3:
        yield _Activity("checkpoint", "checkpoint", _covered(_checkpoints(*needed), edges))


def _checkpoints(
    position: tuple[Ints, Floats], start: tuple[Ints, Floats], begun: tuple[Ints, Floats]
) -> list[tuple[float, float]]:
    """Returns from when to when checkpoints may have been in progress: from the last read before one began to
    the first read after it was complete. One that is complete has left the position in WAL at which it began;
    of one that is not, it is known that it began if the server has counted that."""
    (places_ns, places), (at_ns, starts), (counted_ns, counted) = position, start, begun
    spans, complete = [], 0
    for n in np.flatnonzero(np.diff(starts)) + 1:
        before = max(int(np.searchsorted(places, starts[n], side="right")) - 1, 0)
        spans.append((float(places_ns[before]), float(at_ns[n])))
        complete = int(n)
    later = np.flatnonzero(counted[complete:] > counted[complete]) + complete
    if later.size:
        spans.append((float(counted_ns[later[0] - 1]), float(counted_ns[-1])))
    return spans


def _covered(spans: Sequence[tuple[float, float]], edges: Ints) -> Floats:
    """Returns the share of each interval that spans of time cover."""
    covered = np.zeros(edges.size - 1)
    for begin_ns, end_ns in spans:
        covered += np.clip(np.minimum(edges[1:], end_ns) - np.maximum(edges[:-1], begin_ns), 0, None)
    return np.minimum(covered / np.diff(edges), 1.0)


def _of_devices(cell: RawCell, edges: Ints) -> Iterator[_Activity]:
    """Yields the response time of reads, writes and flushes of the devices below the server's directories; 0
    in seconds without any."""
    places = cell.tables["places"].drop_nulls("device")
    reads = cell.tables["devices"].filter(pl.col("status") == "ok").with_columns(at_ns=middle())
    if places.is_empty() or reads.is_empty():
        return
    steps = device_reads.steps(reads).filter(~pl.col("back"))
    for device in device_reads.counted_devices(places):
        grown = steps.filter(device=device).sort("at_ns")
        if grown.height < 2:
            continue
        at_ns = grown["at_ns"].to_numpy()
        for column, time in (("reads", "read_ns"), ("writes", "write_ns"), ("flushes", "flush_ns")):
            number, spent = (
                _growth(at_ns, grown[c].fill_null(0).cum_sum().to_numpy().astype(np.float64), edges)
                for c in (column, time)
            )
            mean = np.divide(spent, number, out=np.zeros_like(spent), where=number > 0)
            yield _Activity("device", f"{column} of {device}", mean, unit=DURATION)


# -- modes --


def _modes(
    cell: RawCell, seconds: _Seconds, activities: Sequence[_Activity]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the rows of ``response_modes`` and of ``mode_activities``."""
    places = np.arange(seconds.counts.shape[1])
    lows = np.array([low_of(int(p)) for p in places], dtype=np.int64)
    all_modes = modes(lows, seconds.counts.sum(axis=0))
    total = sum(m.calls for m in all_modes)
    middles = (lows + [low_of(int(p) + 1) for p in places]) / 2
    spent = seconds.counts.sum(axis=0) * middles
    most = max(all_modes, key=lambda m: m.calls)
    rows_of_modes, goes = [], []
    for number, mode in enumerate(all_modes, 1):
        inside = (lows >= mode.low_ns) & (True if mode.high_ns is None else lows < mode.high_ns)
        events = seconds.counts[:, inside].sum(axis=1)
        ended = int(np.count_nonzero(events))
        every = None if mode is most else association.regular(events > 0)
        apart = FAR if mode.far else UNCERTAIN
        short = apart if not mode.certain else FEW_SECONDS if ended < LEAST_SECONDS else "ok"
        rows_of_modes.append(
            {
                "mode": number,
                "low_ns": mode.low_ns,
                "high_ns": mode.high_ns,
                "shortest_ns": _measured(cell.tables["sessions"]["min_ns"].min(), mode.shortest_ns),
                "longest_ns": _measured(cell.tables["sessions"]["max_ns"].max(), mode.longest_ns),
                "middle_ns": mode.middle_ns,
                "calls": mode.calls,
                "share": mode.calls / total,
                "time_share": float(spent[inside].sum() / spent.sum()),
                "seconds": ended,
                "every_s": None if every is None else every * seconds.length_s,
                "status": FEW_CALLS if total < FEWEST else short,
            }
        )
        if mode is not most:
            of_mode = [*_kinds(cell, mode), *_with(mode, seconds, events, activities)]
            goes += [{"mode": number} | row for row in of_mode]
    return rows_of_modes, goes


def _measured(extreme: Any, end_ns: int) -> int:
    """Returns the shortest or longest call of the cell, if it is known and in the bucket that ends there;
    else that end."""
    same = extreme is not None and bool(np.equal(*bucket(np.array([extreme, end_ns], dtype=np.int64))))
    return int(extreme) if same else end_ns


def _kinds(cell: RawCell, mode: Mode) -> list[dict[str, Any]]:
    """Returns the scripts, or the jobs, that the mode's calls are of: exact counts. Empty if they are of
    others, too."""
    for kind, counts in (("script", _scripts(cell)), ("job", _jobs(cell))):
        inside = (pl.col("low_ns") >= mode.low_ns) & (mode.high_ns is None or pl.col("low_ns") < mode.high_ns)
        by_name = counts.group_by("name").agg(
            inside=pl.col("count").filter(inside).sum(), all=pl.col("count").sum()
        )
        own = by_name.filter(pl.col("inside") >= _OF_KIND * pl.col("all")).sort(
            "inside", "name", descending=True
        )
        if (
            by_name.height > 1
            and own.height
            and float(own["inside"].sum()) >= _COVERED * (whole := float(by_name["inside"].sum()))
        ):
            return [
                {"kind": kind, "name": name, "goes": True, "share": calls / whole, "status": "ok"}
                for name, calls in own.select("name", "inside").rows()
            ]
    return []


def _scripts(cell: RawCell) -> pl.DataFrame:
    names = cell.tables["scripts"].select("script", "name").unique()
    return cell.tables["script_histogram"].join(names, on="script")


def _jobs(cell: RawCell) -> pl.DataFrame:
    done = cell.tables["executions"].filter(pl.col("measured") & (pl.col("outcome") == "ok"))
    return done.select(name="job", low_ns=pl.col("end_ns") - pl.col("start_ns"), count=pl.lit(1, pl.Int64))


def _with(
    mode: Mode, seconds: _Seconds, events: Ints, activities: Sequence[_Activity]
) -> Iterator[dict[str, Any]]:
    """Yields whether the mode goes with each activity. A call ended in its second, but went on before."""
    length = mode.middle_ns / NS_PER_S / seconds.length_s
    inside = seconds.inside if events[: seconds.inside].any() else seconds.size
    events = events[:inside]
    # What may have been counted late is tested without delay and with it, as two of all activities.
    tried = [
        (n, association.Activity(_while_in_call(_earlier(a.values, late), length)[:inside], a.own))
        for n, a in enumerate(activities)
        for late in range(1 + math.ceil(a.late_s / seconds.length_s))
    ]
    ps = association.associated(events.astype(np.float64), [test for _, test in tried])
    few = inside < association.FEWEST
    marked = events > 0
    for n, activity in enumerate(activities):
        p, values = min(
            ((p, test.values) for (of, test), p in zip(tried, ps, strict=True) if of == n),
            key=lambda t: (math.inf if t[0] is None else t[0], -float(t[1][marked].mean())),
        )
        during = float(values[marked].mean())
        otherwise = float(values[~marked].mean()) if not marked.all() else None
        goes = p is not None and p < association.LEVEL
        high = values > (values.mean() if otherwise is None else (during + otherwise) / 2)
        yield {
            "kind": activity.kind,
            "name": activity.name,
            "goes": goes,
            "share": float(events[high].sum() / events.sum()),
            "during": during,
            "otherwise": otherwise,
            "unit": activity.unit,
            "p": p,
            "status": FEW_SECONDS if few else SAME if p is None else "ok",
        }


def _earlier(values: Floats, intervals: int) -> Floats:
    """Returns what is counted so many intervals later; the last known one for those after."""
    return np.concatenate([values[intervals:], np.full(min(intervals, values.size), values[-1])])


def _while_in_call(values: Floats, length: float) -> Floats:
    """Returns the mean of an activity over a call of this length (in intervals) that ended in the interval,
    at any instant in it."""
    ends = (np.arange(_INSTANTS) + 0.5) / _INSTANTS
    before = min(math.ceil(length), values.size - 1)
    weights = [
        np.clip(np.minimum(ends, 1 - n) - np.maximum(ends - length, -n), 0, None).mean()
        for n in range(before + 1)
    ]
    padded = np.concatenate([np.full(before, values[0]), values])
    mean = np.convolve(padded, np.array(weights) / sum(weights), mode="valid")
    return np.asarray(mean)
