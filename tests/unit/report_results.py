"""A made-up but plausible :class:`Results`: N sessions contend for CPUs under the universal scalability law.

Nothing here was measured. The law is known, so a test can say what a figure in a report must be.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.fake_engine import wait_families
from tests.unit import report_machine, report_tables

from dbdyno.conclude.catalogue import described
from dbdyno.conclude.run.case import Case
from dbdyno.conclude.scaling.capacity import headline
from dbdyno.model.plan.plan import Calibration, Cell, Choice, Experiment, Plan, Workload
from dbdyno.model.results.claim import Claim, Estimate
from dbdyno.model.results.ledger_rows import with_parents
from dbdyno.model.results.results import Results, RunInfo
from dbdyno.model.schema import tables
from dbdyno.present import report
from dbdyno.present.document.document import Chart, walk
from dbdyno.present.figures.headline import PARAGRAPH

WORK_PER_CALL = 132_280.0
CALL_NS = 21_000_000.0
NS = 1_000_000_000
HOSTILE = '<script>alert("x")</script>&\'=1+1'


@dataclass(frozen=True)
class World:
    """Properties of the made-up machine."""

    rungs: Sequence[int] = (1, 2, 3, 4, 6, 8)
    cpus: float = 2
    repeats: int = 1
    variants: Sequence[str] = ("base",)
    os_tasks: bool = True  # False: the server runs elsewhere
    seed: int = 1
    errors: int = 0

    def speed(self, variant: str) -> float:
        return 1.0 - 0.2 * self.variants.index(variant)


SMALL = World()
LARGE = World(rungs=tuple(range(1, 51)), cpus=16)
REPEATED = World(repeats=5, variants=("base", "one-cpu"))
REMOTE = World(os_tasks=False, errors=3)


def results(world: World = SMALL) -> Results:
    """All tables of a run in ``world``."""
    cells = [
        Cell(
            id=f"{i:04d}-lio-{v}-s{n}-r{r}",
            workload="lio",
            variant=v,
            sessions=n,
            repeat=r,
            params={},
            settle_ns=2 * NS,
            measure_ns=10 * NS,
        )
        for i, (v, n, r) in enumerate(
            (v, n, r) for v in world.variants for n in world.rungs for r in range(1, world.repeats + 1)
        )
    ]
    rows_by_cell = [_cell(world, c) for c in cells]
    frames = {
        name: tables.rows(name, [row for cell in rows_by_cell for row in cell[name]])
        for name in rows_by_cell[0]
    }
    frames["ledger"] = with_parents(frames["ledger"])
    frames["rungs"] = tables.rows("rungs", list(_rungs(world, rows_by_cell)))
    frames["sources"] = tables.rows(
        "sources", [s.model_dump() for s in report_machine.sources(world.os_tasks)]
    )
    frames["histogram"] = _histogram(world, cells)
    frames["wait_families"] = wait_families().table()
    plain = Results(
        _info(world),
        _plan(world, cells),
        report_machine.environment(world.cpus, world.os_tasks),
        frames,
        described(_findings(cells)),
    )
    return answered(plain)


def answered(plain: Results) -> Results:
    """Returns the results with the claims of the headline, by the table ``rungs``."""
    case = Case(plain.plan, plain.environment, plain.tables, plain.info.workloads)
    others = [f for f in plain.findings if f.id not in PARAGRAPH]
    return replace(plain, findings=(*others, *headline(case)))


def charts_of(results: Results) -> list[Chart]:
    """All charts of its report, by their names alone."""
    charts = [b for b in walk(report.document(results).blocks) if isinstance(b, Chart)]
    return [replace(c, id=re.sub(r"^[a-z]+-\d+-", "", c.id)) for c in charts]


def hostile() -> Results:
    """Texts that try to break out of HTML, and that a spreadsheet would take for formulas."""
    plain = results()
    server = plain.environment.server.model_copy(
        update={"settings": {"application_name": HOSTILE, "x": "=cmd()"}}
    )
    finding = Claim(id="x", severity="warning", text=HOSTILE, evidence="=1+1", advice="@SUM(A1)")
    return replace(
        plain,
        environment=plain.environment.model_copy(update={"server": server}),
        plan=plain.plan.model_copy(update={"script_text": HOSTILE}),
        findings=(finding, *plain.findings),
    )


def _rate(world: World, cell: Cell) -> float:
    """Calls per second: min(n, CPUs) servers, sigma = 0.02, kappa = 0.001 (Gunther 2007)."""
    n = cell.sessions
    usl = 1 + 0.02 * (n - 1) + 0.001 * n * (n - 1)
    noise = 1 + 0.01 * math.sin(7 * cell.repeat + n)
    return noise * world.speed(cell.variant) * min(n, world.cpus) / usl / (CALL_NS / NS)


def _accounts(world: World, cell: Cell) -> dict[tuple[str, str | None], float]:
    """Seconds per second; the signed remainder closes the sum at ``sessions``."""
    n = cell.sessions
    run = min(n, world.cpus) * 0.97
    sleep = 0.12 * max(0.0, n - 1) * 0.5
    client = 0.01 * n
    left = n - run - sleep - client
    runq = max(0.0, left * 0.98)
    unaccounted = n - run - sleep - client - runq
    return {
        ("run.user", None): run * 0.93,
        ("run.system", None): run * 0.07,
        ("run", None): run,
        ("runq", None): runq,
        ("sleep", "LWLock/BufferMapping"): sleep * 0.6,
        ("sleep", "LWLock/ProcArray"): sleep * 0.1,
        ("sleep", "IO/DataFileRead"): sleep * 0.2,
        ("sleep", "Lock/transactionid"): sleep * 0.1,
        ("client", None): client,
        ("unaccounted", None): unaccounted,
    }


def _cell(world: World, cell: Cell) -> dict[str, list[dict[str, Any]]]:
    key = {
        "cell": cell.id,
        "workload": cell.workload,
        "variant": cell.variant,
        "sessions": cell.sessions,
        "repeat": cell.repeat,
    }
    window = {**key, "t0_ns": 0, "t1_ns": 10 * NS, "wall_s": 10.0, "status": "ok", "reason": None}
    known, total, rate = world.os_tasks, _accounts(world, cell), _rate(world, cell)
    derived = {
        "rates": _rates(world, cell),
        "ledger": [*_ledger(world, cell), *report_tables.memos(total, known)],
        "events": report_tables.events(total, cell.sessions, known),
        "microstates": report_tables.microstates(total, cell.sessions, known),
        "strips": report_tables.strips(total, cell.sessions, known, cell.id),
        "over_time": report_tables.over_time(rate, cell.sessions),
        "profile": report_tables.profile(total, rate, WORK_PER_CALL, known),
        "top_events": report_tables.top_events(total, known),
        "data_sources": _sources(world, cell),
    }
    return {"windows": [window], **{name: [{**key, **r} for r in rows] for name, rows in derived.items()}}


def _rates(world: World, cell: Cell) -> Iterator[dict[str, Any]]:
    rate = _rate(world, cell)
    mean = cell.sessions / rate * NS
    run = _accounts(world, cell)[("run", None)]
    known = {
        "calls_per_s": (rate, "1/s", "driver"),
        "work_per_s": (rate * WORK_PER_CALL, "blocks/s", "engine counters"),
        "response_mean_ns": (mean, "ns", "driver"),
        **{f"response_p{p}_ns": (mean * f, "ns", "driver") for p, f in ((50, 0.97), (95, 1.3), (99, 1.6))},
        "cpu_per_call_ns": (run / rate * NS if world.os_tasks else None, "ns", "os tasks"),
    }
    for name, (value, unit, source) in known.items():
        yield _known({"scope": "rung", "session": None, "name": name, "unit": unit, "source": source}, value)
    noise = random.Random(f"{world.seed}{cell.id}")
    for session in range(cell.sessions):
        share = rate / cell.sessions * (1 + noise.gauss(0, 0.04))
        row = {
            "scope": "session",
            "session": session,
            "name": "calls_per_s",
            "unit": "1/s",
            "source": "driver",
        }
        yield _known(row, share)


def _ledger(world: World, cell: Cell) -> Iterator[dict[str, Any]]:
    total = _accounts(world, cell)
    scopes: list[tuple[str, int | None, float]] = [("rung", None, 1.0)]
    scopes += [("session", s, 1 / cell.sessions) for s in range(cell.sessions)]
    for scope, session, part in scopes:
        for (account, detail), aas in total.items():
            known = world.os_tasks or account in ("client", "sleep")
            row = {"scope": scope, "session": session, "who": scope, "account": account, "detail": detail}
            source = "activity samples" if account == "sleep" else "os tasks"
            yield _known({**row, "source": source}, aas * part if known else None, "aas")
    for who, cpus in (("io worker", 0.05), ("wal writer", 0.01), ("checkpointer", 0.004)):
        row = {"scope": "helper", "session": None, "who": who, "account": "run", "detail": None}
        yield _known(
            {**row, "source": "os tasks"}, cpus * cell.sessions**0.5 if world.os_tasks else None, "aas"
        )


def _sources(world: World, cell: Cell) -> Iterator[dict[str, Any]]:
    run = _accounts(world, cell)[("run", None)]
    for source, factor in (("os tasks", 1.0), ("cgroup", 1.04), ("host", 1.1), ("activity samples", 0.8)):
        known = world.os_tasks or source == "activity samples"
        verdict = "reference" if source == "os tasks" else "agrees" if factor < 1.05 else "differs"
        yield _known(
            {
                "quantity": "cpu_used",
                "source": source,
                "unit": "cores",
                "relative_difference": factor - 1 if known else None,
                "verdict": verdict if known else "unknown",
            },
            run * factor if known else None,
        )


def _known(row: Mapping[str, Any], value: float | None, name: str = "value") -> dict[str, Any]:
    return {**row, name: value, "status": "not here" if value is None else "ok"}


def _rungs(world: World, rows_by_cell: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for variant in world.variants:
        lowest = None
        for n in world.rungs:
            cells = [
                m
                for m in rows_by_cell
                if m["windows"][0]["variant"] == variant and m["windows"][0]["sessions"] == n
            ]
            row = _rung(world, cells)
            lowest = lowest or row["calls_per_s"] / n
            yield {
                "workload": "lio",
                "variant": variant,
                "sessions": n,
                "repeats": len(cells),
                "status": "ok",
                "scaling": row["calls_per_s"] / n / lowest,
                **row,
            }


def _rung(world: World, cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    def rate(name: str) -> float | None:
        values = [r["value"] for c in cells for r in c["rates"] if r["name"] == name and r["scope"] == "rung"]
        return None if None in values else sum(values) / len(values)

    def aas(account: str) -> float | None:
        of_rung = [r for c in cells for r in c["ledger"] if r["scope"] == "rung" and not r.get("parent")]
        rows = [r["aas"] for r in of_rung if r["account"] == account]
        return None if None in rows else sum(rows) / len(cells)

    calls = [
        r["value"] for c in cells for r in c["rates"] if r["name"] == "calls_per_s" and r["scope"] == "rung"
    ]
    half = 0.02 * calls[0] if len(calls) > 1 else None
    mean = sum(calls) / len(calls)
    return {
        "calls": round(10 * sum(calls)),
        "errors": world.errors,
        "calls_per_s": mean,
        "calls_per_s_low": half and mean - half,
        "calls_per_s_high": half and mean + half,
        "work_per_s": rate("work_per_s"),
        "work_per_call": WORK_PER_CALL,
        **{f"response_{s}_ns": rate(f"response_{s}_ns") for s in ("mean", "p50", "p95", "p99")},
        **{f"{a}_aas": aas(a) for a in ("run", "runq", "sleep", "client", "unaccounted")},
        "helpers_aas": 0.06 if world.os_tasks else None,
        "cpu_per_call_ns": rate("cpu_per_call_ns"),
        "top_wait": "LWLock/BufferMapping",
        "driver_cpus": 0.02,
        "driver_starved": 0.01,
    }


def _histogram(world: World, cells: Sequence[Cell]) -> Any:
    rows = []
    for cell in cells:
        mean = cell.sessions / _rate(world, cell) * NS
        for i in range(-20, 60):
            low = int(mean * (1 + i / 100))
            rows.append(
                {
                    "cell": cell.id,
                    "workload": "lio",
                    "variant": cell.variant,
                    "sessions": cell.sessions,
                    "repeat": cell.repeat,
                    "low_ns": low,
                    "high_ns": int(mean * (1 + (i + 1) / 100)) - 1,
                    "count": round(400 * math.exp(-(((i + 3) / 12) ** 2))),
                }
            )
    return tables.pl.DataFrame(rows)


def _info(world: World) -> RunInfo:
    started = datetime(2026, 11, 21, 10, 45, 1, tzinfo=UTC)
    workload = Workload(
        name="lio",
        title="Logical I/O",
        doc="Logical reads of cached blocks with as little else as possible.",
        work_unit="logical reads",
        work_short="LIO",
        work_constant=True,
        calibrated=True,
    )
    calibration = Calibration(
        workload="lio",
        target_ns=20_000_000,
        target_reason="the ladder's top and a window of 10 s",
        size=2048,
        size_unit="ranges",
        measured_ns=round(CALL_NS),
        basis="cpu",
        work_per_call=WORK_PER_CALL,
        steps=((64, 700_000), (1024, 10_600_000), (2048, 21_000_000)),
    )
    return RunInfo(
        schema_version=1,
        id="20261121-104501-lio-3f9a",
        dbdyno="0.1.0",
        started=started,
        started_monotonic_ns=1,
        ended=started + timedelta(seconds=12 * len(world.rungs)),
        status="complete",
        workloads={"lio": workload},
        calibrations={f"lio/{v}": calibration for v in world.variants},
    )


def _plan(world: World, cells: Sequence[Cell]) -> Plan:
    return Plan(
        experiment=Experiment(engine="postgres", workload="lio", repeats=world.repeats),
        cpus=world.cpus,
        call_target_ns=20_000_000,
        cells=tuple(cells),
        expected_ns=12 * NS * len(cells),
        choices=(Choice(name="sessions", value="1:8", reason="four times the 2 CPUs of the affinity mask"),),
    ).sealed()


def _findings(cells: Sequence[Cell]) -> tuple[Claim, ...]:
    top = max(cells, key=lambda c: c.sessions).id
    return (
        Claim(
            id="work-constant",
            severity="good",
            text="Every call did 132,280 logical reads.",
            value=Estimate("work-constant", 132280),
        ),
        Claim(
            id="cpu-wait",
            severity="warning",
            text="Sessions spend most of their time in the run queue.",
            value=Estimate("cpu-wait", 0.66, "of session time", 0.64, 0.68),
            evidence="ledger, account runq",
            advice="fewer sessions or more CPUs",
            cells=(top,),
        ),
    )
