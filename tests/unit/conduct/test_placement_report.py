"""Placement in a whole run: rounds on the fake server, the tables from them, the terminal, the page, JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from syrupy.assertion import SnapshotAssertion
from tests.fake_engine import FakeServer
from tests.fakery import S, climb, climb_one, plan_cell
from tests.unit.placements import table_of
from tests.unit.shown import as_html, as_text

from dbdyno import present
from dbdyno.account.placement import placement
from dbdyno.conduct.derive.derive import derive
from dbdyno.model.engine.protocols import Target
from dbdyno.model.plan.plan import DriverSetup
from dbdyno.model.results.results import Results
from dbdyno.present.document.document import Block
from dbdyno.present.run.placement import section

CORES = tuple((n, n + 8) for n in range(8))


def rounds_of(dsn: str, sessions: int) -> Results:
    """Returns the results of a run of one cell in rounds."""
    base = climb("fake:", [1], measure_ns=S)
    cell = plan_cell(sessions, measure_ns=3 * S).model_copy(update={"driver": DriverSetup(rounds=True)})
    raw = climb_one(FakeServer(Target(dsn=dsn)), cell, log_calls=True)
    plan = base.plan.model_copy(update={"cells": (cell,)})
    return derive(base.info, plan, base.environment, [raw])


@pytest.fixture(scope="module")
def shared() -> Results:
    """Results of a run in which two of nine sessions on eight cores share a core."""
    chance = np.random.default_rng(2)
    times = 100 * np.exp(chance.normal(0, 0.01, (12, 9)))
    times[:, [1, 4]] *= 1.5
    tables = [
        table_of(times, [[0, 1, 2, 3, 9, 4, 5, 6, 7]] * 12, moved=np.zeros((12, 9))),
        table_of(times[:, :1], [[0]] * 12, moved=np.zeros((12, 1))),
    ]
    placed, placements = placement(pl.concat(tables), CORES)
    results = rounds_of("fake:cpus=2,cpu=100ms", 1)
    return replace(results, tables={**results.tables, "placed": placed, "placements": placements})


def blocks_of(results: Results) -> list[Block]:
    placement_section = section(results)
    return [] if placement_section is None else [placement_section]


def test_the_fake_server_keeps_rounds() -> None:
    """Three sessions on two CPUs: none begins before all have ended."""
    results = rounds_of("fake:cpus=2,cpu=90ms,unequal=0.5", 3)
    calls = results.tables["placed"].with_columns(end=pl.col("start_ns") + pl.col("duration_ns"))
    by_round = calls.group_by("round").agg(pl.col("start_ns").min(), pl.col("end").max()).sort("round")
    assert by_round.height > 10
    assert (by_round["start_ns"][1:] >= by_round["end"][:-1]).all()
    row = results.tables["placements"].row(0, named=True)
    assert (row["sessions"], row["rounds"]) == (3, by_round.height)
    assert row["moved"] is None and row["all_known"] == 0, "the fake machine tells no CPU"


@pytest.mark.parametrize("lost", ["0@3s", "2@3s"])
def test_rounds_go_on_without_a_session_that_is_lost(lost: str) -> None:
    """Calls of the lost session count in the rounds that were whole."""
    results = rounds_of(f"fake:cpus=4,cpu=90ms,lose={lost}", 3)
    row = results.tables["placements"].row(0, named=True)
    assert 5 < row["rounds"] < 15, "a second of the window, of three"
    assert results.tables["windows"]["status"].to_list() == ["ok"]


def test_a_run_without_rounds_has_no_placement() -> None:
    climbed = climb("fake:cpus=2,cpu=90ms", [2], log_calls=True, measure_ns=2 * S)
    results = derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)
    assert results.tables["placements"].is_empty()
    assert section(results) is None
    assert present.document(results)["placements"] == []


def test_the_terminal_shows_rungs_and_each_sessions_calls(shared: Results) -> None:
    lines = as_text(blocks_of(shared), 150).splitlines()
    nine = next(line for line in lines if line.split()[:1] == ["9"])
    assert "2 of 9" in nine and "a core" in nine and "0 of 108" in nine
    strips = {line.split()[0]: line for line in lines if line.rstrip().endswith("|")}
    assert set(strips) == set("012345678")
    assert "o" in strips["1"].split("|")[1] and "." not in strips["1"].split("|")[1]
    assert "." in strips["0"].split("|")[1] and "o" not in strips["0"].split("|")[1]
    assert "12 of 12" in strips["4"]


def circles(page: str) -> Iterator[ElementTree.Element]:
    svg = re.search(r"<svg.*?</svg>", page, re.S)
    assert svg is not None
    yield from ElementTree.fromstring(svg[0]).iter("circle")


def test_the_page_has_a_dot_for_each_call(shared: Results) -> None:
    page = as_html(blocks_of(shared))
    dots = list(circles(page))
    assert len(dots) == 108
    slow = [d for d in dots if "runq" in str(d.get("data-style"))]
    assert len(slow) == 24
    assert min(float(str(d.get("cx"))) for d in slow) > max(
        float(str(d.get("cx"))) for d in dots if d not in slow
    )
    titles = [t.text or "" for t in slow[0].iter("title")]
    assert titles[0].endswith("CPU 1, shared a core")
    assert page.count("<table") == 2


def test_json_has_the_table_of_placements(shared: Results) -> None:
    nine = next(p for p in present.document(shared)["placements"] if p["sessions"] == 9)
    assert (nine["shared"], nine["slow_sessions"], nine["groups"]) == ("core", 2, True)


def test_the_section_of_placement_is_the_stored_text(shared: Results, snapshot: SnapshotAssertion) -> None:
    assert as_text(blocks_of(shared), 80) == snapshot
