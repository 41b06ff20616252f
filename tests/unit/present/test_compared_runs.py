"""Two runs beside each other: which is which, what to mistrust of each, and both ladders in one chart."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.compare_runs import noisy
from tests.unit.report_results import World
from tests.unit.shown import tables

from dbdyno import present
from dbdyno.conclude.compare import compare_runs, compare_variants
from dbdyno.model.results.claim import Claim, Estimate
from dbdyno.model.results.results import Results
from dbdyno.present.document.document import UNKNOWN, Chart, Section, Statements, walk
from dbdyno.present.figures import compare_rows

THREE = World(rungs=(1, 2, 4), repeats=3, variants=("base",))
ONE = World(rungs=(1, 2, 4, 8), repeats=1, variants=("base",))


def named(results: Results, name: str, *warnings: str) -> Results:
    claims = [Claim(id="steal", text=text, severity="warning") for text in warnings]
    info = results.info.model_copy(update={"name": name})
    return replace(results, info=info, findings=(*claims, *results.findings))


@pytest.fixture(scope="module")
def sides() -> tuple[Results, Results]:
    a = named(noisy(THREE, id="20261128-a"), "before", "Steal of A.")
    return a, named(noisy(ONE, seed=2, id="20261128-b"), "", "Steal of B.")


def test_names_or_else_what_and_when_stand_in_the_title_and_ids_below_it(
    sides: tuple[Results, Results],
) -> None:
    a, b = sides
    document = present.comparison(compare_runs(a, b), (), sides)
    assert document.title == f"lio, {b.info.started.astimezone():%-d %b %H:%M} (B) against before (A)"
    below = [p.text for p in document.lead if not p.lead]
    assert a.info.id in below[0] and "3 repeats" in below[0]
    assert b.info.id in below[1] and "1 repeat;" in below[1]


def test_intervals_are_drawn_for_wide_and_for_narrow_pages(sides: tuple[Results, Results]) -> None:
    comparison = compare_runs(*sides)
    table = comparison.metrics[0]
    drawn = compare_rows.plot(table, comparison)
    assert drawn is not None
    wide, narrow = drawn.split("</svg>")[:2]
    assert 'class="intervals wide"' in wide and 'class="intervals narrow"' in narrow
    assert wide.count("<circle") == narrow.count("<circle") == len(table.claims)
    assert 'viewBox="0 0 360 ' in narrow, "a telephone shows 360 units as they are"


def test_warnings_of_both_runs_are_shown_each_with_its_run(sides: tuple[Results, Results]) -> None:
    document = present.comparison(compare_runs(*sides), (), sides)
    (shown,) = [b for b in walk(document.blocks) if isinstance(b, Statements)]
    texts = [s.text for s in shown.items]
    assert "A (before): Steal of A." in texts and "B: Steal of B." in texts


def test_one_chart_holds_every_load_of_both_ladders(sides: tuple[Results, Results]) -> None:
    document = present.comparison(compare_runs(*sides), (), sides)
    (chart,) = [b for b in walk(document.blocks) if isinstance(b, Chart)]
    points = [r for rows in chart.spec["datasets"].values() for r in rows if "repeats" in r]
    drawn = {(r["series"], r["sessions"]) for r in points}
    assert drawn == {("A (before)", n) for n in (1, 2, 4)} | {("B", n) for n in (1, 2, 4, 8)}
    assert [k.label for k in chart.legend] == ["A (before)", "B"]
    assert {r["series"] for r in points if r["low"] is not None} == {"A (before)"}


@pytest.mark.parametrize("repeats", [(1, 1), (3, 1), (2, 2), (6, 6)])
def test_a_reason_stands_beside_every_undecided_verdict_and_no_column_is_unknown(
    repeats: tuple[int, int],
) -> None:
    a, b = (noisy(replace(THREE, repeats=n), seed=n + i, id=f"r{i}") for i, n in enumerate(repeats))
    compared = compare_runs(a, b)
    undecided = [c for t in compared.metrics for c in t.claims if c.verdict == "undecided"]
    assert undecided and all(c.because for c in undecided)
    assert all(
        "contains 1" in c.because for c in undecided if (c.effect.low or 2) <= 1 <= (c.effect.high or 0)
    )
    for table in (t.shown(sketches=False) for t in tables(present.comparison(compared).blocks)):
        for n, column in enumerate(table.columns):
            assert {r.cells[n].text for r in table.rows} - {UNKNOWN, ""}, column.head


def test_the_order_of_variants_is_the_same_for_every_quantity() -> None:
    world = World(rungs=(4,), repeats=3, variants=("base", "second", "third"))
    comparison = compare_variants(noisy(world, spread=0.2))
    shown_tables = tables(present.comparison(comparison).blocks)
    first, others = shown_tables[0], next(t for t in shown_tables if t.columns[0].head == "quantity")
    order = [r.cells[1].text for r in first.rows]
    shown = [r.cells[1].text for r in others.rows]
    assert len(shown) > len(order) and shown == order * (len(shown) // len(order))


def test_where_a_server_is_makes_no_difference() -> None:
    a, b = noisy(THREE, id="a"), noisy(THREE, id="b")
    places = {"port": "5433", "unix_socket_directories": "/run/x", "data_directory": "/var/x"}
    server = b.environment.server
    moved = {**server.settings, **places, "work_mem": "1GB"}
    changed = {"settings": moved, "here_detail": "process 1", "main_pid": 1}
    environment = b.environment.model_copy(update={"server": server.model_copy(update=changed)})
    compared = compare_runs(a, replace(b, environment=environment))
    assert {d.what for d in compared.differences} == {"server.settings.work_mem"}


def test_loads_with_busy_neighbours_are_no_second_warning_below_the_doubt(
    sides: tuple[Results, Results],
) -> None:
    a, b = sides
    loads = Claim(id="disturbed", text="Others were busy at 4 sessions.", severity="warning")
    busy = Claim(
        id="foreign-load",
        text="Others took half of the machine.",
        severity="warning",
        value=Estimate("busy", 1e6, "CPU"),
    )

    def listed(*claims: Claim) -> bool:
        first = replace(a, findings=(*claims, *a.findings))
        document = present.comparison(compare_runs(first, b), (), (first, b))
        below = next(s for s in document.blocks if isinstance(s, Section) and s.id == "warnings")
        return any(loads.text in i.text for x in walk([below]) if isinstance(x, Statements) for i in x.items)

    assert listed(loads)
    assert not listed(busy, loads)
