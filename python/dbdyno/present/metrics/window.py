"""The metrics of windows as a pure function of their derived tables.

Values of counters and histograms are what a window adds; those of gauges and info metrics are the last
window's. An unknown figure has no sample.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.sources.wait_families import Family, WaitFamilies, families_of
from dbdyno.model.units import NS_PER_S
from dbdyno.present.metrics.records import BUCKETS_S

OPTIONAL = ("device_io",)
"""Tables that runs of this version need not have."""


class Sample(NamedTuple):
    """A value of a metric. ``labels`` are in the order of its record, without the server.

    ``buckets``: of a histogram, the number of calls in each bucket, the last one unbounded; ``value`` is then
    the sum of the observed values.
    """

    name: str
    labels: tuple[str, ...]
    value: float
    buckets: tuple[float, ...] = ()


class Window(NamedTuple):
    """``start_s`` and ``end_s``: by the clock of the tables; None if no figure is of the window."""

    cell: str
    samples: tuple[Sample, ...]
    length_s: float = 0.0
    start_s: float | None = None
    end_s: float | None = None


_COLUMNS = {
    "windows": ("t0_ns", "t1_ns", "wall_s", "status", "workload", "variant", "sessions"),
    "ledger": ("scope", "who", "account", "parent", "detail", "aas"),
    "events": ("scope", "wait_class", "wait_event", "waits_per_s"),
    "rates": ("scope", "name", "value"),
    "profile": ("name", "total"),
    "cell_histogram": ("low_ns", "high_ns", "count"),
    "cell_sources": ("name", "status"),
    "machine_growth": ("origin", "key", "last", "delta", "wall_ns"),
}
TABLES = (*_COLUMNS, "wait_families")
"""Derived tables that a window's metrics are made from."""
Row = tuple[Any, ...]
Rows = Mapping[str, list[Row]]


def windows(tables: Mapping[str, pl.DataFrame], epoch_ns: int) -> Iterator[Window]:
    """Yields the metrics of each window of ``tables``, in the order of running.

    ``epoch_ns``: nanoseconds since 1970 less those of the clock of the tables.
    """
    families = families_of(tables)
    by_cell = {name: _by_cell(tables[name], columns) for name, columns in _COLUMNS.items()}
    devices = [] if "device_io" not in tables else tables["device_io"].to_dicts()
    for cell, ((t0_ns, t1_ns, wall_s, status, *load),) in by_cell["windows"].items():
        samples, ends_s = [Sample("dbdyno_windows", (status,), 1.0)], (None, None)
        if status != "invalid":
            ends_s = t0_ns / NS_PER_S, t1_ns / NS_PER_S
            own = {name: rows.get(cell, []) for name, rows in by_cell.items()}
            samples += [
                Sample("dbdyno_observed_seconds", (), wall_s),
                Sample("dbdyno_window_length_seconds", (), wall_s),
                Sample("dbdyno_window_end_timestamp_seconds", (), (t1_ns + epoch_ns) / NS_PER_S),
                Sample("dbdyno_window", tuple(str(value or "") for value in load), 1.0),
                *_session_time(own["ledger"], families, wall_s),
                *_memos(own["ledger"], wall_s),
                *_processes(own["ledger"], wall_s),
                *_waits(own["events"], families, wall_s),
                *_throughput(own, wall_s),
                *_host(own["machine_growth"], wall_s),
                *_devices([row for row in devices if row["cell"] == cell], wall_s),
                *_sources(own["cell_sources"]),
            ]
        yield Window(cell, tuple(samples), wall_s, *ends_s)


def _by_cell(table: pl.DataFrame, columns: Sequence[str]) -> dict[str, list[Row]]:
    """Returns the rows by cell. The tables are so small that loops cost less than queries."""
    by_cell: dict[str, list[Row]] = {}
    for cell, *row in table.select("cell", *columns).rows():
        by_cell.setdefault(cell, []).append(tuple(row))
    return by_cell


_ACCOUNTS = {
    "run.user": "cpu_user",
    "run.system": "cpu_system",
    "client": "client",
    "pool.queue": "pool_queue",
}
_LEAST = 1e-9  # seconds per second
_NONE = ("", "", "")  # class, event and family of time without a wait event


def _session_time(ledger: list[Row], families: WaitFamilies, wall_s: float) -> Iterator[Sample]:
    rung = [row[2:] for row in ledger if row[0] == "rung"]
    sums = {account: aas for account, _, detail, aas in rung if detail is None and aas is not None}
    divided = "run.user" in sums and "run.system" in sums
    for account, name in _ACCOUNTS.items():
        if account in sums and (divided or not account.startswith("run.")):
            labels = ("", "", str(Family.CLIENT)) if account == "client" else _NONE
            yield _seconds(name, labels, sums[account] * wall_s)
    if not divided and "run" in sums:
        yield _seconds("cpu", _NONE, sums["run"] * wall_s)
    queued = 0.0
    for account, parent, detail, aas in rung:
        if detail is None or aas is None or (account, parent) not in (("sleep", None), ("runq", "runq")):
            continue
        name = "wait" if account == "sleep" else "run_queue"
        queued += aas if name == "run_queue" else 0.0
        yield _seconds(name, _event(detail, families), aas * wall_s)
    # time in the run queue whose label is not known; parts are rounded
    if "runq" in sums and (not queued or sums["runq"] - queued > _LEAST):
        yield _seconds("run_queue", _NONE, (sums["runq"] - queued) * wall_s)
    if "runq.throttled" in sums:
        yield Sample("dbdyno_session_throttled_seconds", (), sums["runq.throttled"] * wall_s)


def _memos(ledger: list[Row], wall_s: float) -> Iterator[Sample]:
    """Yields session time, the part of it that is not accounted for, and sessions by state."""
    states: dict[str, float] = {}
    unaccounted = next((row[-1] for row in ledger if (row[0], row[2]) == ("rung", "unaccounted")), None)
    for scope, _, account, _, detail, aas in ledger:
        if scope != "memo" or aas is None:
            continue
        if account == "wall":
            yield Sample("dbdyno_session_wall_seconds", (), aas * wall_s)
            if unaccounted is not None and aas > 0:
                yield Sample("dbdyno_session_unaccounted_ratio", (), unaccounted / aas)
        elif account.startswith("state.") and detail is not None:
            states[detail] = states.get(detail, 0.0) + aas
    for state, sessions in states.items():
        yield Sample("dbdyno_sessions", (state,), sessions)


def _seconds(account: str, labels: tuple[str, str, str], seconds: float) -> Sample:
    return Sample("dbdyno_session_seconds", (account, *labels), seconds)


def _event(detail: str, families: WaitFamilies) -> tuple[str, str, str]:
    """Returns class, event and family of a label of a wait: ``class/event``, or words without a class."""
    wait_class, slash, event = detail.partition("/")
    return (wait_class, event, str(families.of(detail))) if slash else ("", detail, "")


def _processes(ledger: list[Row], wall_s: float) -> Iterator[Sample]:
    """Yields CPU and run queue of the server's processes, and CPU of dbdyno."""
    whole = [
        (scope, who, account, aas)
        for scope, who, account, parent, detail, aas in ledger
        if account in ("run", "runq") and parent is None and detail is None
    ]
    server = [aas for scope, _, account, aas in whole if scope in ("rung", "helper") and account == "run"]
    if server and None not in server:
        yield Sample("dbdyno_server_cpu_seconds", (), sum(server) * wall_s)
    for scope, who, account, aas in whole:
        if aas is not None and scope == "helper":
            name = f"dbdyno_helper_{'cpu' if account == 'run' else 'run_queue'}_seconds"
            yield Sample(name, (who,), aas * wall_s)
        elif aas is not None and (scope, who, account) == ("beside", "dbdyno", "run"):
            yield Sample("dbdyno_observer_cpu_seconds", (), aas * wall_s)


def _waits(events: list[Row], families: WaitFamilies, wall_s: float) -> Iterator[Sample]:
    by_event: dict[tuple[str, str], float] = {}
    for scope, wait_class, event, per_s in events:
        if scope == "rung" and per_s and event is not None:
            label = wait_class or "", event
            by_event[label] = by_event.get(label, 0.0) + per_s
    for (wait_class, event), per_s in by_event.items():
        family = str(families.of(f"{wait_class}/{event}"))
        yield Sample("dbdyno_waits", (wait_class, event, family), per_s * wall_s)


_SUMS = {"calls": "dbdyno_calls", "errors": "dbdyno_errors"}
_PER_S = {"driver_cpus": "dbdyno_driver_cpu_seconds", "driver_runq": "dbdyno_driver_run_queue_seconds"}
_COUNTED = {"transactions": "dbdyno_transactions", "executions": "dbdyno_statements"}


def _throughput(own: Rows, wall_s: float) -> Iterator[Sample]:
    rates = {name: value for scope, name, value in own["rates"] if scope == "rung" and value is not None}
    for name, metric in _SUMS.items():
        if name in rates:
            yield Sample(metric, (), rates[name])
    for name, metric in _PER_S.items():
        if name in rates:
            yield Sample(metric, (), rates[name] * wall_s)
    for name, total in own["profile"]:
        if name in _COUNTED and total is not None:
            yield Sample(_COUNTED[name], (), total)
    bins = own["cell_histogram"]
    if bins and "response_mean_ns" in rates and "calls" in rates:
        total_s = rates["response_mean_ns"] * rates["calls"] / NS_PER_S
        yield Sample("dbdyno_response_seconds", (), total_s, _buckets(bins))


def _buckets(bins: list[Row]) -> tuple[float, ...]:
    """Returns the calls in each bucket, those of a bin in the bucket that its middle lies in: a bin spans
    less than 1 % of its value."""
    counts = [0.0] * (len(BUCKETS_S) + 1)
    for low_ns, high_ns, calls in bins:
        counts[bisect_left(BUCKETS_S, (low_ns + high_ns) / (2 * NS_PER_S))] += calls
    return tuple(counts)


_PRESSURE = re.compile(r"psi\.(cpu|io|memory)\.(some|full)_ns")
_MODE = re.compile(r"cpu\.([a-z]+)_ns")
_LEVELS = {
    "cpus": "dbdyno_host_cpus",
    "procs_running": "dbdyno_host_runnable_tasks",
    "procs_blocked": "dbdyno_host_blocked_tasks",
}


def _host(growth: list[Row], wall_s: float) -> Iterator[Sample]:
    throttled = [
        delta / wall_ns * wall_s
        for origin, key, _, delta, wall_ns in growth
        if (origin, key) == ("cgroup", "throttled_ns") and delta is not None and wall_ns
    ]
    if throttled:  # groups lie within each other
        yield Sample("dbdyno_group_throttled_seconds", (), max(throttled))
    for origin, key, last, delta, wall_ns in growth:
        if origin != "host":
            continue
        if key in _LEVELS and last is not None:
            yield Sample(_LEVELS[key], (), last)
        elif delta is not None and wall_ns:
            seconds = delta / wall_ns * wall_s  # reads are near the window's ends, not at them
            if match := _MODE.fullmatch(key):
                yield Sample("dbdyno_host_cpu_seconds", (match[1],), seconds)
            elif match := _PRESSURE.fullmatch(key):
                yield Sample("dbdyno_host_pressure_stalled_seconds", (match[1], match[2]), seconds)


_DEVICE_RATES = {
    "reads_per_s": "reads",
    "writes_per_s": "writes",
    "flushes_per_s": "flushes",
    "read_bytes_per_s": "read_bytes",
    "written_bytes_per_s": "written_bytes",
    "utilisation": "busy_seconds",
}
_DEVICE_TIMES = {
    "read_seconds": ("reads_per_s", "read_await_ns"),
    "write_seconds": ("writes_per_s", "write_await_ns"),
    "flush_seconds": ("flushes_per_s", "flush_await_ns"),
}


def _devices(devices: list[dict[str, Any]], wall_s: float) -> Iterator[Sample]:
    for row in devices:
        if row["device"] is None:  # a place without one, such as tmpfs
            continue
        device = (row["device"],)
        for column, name in _DEVICE_RATES.items():
            if row.get(column) is not None:
                yield Sample(f"dbdyno_device_{name}", device, row[column] * wall_s)
        for name, (rate, await_ns) in _DEVICE_TIMES.items():
            if row.get(rate) is not None and (row.get(await_ns) is not None or not row[rate]):
                spent_s = row[rate] * (row.get(await_ns) or 0.0) / NS_PER_S * wall_s
                yield Sample(f"dbdyno_device_{name}", device, spent_s)
        if row.get("in_flight") is not None:
            yield Sample("dbdyno_device_in_flight_requests", device, row["in_flight"])
        if row.get("places"):
            yield Sample("dbdyno_device", (row["device"], row["places"]), 1.0)


def _sources(sources: list[Row]) -> Iterator[Sample]:
    """Yields whether each source that was asked for could be read."""
    up: dict[str, bool] = {}
    for name, status in sources:
        if status != "off":
            up[name] = up.get(name, True) and status == "ok"
    for name, read in up.items():
        yield Sample("dbdyno_source_up", (name,), float(read))
