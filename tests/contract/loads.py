"""Loads driven by hand as conduct does it, for tests of the engine alone."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

import polars as pl

from dbdyno.engines.postgres import PostgresServer
from dbdyno.model.engine.protocols import Load, Server
from dbdyno.model.plan.plan import Calibration, Cell, DriverSetup, PlannedScript, Workload
from dbdyno.model.schema.tables import from_core

LEAD_NS = 50_000_000


def workload(name: str) -> Workload:
    text = resources.files("dbdyno").joinpath("workloads", f"{name}.toml").read_text()
    return Workload.model_validate(tomllib.loads(text))


def defaults(unit: Workload, **given: Any) -> dict[str, Any]:
    return {n: p.default for n, p in unit.parameters.items()} | given


def cell(
    unit: Workload, params: Mapping[str, Any], sessions: int, measure_ns: int, driver: DriverSetup
) -> Cell:
    return Cell(
        id="0000",
        workload=unit.name,
        variant="base",
        sessions=sessions,
        repeat=1,
        params=dict(params),
        settle_ns=0,
        measure_ns=measure_ns,
        driver=driver,
    )


def calibration_of_size(unit: Workload, size: int) -> Calibration:
    """Returns a calibration of a given size, for tests without a target."""
    return Calibration(
        workload=unit.name,
        target_ns=1,
        target_reason="test",
        size=size,
        size_unit="",
        measured_ns=1,
        basis="wall",
        work_per_call=None,
        steps=(),
    )


def run(
    server: Server,
    unit: Workload,
    params: Mapping[str, Any],
    sessions: int,
    *,
    size: int = 1,
    calls: int | None = 10,
    measure_ns: int = 10_000_000_000,
    driver: DriverSetup | None = None,
) -> dict[str, pl.DataFrame]:
    """Returns the raw tables of one load in which every session makes ``calls`` calls. Rounds are logged."""
    planned = cell(unit, params, sessions, measure_ns, driver or DriverSetup())
    load = server.load(unit, planned, calibration_of_size(unit, size), planned.driver.rounds, calls)
    load.connect()
    _until_done(load)
    start = load.now_ns() + LEAD_NS
    load.start(start, start, start + measure_ns)
    _until_done(load)
    load.finish()
    _until_done(load)
    return {name: from_core(name, columns) for name, columns in load.tables().items()}


def _until_done(load: Load) -> None:
    while not load.wait(1.0):
        pass


def work(tables: Mapping[str, pl.DataFrame], counter: str) -> dict[int, int]:
    """Returns per session what its calls added to a counter, without the probe's own constant
    (docs/core.md)."""
    wide = (
        tables["counters"]
        .filter(pl.col("name") == counter)
        .pivot(on="phase", index="session", values="value")
        .with_columns(work=pl.col("after1") - 2 * pl.col("before2") + pl.col("before1"))
    )
    return {s: int(w) for s, w in zip(wide["session"], wide["work"], strict=True)}


def script(server: PostgresServer, text: str, name: str) -> Workload:
    """Returns an own script as a workload."""
    return server.script([PlannedScript(name=name, text=text)])
