"""Table ``machine_growth``, and the metrics of the host and its groups that are made from it."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from dbdyno.account.machine_growth import machine_growth
from dbdyno.model.schema.tables import rows
from dbdyno.present.metrics.window import Sample, _host

CELL = {"cell": "c", "workload": "w", "variant": "base", "sessions": 2, "repeat": 1}
S = 1_000_000_000


def level(origin: str, key: str, delta: float | None, **changes: Any) -> dict[str, Any]:
    own = {"origin": origin, "scope": "host" if origin == "host" else "server", "key": key, "delta": delta}
    return CELL | own | {"wall_ns": 5 * S, "first": 1.0, "last": 4.0, "status": "ok"} | changes


LEVELS = rows(
    "cut_levels",
    [
        level("host", "cpu.user_ns", 2.5 * S),
        level("host", "cpu0.busy_ns", 1.0 * S),
        level("host", "cpus", None),
        level("host", "procs_running", None, last=7.0),
        level("host", "psi.io.full_ns", 0.5 * S, wall_ns=4 * S),
        level("host", "psi.memory.some_ns", None, status="reset"),
        level("cgroup", "throttled_ns", 1.0 * S, place="/outer"),
        level("cgroup", "throttled_ns", 2.0 * S, place="/outer/inner"),
        level("cgroup", "usage_ns", 9.0 * S, place="/outer"),
        level("cgroup", "throttled_ns", 3.0 * S, place="/driver", scope="driver"),
        level("engine", "executions", 9.0),
    ],
)


def test_counters_of_the_host_and_throttled_time_of_the_server_are_kept() -> None:
    table = machine_growth(LEVELS)
    assert table.filter(pl.col("origin") == "host")["key"].to_list() == [
        *("cpu.user_ns", "cpus", "procs_running", "psi.io.full_ns", "psi.memory.some_ns")
    ]
    assert table.filter(pl.col("origin") == "cgroup")["place"].to_list() == ["/outer", "/outer/inner"]


def test_growth_is_that_of_the_window_and_nested_groups_do_not_add_up() -> None:
    growth = machine_growth(LEVELS).select("origin", "key", "last", "delta", "wall_ns").rows()
    assert list(_host(growth, 5.0)) == [
        Sample("dbdyno_group_throttled_seconds", (), 2.0),
        Sample("dbdyno_host_cpu_seconds", ("user",), 2.5),
        Sample("dbdyno_host_cpus", (), 4.0),
        Sample("dbdyno_host_runnable_tasks", (), 7.0),
        Sample("dbdyno_host_pressure_stalled_seconds", ("io", "full"), pytest.approx(0.625)),
    ]
