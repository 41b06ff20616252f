"""Time travel over HTTP: figures of a span, comparisons, spans that cannot be, what is written or damaged."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import polars as pl
import pytest

from dbdyno import conduct, present
from dbdyno.model.schema.tables import empty
from dbdyno.model.units import NS_PER_S, format_ns
from dbdyno.present.figures import figures
from dbdyno.store import Parts, Run, SnapshotStore
from dbdyno.store.listing import start_ticks
from dbdyno.web import time_travel
from tests.stored_runs import busy, observation, observed_window
from tests.unit.made_snapshots import snapshot
from tests.web.conftest import Lab, Started

pytestmark = [pytest.mark.whole, pytest.mark.queries]


FACTORS = (1, 2, 3, 1, 1.5, 5)
"""How busy each window is."""
STARTS_S = (0, 10, 20, 30, 100, 110)


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """An observation of one window of 10 s."""
    return observed_window(tmp_path_factory.mktemp("window"))


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory, window: Run) -> Run:
    """An observation of six windows of 10 s, with a gap of a minute."""
    return observation(tmp_path_factory.mktemp("observed"), window, STARTS_S, busy(FACTORS))


def per_s(run: Run, name: str) -> float:
    """A figure of the load profile of the one window, per second."""
    profile = conduct.results_of(run).tables["profile"].filter(pl.col("name") == name)
    return float(profile["per_s"][0])


@pytest.fixture
def lab_of(start_lab: Started) -> Callable[[Run], Lab]:
    return lambda run: start_lab(run.path.parent).enter()


def windows(run: Run) -> list[dict[str, Any]]:
    rows = conduct.results_of(run).tables["windows"].sort("t0_ns").to_dicts()
    begun_s = run.info.started.timestamp() - run.info.started_monotonic_ns / NS_PER_S
    return [
        r | {"start_s": begun_s + r["t0_ns"] / NS_PER_S, "end_s": begun_s + r["t1_ns"] / NS_PER_S}
        for r in rows
    ]


def of(run: Run, first: int, last: int, **more: str) -> str:
    """The address of the windows from ``first`` to ``last``, which are named by their number from 0."""
    all_windows = windows(run)
    ends = time_travel.address(run.id, all_windows[first]["start_s"], all_windows[last]["end_s"])
    return ends + "".join(f"&{name}={value}" for name, value in more.items())


def beside(run: Run, first: int, last: int) -> dict[str, str]:
    """Parameters of an address: these windows as A."""
    ends = parse_qsl(of(run, first, last).partition("?")[2])
    return {"against": "span"} | {f"against-{name}": value for name, value in ends}


def span(lab: Lab, address: str) -> dict[str, Any]:
    path, _, query = address.partition("?")
    answer: dict[str, Any] = json.loads(lab.ask(f"{path}/span?{query}", Accept="application/json").text)
    return answer


def words(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def test_figures_of_a_span_are_the_sums_of_its_windows(
    window: Run, observed: Run, lab_of: Callable[[Run], Lab]
) -> None:
    lab, base = lab_of(observed), {n: per_s(window, n) for n in ("DB time", "DB CPU")}
    answer = span(lab, of(observed, 1, 3))
    chosen = windows(observed)[1:4]
    assert answer["span"] == pytest.approx([chosen[0]["start_s"], chosen[-1]["end_s"]], abs=1e-3)
    shown = words(answer["html"])
    assert f"DB time {format_ns((2 + 3 + 1) / 3 * base['DB time'] * NS_PER_S)}" in shown
    assert f"DB CPU {format_ns((2 + 3 + 1) * 10 * base['DB CPU'] * NS_PER_S)}" in shown
    assert "3 whole windows" in shown
    every = words(span(lab, time_travel.address(observed.id))["html"])
    assert f"DB time {format_ns(sum(FACTORS) / 6 * base['DB time'] * NS_PER_S)}" in every


@pytest.mark.parametrize("microsecond", [200_000, 500_000, 700_000])
def test_a_moment_is_the_same_second_in_the_address_fields_and_texts(
    observed: Run, tmp_path: Path, lab_of: Callable[[Run], Lab], microsecond: int
) -> None:
    run = Run(shutil.copytree(observed.path, tmp_path / "store" / observed.id))
    (tmp_path / "store").chmod(0o700)
    run.update_info(started=run.info.started.replace(microsecond=microsecond))
    second, *_, fourth = windows(run)[1:4]
    begin, end = (
        datetime.fromtimestamp(math.floor(round(s, 3) + 0.5)).astimezone()
        for s in (second["start_s"], fourth["end_s"])
    )
    address = of(run, 1, 3)
    assert address.endswith(
        urlencode({"from": f"{begin.astimezone(UTC):%FT%TZ}", "to": f"{end.astimezone(UTC):%FT%TZ}"})
    )
    page = lab_of(run).ask(address).text
    assert f"{begin:%H:%M:%S} to " in words(page) and f" to {end:%H:%M:%S} " in words(page)
    fields = re.findall(r'name="(?:from|to)" value="([^"]*)"', page)
    assert fields == [f"{begin:%FT%T}", f"{end:%FT%T}"]
    assert figures.clock(conduct.results_of(run), second["t0_ns"]) == f"{begin:%T}"  # as tables name windows


def test_the_chart_has_all_windows_and_the_gap_whatever_the_span(
    window: Run, observed: Run, lab_of: Callable[[Run], Lab]
) -> None:
    page = lab_of(observed).ask(of(observed, 2, 2)).text
    chart = json.loads(re.search(r'id="time-chart">(.*?)</script>', page)[1])  # type: ignore[index]
    since = [round(t - chart["times"][0]) for t in chart["times"]]
    assert since == [0, 10, 20, 30, 40, 100, 110, 120]
    stack = zip(*(s["values"] for s in chart["series"]), strict=True)
    heights = [None if None in values else sum(values) for values in stack]
    base = per_s(window, "DB time")
    expected = [None if f is None else f * base for f in (1, 2, 3, 1, None, 1.5, 5, None)]
    assert heights == [e if e is None else pytest.approx(e, rel=1e-3) for e in expected]
    assert all(any(s["values"]) for s in chart["series"])
    assert "1 whole window" in words(page)


@pytest.mark.parametrize("factors", [(1, 0, 2), (0, 0, 0)])
def test_a_window_without_active_sessions_is_zero_and_no_gap(
    window: Run, tmp_path: Path, factors: tuple[float, ...]
) -> None:
    run = observation(tmp_path, window, (0, 10, 20), busy(factors))
    chart = present.time_chart(conduct.ObservedTime(run).whole_once())
    heights = [sum(values) for values in zip(*(s["values"][:-1] for s in chart["series"]), strict=True)]
    assert heights == pytest.approx([f * per_s(window, "DB time") for f in factors], rel=1e-3)


def test_a_span_against_another_ranks_what_changed_most(
    window: Run, observed: Run, lab_of: Callable[[Run], Lab]
) -> None:
    all_windows, base = windows(observed), per_s(window, "DB time")
    ends = {"against-from": all_windows[0]["start_s"], "against-to": all_windows[2]["end_s"]}
    answer = span(lab_of(observed), of(observed, 3, 5, **beside(observed, 0, 2)))
    assert answer["against"] == pytest.approx([*ends.values()], abs=1e-3)
    shown = words(answer["html"])
    assert shown.startswith("A: ") and "What changed: load" in shown
    time = conduct.ObservedTime(observed)
    first, *_, last = all_windows[3:]
    compared = time.compared(time.chosen(*ends.values()), time.chosen(first["start_s"], last["end_s"]))
    changes = compared.events["change"].abs().to_list()
    assert changes == sorted(changes, reverse=True) and compared.blocks == (3, 3)
    cpu = compared.events.row(by_predicate=pl.col("name") == "DB CPU", named=True)
    cpu_base = per_s(window, "DB CPU")
    assert (cpu["a"], cpu["b"]) == pytest.approx((2 * cpu_base, 2.5 * cpu_base))
    assert cpu["change"] == pytest.approx(0.5 * cpu_base)
    db_time = compared.load.row(by_predicate=pl.col("name") == "DB time", named=True)
    assert (db_time["a"], db_time["b"]) == pytest.approx((2 * base, 2.5 * base))
    assert db_time["low"] < db_time["ratio"] < db_time["high"]


def test_equal_windows_have_no_intervals_and_the_reason_is_that(
    window: Run, tmp_path: Path, lab_of: Callable[[Run], Lab]
) -> None:
    run = observation(tmp_path / "store", window, range(0, 80, 10), busy((1,) * 4 + (1.7,) * 4))
    (tmp_path / "store").chmod(0o700)
    shown = words(span(lab_of(run), of(run, 4, 7, **beside(run, 0, 3)))["html"])
    assert "B/A: no intervals, as these take figures that vary" in shown


def test_without_windows_at_the_time_before_nothing_is_compared(
    observed: Run, lab_of: Callable[[Run], Lab]
) -> None:
    lab = lab_of(observed)
    answer = lab.ask(of(observed, 3, 5, against="1d"))
    assert answer.status == 400 and "Nothing was measured from" in answer.text
    assert "What changed" not in answer.text and "3 whole windows" in words(answer.text)


def test_another_span_without_times_is_asked_for(observed: Run, lab_of: Callable[[Run], Lab]) -> None:
    answer = span(lab_of(observed), of(observed, 3, 5, against="span"))
    assert "has no times" in answer["notes"] and "3 whole windows" in answer["html"]
    assert answer["against"] is None and answer["fields"]["against-from"] == ""


def test_spans_that_overlap_are_named(observed: Run, lab_of: Callable[[Run], Lab]) -> None:
    lab = lab_of(observed)
    assert "A and B overlap by 10.0 s" in span(lab, of(observed, 2, 3, **beside(observed, 0, 2)))["notes"]
    assert span(lab, of(observed, 2, 3, **beside(observed, 0, 1)))["notes"] == ""


def test_a_missing_end_is_that_of_the_observation_and_refused_times_stay(
    observed: Run, lab_of: Callable[[Run], Lab]
) -> None:
    lab, second = lab_of(observed), windows(observed)[1]
    begin = time_travel.written(second["start_s"])
    assert "5 whole windows" in span(lab, f"/time/{observed.id}?from={begin}")["html"]
    refused = span(lab, f"/time/{observed.id}?from={begin}&to=2026-01-01T00:00:00")
    assert "ends before it begins" in refused["notes"] and refused["html"] == ""
    assert refused["fields"] | {"from": ""} == {
        "from": "", "to": "2026-01-01T00:00:00", "against-from": "", "against-to": ""
    }  # fmt: skip
    assert datetime.fromisoformat(refused["fields"]["from"]).astimezone(UTC) == datetime.fromisoformat(begin)


@pytest.mark.parametrize(
    ("query", "words_of_it"),
    [
        ("from=2030-01-01T00:00:00Z&to=2030-01-02T00:00:00Z", "Nothing was measured from 2030"),
        ("from=2030-01-02T00:00:00Z&to=2030-01-01T00:00:00Z", "ends before it begins"),
        ("from=%3Cscript%3Ealert(1)%3C/script%3E", "No time in from=<script>alert(1)</script>"),
        ("from=999999-01-01", "No time in"),
        ("against=yesterday", "No such span"),
    ],
)
def test_a_span_that_cannot_be_is_a_line_in_the_page_with_the_cure(
    observed: Run, lab_of: Callable[[Run], Lab], query: str, words_of_it: str
) -> None:
    answer = lab_of(observed).ask(f"/time/{observed.id}?{query}")
    assert answer.status == 400 and words_of_it in words(answer.text) and "What to do:" in answer.text
    assert "<script>alert" not in answer.text and 'id="time-chart"' in answer.text


def test_a_span_between_windows_is_the_window_that_it_lies_in(observed: Run) -> None:
    time, (_, second, *_) = conduct.ObservedTime(observed), windows(observed)
    chosen = time.chosen(second["start_s"] + 2, second["start_s"] + 3)
    assert (chosen.span.first, chosen.span.end) == (1, 2)
    assert time.chosen(second["start_s"] + 6, second["end_s"] + 6).span == (2, 3)


def test_late_sections_are_of_the_span_too(observed: Run, lab_of: Callable[[Run], Lab]) -> None:
    lab = lab_of(observed)
    answer = span(lab, of(observed, 4, 4, part="waits"))
    cell = windows(observed)[4]["cell"]
    events = conduct.results_of(observed).tables["events"]
    event = events.filter((pl.col("cell") == cell) & (pl.col("scope") == "rung")).sort(
        "sleep", descending=True
    )
    assert f"{event['sleep'][0]:.3g}"[:4] in words(answer["html"])
    assert "microstates over" in words(span(lab, of(observed, 4, 4, part="sessions"))["html"])
    assert span(lab, of(observed, 4, 4, part="<b>"))["html"] == ""


def test_an_observation_that_is_going_on_shows_its_windows_so_far(
    observed: Run, tmp_path: Path, lab_of: Callable[[Run], Lab]
) -> None:
    run = Run(shutil.copytree(observed.path, tmp_path / "store" / observed.id))
    (tmp_path / "store").chmod(0o700)
    ended = span(lab_of(run), of(run, 0, 2))
    pid = os.getpid()
    going_on = {"status": "running", "ended": None, "pid": pid, "pid_start_ticks": start_ticks(pid)}
    run.update_info(**going_on)
    shutil.rmtree(run.path / "derived")
    lab = lab_of(run)
    assert span(lab, of(observed, 0, 2))["html"] == ended["html"]
    assert lab.ask(f"/time/{run.id}").status == 200
    shutil.rmtree(run.path / "parts")
    empty = lab.ask(f"/time/{run.id}")
    assert empty.status == 400 and "has no window yet" in empty.text


def test_parts_that_are_merged_while_they_are_read_are_read_again(
    observed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(shutil.copytree(observed.path, tmp_path / observed.id))
    read_one, merged = Parts.read_one, []

    def merging(parts: Parts, name: str, tables: Any) -> Any:
        if not merged:  # the part gets another directory, as by a merge, and what was read is of the old one
            merged.append(shutil.copytree(parts.path / name, tmp_path / "new"))
            shutil.rmtree(parts.path / name)
            merged[0].rename(parts.path / name)
            return {t: empty(t) for t in tables}
        return read_one(parts, name, tables)

    monkeypatch.setattr(Parts, "read_one", merging)
    time = conduct.ObservedTime(run)
    assert time.results(time.whole).tables["event_seconds"].height > 6 and merged


def test_damage_and_other_kinds_of_runs_are_named(
    observed: Run, model_run: Path, tmp_path: Path, lab_of: Callable[[Run], Lab]
) -> None:
    run = Run(shutil.copytree(observed.path, tmp_path / "store" / observed.id))
    (tmp_path / "store").chmod(0o700)
    for file in run.path.glob("parts/*/event_seconds.parquet"):
        file.write_bytes(b"damaged")
    answer = lab_of(run).ask(f"/time/{run.id}")
    assert answer.status == 409 and "dbdyno rebuild" in answer.text and 'id="time-chart"' in answer.text
    ladder = lab_of(Run(model_run)).ask(f"/time/{model_run.name}")
    assert ladder.status == 400 and "no observation" in ladder.text


def test_snapshots_of_days_are_reported_between_the_nearest_two(tmp_path: Path, start_lab: Started) -> None:
    store = SnapshotStore(tmp_path / "store")
    committed = [600 * n * n for n in range(6)]
    rows = [[{"database": "app", "transactions_committed": c}] for c in committed]
    taken = [store.add(snapshot(10 * n, {"databases": r})) for n, r in enumerate(rows)]
    lab = start_lab(tmp_path / "store").enter()
    begin, end = taken[2].taken + timedelta(seconds=40), taken[4].taken - timedelta(seconds=40)
    ends = f"from={begin:%Y-%m-%dT%H:%M:%SZ}&to={end:%Y-%m-%dT%H:%M:%SZ}"
    page = lab.ask(f"/snapshots?{ends}")
    assert page.status == 200 and taken[2].id in page.text and taken[4].id in page.text
    alone = lab.ask(f"/snapshots?{ends}&against=1d")
    assert alone.status == 400 and "No two snapshots are near" in alone.text
    assert f"<h1>{taken[2].taken:%Y-%m-%d %H:%M:%S} to " in alone.text and 'value="2026-11-01T' in alone.text
    beside = (
        f"against-from={taken[0].taken:%Y-%m-%dT%H:%M:%SZ}&against-to={taken[2].taken:%Y-%m-%dT%H:%M:%SZ}"
    )
    assert f"{taken[0].id}..{taken[2].id}" in lab.ask(f"/snapshots?{ends}&against=span&{beside}").text
    assert "There are no snapshots" in start_lab(tmp_path / "none").enter().ask("/snapshots").text


def test_a_claim_of_an_observation_leads_to_the_rows_of_its_windows(
    lab_of: Callable[[Run], Lab], window: Run
) -> None:
    lab = lab_of(window)
    page = lab.ask(f"/run/{window.id}").text
    tables = {a for a in re.findall(r'href="(/[^"]*)"', page) if "/table/" in a}
    (cell,) = window.cells()
    tables.add(f"/run/{window.id}/table/windows?cell={cell}")
    assert {a: s for a in tables if (s := lab.ask(unescape(a)).status) != 200} == {}
    assert lab.ask(f"/run/{window.id}/table/windows?cell=none").status == 400
