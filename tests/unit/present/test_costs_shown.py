"""Costs of a call on the screen, and in comparisons of known laws of the simulated server."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import polars as pl
import pytest
from rich.console import Console
from tests.fake_engine import FakeServer
from tests.fakery import S, climb, climb_one
from tests.unit.shown import as_text

from dbdyno import present
from dbdyno.conclude.compare import compare_runs
from dbdyno.conduct.derive.derive import derive
from dbdyno.model.engine.protocols import Target
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.comparison import Comparison
from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_sources.costs import BY_ID
from dbdyno.model.units import format_amount
from dbdyno.present.compare import sides

LAW = "fake:cpus=4,cpu=10ms,system=0.25,commit=IO/WalSync:2ms,think=5ms,driver=20us,spread=0.1"


def _run(law: str, repeats: int, run_id: str = "1", ladder: tuple[int, ...] = (1,)) -> Results:
    """Returns a run whose repeats have random numbers of their own."""
    run = climb(law, ladder, repeats=repeats, measure_ns=S)
    servers = (FakeServer(Target(dsn=f"{law},seed={run_id}{n}")) for n, _ in enumerate(run.plan.cells))
    cells = [climb_one(s, c, trace=True) for s, c in zip(servers, run.plan.cells, strict=True)]
    results = derive(run.info, run.plan, run.environment, cells)
    return replace(results, info=results.info.model_copy(update={"id": run_id}))


def _text(results: Results, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(present.details(results, "costs"))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.fixture(scope="module")
def ladder() -> Results:
    return _run(f"{LAW},helper=checkpointer:0.1", 2, ladder=(1, 3))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(ladder: Results, width: int) -> None:
    lines = _text(ladder, width).splitlines()
    assert max(map(len, lines)) <= width
    assert any(line.startswith("CPU ") for line in lines)


def test_a_load_has_a_line_a_figure_and_every_load_a_line(ladder: Results) -> None:
    text = _text(ladder, 80)
    head, _, loads = text.partition("every load")
    assert "per call" in head and "per LIO" in head and "background" in head
    assert re.search(r"^CPU +(9\.[5-9]|10\.[0-5])\d* ms ", head, re.MULTILINE)
    assert re.search(r"^WAL +(9[5-9]\d B|1,0[0-5]\d B)", head, re.MULTILINE)
    assert [line.split()[:2] for line in loads.splitlines() if line.startswith(("1 s", "3 s"))] == [
        ["3", "sessions"],
        ["1", "session"],
    ]


def test_what_is_unknown_has_a_mark_and_its_reason(ladder: Results) -> None:
    text = " ".join(_text(ladder, 80).split())
    assert "? system calls: " in text and "--trace-syscalls" in text
    assert "? device reads, " in text


def _with_costs(results: Results, **columns: pl.Expr) -> Results:
    return replace(
        results, tables={**results.tables, "costs": results.tables["costs"].with_columns(**columns)}
    )


def test_a_lower_bound_is_marked_and_says_what_is_missing(ladder: Results) -> None:
    of_cpu = pl.col("figure") == "cpu_ns"
    status = (
        pl.when(of_cpu).then(pl.lit("at least: a worker ended in the window")).otherwise("background_status")
    )
    text = _text(_with_costs(ladder, background_status=status), 80)
    assert re.search(r"^CPU .* >= [0-9.]+ [a-z]+$", text, re.MULTILINE)
    assert ">= in the background, CPU: a worker ended in the window." in " ".join(text.split())
    assert re.search(r"^1 session +>= ", text, re.MULTILINE)


def test_a_figure_of_some_repeats_says_so(ladder: Results) -> None:
    of_cpu = pl.col("figure") == "cpu_ns"
    some = pl.when(of_cpu).then(pl.lit("1 of 2 windows")).otherwise("background_status")
    text = _text(_with_costs(ladder, background_status=some), 80)
    assert "From 1 of 2 windows, in the background: CPU." in " ".join(text.split())


def test_a_missing_right_is_named_with_its_cure(ladder: Results) -> None:
    of_devices = pl.col("figure").str.starts_with("device")
    bare = _with_costs(
        ladder,
        status=pl.when(of_devices).then(pl.lit("not permitted")).otherwise("status"),
        source=pl.when(of_devices).then(pl.lit("devices, the whole machine's")).otherwise("source"),
    )
    sources = ladder.tables["sources"]
    cure = "the directories are hidden: run dbdyno as root"
    refused = sources.head(1).with_columns(
        name=pl.lit("devices"), status=pl.lit("not permitted"), detail=pl.lit(cure)
    )
    named = replace(bare, tables={**bare.tables, "sources": pl.concat([sources, refused])})
    assert f"device flushes: {cure}." in " ".join(_text(named, 80).split())
    assert "device flushes: a right is missing: dbdyno doctor names it." in " ".join(_text(bare, 80).split())


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "count", "0"),
        (0.000000991, "count", "1 in 1.01 M"),
        (0.000247, "count", "1 in 4.05 k"),
        (0.00138, "count", "0.00138"),
        (0.0000991, "bytes", "1 B in 10.1 k"),
        (8_192.0, "bytes", "8.00 KiB"),
        (0.5, "ns", "500 ps"),
    ],
)
def test_tiny_amounts_are_readable(value: float, unit: str, text: str) -> None:
    assert format_amount(value, unit) == text


def _cost_change(a: str, b: str, repeats: int) -> tuple[Comparison, list[Claim]]:
    comparison = compare_runs(_run(a, repeats), _run(b, repeats, "2"))
    return comparison, [c for c in comparison.conclusions if c.id == "cost-change"]


def test_a_comparison_names_the_costs_that_differ_and_no_others() -> None:
    slower = LAW.replace("cpu=10ms,system=0.25", "cpu=11ms,system=0.32")  # user CPU: 7.5 ms and 7.48 ms
    comparison, (claim,) = _cost_change(LAW, slower, 5)
    assert claim.case == "some"
    assert re.search(r"(9\.\d|1[01]) % more CPU", claim.text)
    assert "all of it in the kernel" in claim.text
    assert "WAL" in claim.text.partition("the same within")[2]
    assert "WAL" not in claim.text.partition("the same within")[0]
    assert claim.text in comparison.summary
    figures = [f for f in comparison.operation_costs[0].figures if not f.background]
    ratios = {f.figure: f.contrast.effect.ratio for f in figures}
    assert ratios["cpu_ns"] == pytest.approx(1.1, rel=0.02)
    assert ratios["cpu_system_ns"] == pytest.approx(11 * 0.32 / 2.5, rel=0.1)
    assert ratios["wal_bytes"] == pytest.approx(1.0, rel=0.02)


def test_nothing_is_named_where_nothing_differs() -> None:
    _, (claim,) = _cost_change(LAW, LAW, 5)
    assert claim.case == "none"
    assert "no cost per " in claim.text


def test_three_repeats_say_that_they_are_too_few() -> None:
    _, (claim,) = _cost_change(LAW, LAW.replace("cpu=10ms", "cpu=11ms"), 3)
    assert claim.case == "few"
    assert "3 repeats" in claim.text


def test_one_repeat_decides_no_cost() -> None:
    comparison, claims = _cost_change(LAW, LAW.replace("cpu=10ms", "cpu=20ms"), 1)
    assert claims == []
    verdicts = {f.contrast.verdict for c in comparison.operation_costs for f in c.figures}
    assert verdicts <= {"undecided"}


def test_costs_of_zero_on_both_sides_are_one_line() -> None:
    comparison, _ = _cost_change(LAW, LAW, 2)
    zero = [f for f in comparison.operation_costs[0].figures if not f.baseline_mean and not f.variant_mean]
    own, behind = ([BY_ID[f.figure].title for f in zero if f.background is b] for b in (False, True))
    shown = as_text(present.comparison(comparison), 120).partition("Costs of a call")[2]
    table, _, rest = shown.partition("0 on both sides: ")
    line = f"{', '.join(own)}; in the background {', '.join(behind)}"
    assert own and behind and " ".join(rest.partition(".")[0].split()) == line
    assert not [t for t in own if re.search(rf"^{t}  ", table, re.MULTILINE)]


@pytest.mark.parametrize(("kept", "words"), [(3, "cut short: 1 to 2 of 2 repeats"), (2, "1 of 2 repeats")])
def test_a_run_that_was_cut_short_says_how_many_repeats_it_has(
    ladder: Results, kept: int, words: str
) -> None:
    whole = replace(ladder, info=ladder.info.model_copy(update={"status": "complete"}))
    windows = whole.tables["windows"].sort("repeat", "sessions").head(kept)
    info = whole.info.model_copy(update={"status": "cut short", "id": "2"})
    part = replace(whole, info=info, tables={**whole.tables, "windows": windows})
    identities = [p.text for p in sides.identities([whole, part])]
    assert "; 2 repeats; " in identities[0]
    assert words in identities[1]
