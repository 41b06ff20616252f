"""Who used the CPUs beside the server: from readings, by raw rows, to the claim."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from tests.fakery import Climb, climb

from dbdyno.account.other_processes import other_processes
from dbdyno.conclude.run.case import Case
from dbdyno.conclude.run.quality import foreign_load
from dbdyno.conduct.measure.others import MOST, OtherProcesses
from dbdyno.kernel.cpu_use import Process, Reading
from dbdyno.kernel.machine import HERE
from dbdyno.kernel.processes import Identity
from dbdyno.model.plan.plan import Experiment
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.tables import empty, raw, rows

S = 1_000_000_000
MAIN = 700
ANY: Any = None


def reading(at_s: float, used_s: dict[str, float], ended_s: float = 0.0) -> Reading:
    """``make`` has pid 1, the others 2, 3 ...; the server's backend belongs to process MAIN."""
    processes = {
        Identity(HERE.pid, 1): Process("dbdyno", 1, int(at_s * S), 0),
        Identity(MAIN, 1): Process("postgres", 1, 0, 0),
        Identity(MAIN + 1, 1): Process("postgres", MAIN, int(at_s * S), 0),
    }
    for n, (name, seconds) in enumerate(used_s.items(), 1):
        ended_ns = int(ended_s * S) if name == "make" else 0
        processes[Identity(n, 5)] = Process(name, 0, int(seconds * S), ended_ns)
    return Reading(int(at_s * S), 0, 0, 2, processes)


@dataclass(frozen=True)
class Raw:
    tables: dict[str, pl.DataFrame] = field(default_factory=dict)
    meta: Any = field(default_factory=lambda: SimpleNamespace(t0_ns=0, t1_ns=10 * S))

    def named(self) -> dict[str | None, float]:
        return {n: ns / S for n, ns in self.tables["other_processes"].select("name", "cpu_ns").iter_rows()}


def companion(*readings: Reading, observing: bool = False, **chosen: Any) -> OtherProcesses:
    server: Any = SimpleNamespace(machine=HERE, world=None)
    plan: Any = SimpleNamespace(experiment=Experiment.model_validate(chosen))
    return OtherProcesses(server, plan, [MAIN], observing=observing, read=iter(readings).__next__)


def after(others: OtherProcesses, raw: Raw | None = None) -> list[Any]:
    cells: Any = [raw or Raw()]
    return list(others.after(cells))


def test_a_measurement_is_read_in_its_window_and_after_it() -> None:
    first = reading(1, {"make": 0, "cc1": 5}, ended_s=3)
    last = reading(6, {"make": 0, "cc1": 7, "new": 0.5}, ended_s=4)
    others = companion(first, last)
    others.before(ANY)
    for _ in range(3):
        others.look(ANY, ANY, ANY)
    others.window_over()
    (cell,) = after(others)
    assert cell.named() == {"cc1": 2, "make": 1, "new": 0.5, None: 3.5}
    table = cell.tables["other_processes"]
    assert set(table["first_ns"]) == {S} and set(table["last_ns"]) == {6 * S}
    assert table.filter(name="make")["children_ns"].to_list() == [S]
    others.before(ANY)
    assert after(others)[0].tables == {}, "a measurement that never reached its window"


def test_only_the_largest_are_stored_and_the_sum_has_all() -> None:
    many = {f"p{n}": float(n) for n in range(1, 31)}
    others = companion(reading(0, dict.fromkeys(many, 0.0)), reading(100, many))
    others.look(ANY, ANY, ANY)
    others.window_over()
    (cell,) = after(others)
    named = cell.named()
    assert len(named) == MOST + 1 and named["p30"] == 30 and "p20" not in named
    assert named[None] == sum(many.values())


def test_windows_of_an_observation_follow_each_other() -> None:
    at = [reading(n, {"pgbench": 0.25 * n}) for n in (0, 10, 20)]
    others = companion(*at, observing=True)
    others.before(ANY)
    for n in range(2):
        others.look(ANY, ANY, ANY)
        (window,) = after(others)
        assert window.named() == {"pgbench": 2.5, None: 2.5}
        assert window.tables["other_processes"]["first_ns"][0] == 10 * n * S


def test_a_window_that_is_too_short_for_its_cost_is_left_out() -> None:
    many = reading(0, {f"p{n}": 0.0 for n in range(5_000)})
    others = companion(many, observing=True)
    others.before(ANY)
    short = Raw(meta=SimpleNamespace(t0_ns=0, t1_ns=S))
    assert after(others, short)[0].tables == {}


def test_nothing_is_read_where_nothing_is_observed() -> None:
    others = companion(observe=False)
    others.before(ANY)
    others.look(ANY, ANY, ANY)
    others.window_over()
    assert after(others)[0].tables == {}


# -- the derived table and the claim -------------------------------------------------------------------


@pytest.fixture(scope="module")
def run() -> Climb:
    return climb("fake:cpu=50ms", [1, 2])


def read_rows(*processes: dict[str, Any], status: str = "ok") -> pl.DataFrame:
    span = {"first_ns": S, "last_ns": 5 * S, "children_ns": 0, "status": status}
    return rows(raw("other_processes"), [span | p for p in processes])


def test_processes_that_were_observed_are_none_of_the_others(run: Climb) -> None:
    read = read_rows(
        {"pid": 7, "name": "postgres", "cpu_ns": 2 * S},
        {"pid": 8, "name": "cc1", "user": "build", "cpu_ns": 3 * S, "children_ns": S},
        {"cpu_ns": 6 * S},
    )
    tasks = pl.DataFrame({"pid": [7, 7, (1 << 32) + 8]})
    cell: Any = SimpleNamespace(
        meta=SimpleNamespace(cell=run.plan.cells[0]), tables={"other_processes": read, "tasks": tasks}
    )
    table = other_processes([cell])
    assert table.select("pid", "name", "user", "cpus", "children_cpus").rows() == [
        (8, "cc1", "build", 0.75, 0.25),
        (None, None, None, 1.0, 0.0),
    ]
    bare = RawCell(cell.meta, {"other_processes": empty(raw("other_processes")), "tasks": tasks})
    assert other_processes([bare]).is_empty(), "a run of an older version"


def claimed(run: Climb, others: float, processes: pl.DataFrame) -> Claim:
    """The claim about a machine that used 0.5 CPUs for known tasks and ``others`` for unknown ones."""
    cell = run.plan.cells[0]
    used = {"cell": cell.id, "quantity": "cpu_used_machine", "source": "host", "verdict": "differs"}
    used |= {"value": 0.5 + others, "relative_difference": others / 0.5, "sessions": 1, "variant": "base"}
    windows = [{"cell": cell.id, "status": "ok", "sessions": 1, "variant": "base", "rate_per_s": None}]
    key = {"cell": cell.id, "workload": "lio", "variant": "base", "sessions": 1, "repeat": 1}
    table = rows("other_processes", [key | p for p in processes.to_dicts()])
    tables = {
        "windows": pl.DataFrame(windows),
        "data_sources": pl.DataFrame([used]),
        "other_processes": table,
    }
    (claim,) = foreign_load(Case(run.plan, run.environment, tables, {}))
    return claim


def derived(*processes: tuple[int | None, str | None, float, float], status: str = "ok") -> pl.DataFrame:
    names = ("pid", "name", "cpus", "children_cpus")
    return pl.DataFrame([dict(zip(names, p, strict=True)) | {"status": status} for p in processes])


def test_the_claim_names_who_used_most_and_the_rest_has_no_name(run: Climb) -> None:
    processes = derived(
        (1, "make", 0.3, 0.3),
        (2, "cc1", 0.9, 0.0),
        (3, "sh", 0.2, 0.0),
        (4, "vim", 0.1, 0.0),
        (None, None, 1.5, 0.0),
    )
    claim = claimed(run, 1.9, processes)
    assert claim.value is not None and claim.value.value == pytest.approx(1.9)
    who = claim.slots["who"]
    assert who.index("cc1 (pid 2) 0.90") < who.index("make (pid 1, with its ended children) 0.30")
    assert "vim" not in who and "and 1 more" in who
    assert "0.40 without a name" in who, "1.9 less the 1.5 that were read"
    assert "without a name" not in claimed(run, 1.55, processes).slots["who"], "within what ticks explain"


def test_what_is_not_visible_is_said(run: Climb) -> None:
    hidden = derived(
        (None, None, 0.0, 0.0), status="processes outside of this container are not visible from here"
    )
    who = claimed(run, 1.0, hidden).slots["who"]
    assert "1.0 without a name: processes outside" in who
    assert claimed(run, 1.0, hidden.clear()).slots["who"] == ""
