"""Conclusions that rest on loads at which others took the CPUs carry the doubt, or are not drawn."""

from __future__ import annotations

import re
from dataclasses import replace

import polars as pl
import pytest
from tests.unit import report_results
from tests.unit.compare_runs import noisy

from dbdyno.conclude import findings
from dbdyno.conclude.compare import compare_runs, compare_variants
from dbdyno.conclude.ladder.ladders import with_disturbed
from dbdyno.conclude.run import quality
from dbdyno.conclude.run.case import Case
from dbdyno.conclude.scaled import doubted, scalings_of
from dbdyno.conclude.scaling.capacity import headline
from dbdyno.model.results.analyses import POINTS, Ladder
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import rows
from dbdyno.present.run import rungs

LOADS = (1, 2, 3, 4, 6, 8)
CPUS = 2


def _with_others(used: dict[int, float], repeats: int = 1, only_repeat: int | None = None) -> Results:
    """A run on two CPUs of which others used so many at a number of sessions."""
    plain = report_results.results(report_results.World(rungs=LOADS, cpus=CPUS, repeats=repeats))
    records = []
    for window in plain.tables["windows"].to_dicts():
        head = {k: window[k] for k in ("cell", "workload", "variant", "sessions", "repeat")}
        head |= {"quantity": "cpu_used_machine", "unit": "cores", "status": "ok"}
        at = only_repeat in (None, window["repeat"])
        others = used.get(window["sessions"], 0.0) if at else 0.0
        records.append(head | {"source": "os tasks", "value": 1.0, "verdict": "reference"})
        differs = {
            "source": "host",
            "value": 1.0 + others,
            "relative_difference": others,
            "verdict": "differs",
        }
        records.append(head | differs)
    tables = {**plain.tables, "data_sources": rows("data_sources", records)}
    case = Case(plain.plan, plain.environment, tables, plain.info.workloads)
    found = (*quality.disturbed(case), *headline(case))
    return replace(plain, tables=tables, findings=found)


def _claims(results: Results) -> dict[str, Claim]:
    return {c.id: c for c in results.findings}


def test_a_quiet_run_is_sure() -> None:
    claims = _claims(_with_others({}))
    assert "disturbed" not in claims
    assert claims["scales-to"].value is not None and claims["peak"].case != "disturbed"


def test_of_a_disturbed_baseline_nothing_is_concluded() -> None:
    """A quarter of the CPUs is missing at one session, to which every efficiency refers."""
    claims = _claims(_with_others({1: 0.5}))
    assert claims["disturbed"].value is not None
    assert claims["disturbed"].value.value == pytest.approx(0.5 / CPUS)
    assert (claims["scales-to"].value, claims["scales-to"].case) == (None, "disturbed")
    assert claims["peak"].case == "disturbed"
    assert "times that of" not in claims["peak"].text and "1 session" in claims["peak"].text


def test_a_single_load_has_no_peak() -> None:
    plain = report_results.results(report_results.World(rungs=(4,), cpus=CPUS))
    assert _claims(plain)["peak"].case == "only"
    assert "peak" not in _claims(plain)["peak"].text.casefold()


@pytest.mark.parametrize(("sessions", "loads"), [((2,), (1.0, 4.0)), ((), ())])
def test_a_ladder_along_an_axis_is_in_doubt_as_a_whole(
    sessions: tuple[int, ...], loads: tuple[float, ...]
) -> None:
    """Its loads are variants, which the windows do not name by their numbers of threads."""
    windows = report_results.results().tables["windows"]
    cells = windows.filter(pl.col("sessions").is_in(sessions))["cell"].to_list()
    points = pl.DataFrame([{"load": n, "throughput": n, "repeat": 1} for n in (1.0, 4.0)], schema=POINTS)
    along = Ladder("job, by threads", points, axis="")
    claim = Claim(id="disturbed", text="The machine was not quiet.", cells=tuple(cells))
    assert with_disturbed(along, windows, [claim]).disturbed == loads


def test_a_load_beyond_the_end_of_scaling_does_not_spoil_it() -> None:
    sure, claims = _claims(_with_others({})), _claims(_with_others({8: 0.5}))
    assert claims["scales-to"].value == sure["scales-to"].value
    assert claims["peak"].case == "disturbed"  # without others, 8 sessions might have delivered more


@pytest.mark.parametrize(("used", "doubtful"), [(0.15, False), (0.5, True)])
def test_a_little_is_no_disturbance(used: float, doubtful: bool) -> None:
    assert ("disturbed" in _claims(_with_others({1: used}))) == doubtful


def test_one_disturbed_repeat_of_five_is_no_disturbance_of_their_mean() -> None:
    assert "disturbed" not in _claims(_with_others({1: 0.5}, repeats=5, only_repeat=2))
    assert "disturbed" in _claims(_with_others({1: 0.5}, repeats=5))


def test_a_least_peak_has_no_interval_that_begins_below_it() -> None:
    assert re.search(
        r"at least [^(]+ at \d+ session", _claims(_with_others({1: 1.0}, repeats=3))["peak"].text
    )


def test_a_disturbed_load_has_the_place_and_share_of_its_worst_measurement() -> None:
    run = _with_others({1: 1.6}, repeats=3, only_repeat=2)
    case = Case(run.plan, run.environment, run.tables, run.info.workloads)
    (others,) = quality.foreign_load(case)
    disturbed = _claims(run)["disturbed"]
    assert "1.60 CPUs at 1 session, repeat 2" in others.text
    assert "80 % of the CPUs at 1 session, repeat 2" in disturbed.text
    assert len(disturbed.cells) == 3


def test_answers_of_a_ladder_carry_the_doubt() -> None:
    (quiet,), (scaling,) = (scalings_of(_with_others(used)) for used in ({}, {1: 0.5}))
    doubtful = {a.id for a in scaling.answers if "not quiet" in a.text}
    known = {a.id for a in scaling.answers}
    assert {"peak", "scales-to", "one-more-session", "paragraph"} <= doubtful
    assert {"knee", "at-cpus", "superlinear", "throughput-drop"} & known <= doubtful
    assert not [a for a in quiet.answers if "not quiet" in a.text]
    assert not [a for a in scaling.answers if a.id in doubtful and a.severity == "good"]


def test_what_an_auto_ladder_found_carries_the_doubt() -> None:
    found = Claim(id="auto-ladder", text="Knee at 2 sessions.", severity="good", advice="--ladder auto:64")
    (doubt,) = doubted([found], _with_others({2: 0.5}))
    assert doubt.text.startswith(found.text) and "at 2 sessions" in doubt.text.removeprefix(found.text)
    assert doubt.severity == "note"
    assert "--wait-quiet" in doubt.advice and "--ladder" not in doubt.advice
    assert list(doubted([found], _with_others({}))) == [found]


@pytest.mark.parametrize(("used", "marked"), [({}, set()), ({8: 0.5}, {8}), ({1: 0.5}, set(LOADS))])
def test_efficiencies_that_rest_on_a_disturbed_load_are_marked(
    used: dict[int, float], marked: set[int]
) -> None:
    table = next(b for b in rungs.tables(_with_others(used)) if hasattr(b, "columns"))
    column = next(n for n, c in enumerate(table.columns) if c.head == "eff%")
    shown = {n: r.cells[column] for n, r in zip(LOADS, table.rows, strict=True)}
    assert {n for n, cell in shown.items() if cell.text.endswith("?")} == marked
    assert all(cell.value is not None for cell in shown.values())


def test_time_that_the_hypervisor_withheld_counts_too() -> None:
    plain = report_results.results(report_results.World(rungs=LOADS, cpus=CPUS))
    level = {"origin": "host", "scope": "host", "status": "ok", "wall_ns": 10**10}
    records = []
    for window in plain.tables["windows"].to_dicts():
        head = {k: window[k] for k in ("cell", "workload", "variant", "sessions", "repeat")} | level
        stolen = 0.2 * CPUS * 10**10 if window["sessions"] == 4 else 0.0
        records += [
            head | {"key": "cpu.steal_ns", "delta": stolen},
            head | {"key": "cpus", "last": float(CPUS)},
        ]
    tables = {**plain.tables, "cut_levels": rows("cut_levels", records)}
    (claim,) = quality.disturbed(Case(plain.plan, plain.environment, tables, plain.info.workloads))
    cells = plain.tables["windows"].filter(pl.col("sessions") == 4)["cell"].to_list()
    assert list(claim.cells) == cells and claim.value is not None
    assert claim.value.value == pytest.approx(0.2)


def _of_variants(disturbed: tuple[int, ...]) -> Results:
    """Two variants, the second slower by a fifth, with others beside the measurements at some loads."""
    world = report_results.World(rungs=(1, 4), repeats=6, variants=("base", "second"))
    results = noisy(world, spread=0.002)
    cells = results.tables["windows"].filter(pl.col("sessions").is_in(disturbed))["cell"].to_list()
    others = [Claim(id="disturbed", text="The machine was not quiet.", cells=tuple(cells))] if cells else []
    return replace(results, findings=(*others, *results.findings))


@pytest.mark.parametrize(("disturbed", "doubtful"), [((), False), ((1,), True), ((4,), True)])
def test_a_verdict_on_variants_carries_the_doubt(disturbed: tuple[int, ...], doubtful: bool) -> None:
    (verdict,) = compare_variants(_of_variants(disturbed)).summary
    assert "second" in verdict and ("not quiet" in verdict) == doubtful


def test_a_verdict_on_two_runs_names_the_one_that_was_disturbed() -> None:
    quiet = noisy(report_results.World(rungs=(1, 4), repeats=6), spread=0.002, id="20261121-a")
    other = noisy(report_results.World(rungs=(1, 4), repeats=6, cpus=1), spread=0.002, id="20261121-b")
    cells = other.tables["windows"].filter(pl.col("sessions") == 4)["cell"].to_list()
    doubt = Claim(id="disturbed", text="The machine was not quiet.", cells=tuple(cells))
    comparison = compare_runs(quiet, replace(other, findings=(doubt,)))
    ranks = {tuple(c.slots["sessions"]): c.text for c in comparison.conclusions if c.id == "rank"}
    assert all(("not quiet in B" in text) == (4 in sessions) for sessions, text in ranks.items())
    assert "not quiet" not in " ".join(compare_runs(quiet, other).summary)


def test_an_undecided_verdict_needs_no_further_doubt() -> None:
    run = noisy(report_results.World(rungs=(4,), repeats=1), id="20261121-a")
    doubt = Claim(
        id="disturbed", text="The machine was not quiet.", cells=tuple(run.tables["windows"]["cell"])
    )
    other = replace(noisy(report_results.World(rungs=(4,)), id="20261121-b"), findings=(doubt,))
    assert "not quiet" not in " ".join(compare_runs(run, other).summary)


@pytest.mark.parametrize(("cells", "doubtful"), [((), True), (("c1",), True), (("c2",), False)])
def test_a_comparison_of_commands_carries_the_doubt(cells: tuple[str, ...], doubtful: bool) -> None:
    others = Claim(id="disturbed", text="The machine was not quiet.", cells=("c1",))
    faster = Claim(id="commands-compared", text="a is 2 times as fast as b.", cells=cells)
    (_, shown) = findings.doubted([others, faster])
    assert shown.text.startswith(faster.text) and (shown != faster) == doubtful
