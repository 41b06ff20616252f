"""Two machines compared: the throughput article's argument, laws, bad input, and the documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import altair as alt
import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from tests.unit.compare_runs import noisy
from tests.unit.report_results import World
from tests.unit.shown import as_html, as_text

from dbdyno import present
from dbdyno.cli.app import app
from dbdyno.conclude.compare import Options
from dbdyno.conclude.machines.machines import machines, pairs
from dbdyno.conduct.comparisons import MachineOptions, compared_results
from dbdyno.model.errors import UsageError
from dbdyno.model.results.analyses import POINTS, Ladder, Machine, Machines
from dbdyno.model.results.results import Results
from dbdyno.present.compare.machines import sections
from dbdyno.present.document.document import Chart, walk

LOADS = (1, 2, 4, 8, 12, 24, 32, 64, 100, 200)
Law = Callable[[float], float]
UNKNOWN = Machine()


def ladder(
    law: Law,
    loads: Sequence[float] = LOADS,
    *,
    repeats: int = 1,
    noise: float = 0.0,
    seed: int = 1,
    machine: Machine = UNKNOWN,
    unit: str = "orders/s",
    name: str = "order-entry",
    response: bool = False,
) -> Ladder:
    chance = np.random.default_rng(seed)
    rows = [
        {
            "load": n,
            "repeat": r + 1,
            "throughput": (x := law(n) * float(np.exp(chance.normal(0, noise)))),
            "response_s": n / x if response else None,
        }
        for n in loads
        for r in range(repeats)
    ]
    return Ladder(name, pl.DataFrame(rows, schema=POINTS, strict=False), unit, machine=machine)


def few_fast(n: float) -> float:
    """V490: eight cores of one thread each."""
    return 100 * min(n, 8)


def many_slow(n: float) -> float:
    """T2000: eight cores of four threads each, each thread half as fast."""
    return 50 * min(n, 32)


V490 = Machine(cpus=8, cores=8, threads_per_core=1, model="UltraSPARC IV")
T2000 = Machine(cpus=32, cores=8, threads_per_core=4, model="UltraSPARC T1")


def no_band(_: Ladder) -> None:
    """Returns no band, as if no model fitted the ladder."""


def argument(**more: object) -> Machines:
    a = ladder(few_fast, machine=V490, **more)  # type: ignore[arg-type]
    b = ladder(many_slow, machine=T2000, **{"seed": 2, **more})  # type: ignore[arg-type]
    return machines(a, b, ("V490", "T2000"), no_band)


def test_twice_as_slow_alone_and_twice_as_fast_under_load_as_the_article_has_it() -> None:
    """ "Taking about twice as long" alone, and "2x the number of orders/sec" with several hundred users."""
    comparison = argument(response=True)
    assert comparison.one_session.ratio is not None
    assert comparison.one_session.ratio.value == pytest.approx(0.5)
    assert comparison.peak.ratio is not None
    assert comparison.peak.ratio.value == pytest.approx(2)
    by_load = {x.load: x for x in comparison.at_loads}
    assert by_load[200].throughput.ratio is not None
    assert by_load[200].throughput.ratio.value == pytest.approx(2)
    assert by_load[200].response.ratio is not None
    assert by_load[200].response.ratio.value == pytest.approx(0.5)
    (crossing,) = comparison.crossings
    assert crossing.value == pytest.approx(16)  # 50 n = 800, though no rung is there
    assert crossing.low is None
    assert "no interval" in crossing.note
    assert comparison.per_core.ratio is not None
    assert comparison.per_thread.ratio is not None
    assert comparison.per_core.ratio.value == pytest.approx(2)
    assert comparison.per_thread.ratio.value == pytest.approx(0.5)
    first, second, *rest = comparison.claims
    assert (first.id, first.case, first.slots["name"]) == ("alone-and-many", "slower", "T2000")
    assert (first.slots["one"], first.slots["many"]) == pytest.approx((0.5, 2))
    assert (second.id, second.case, second.slots["place"]) == ("machine-ratio", "once", "With one session")
    assert (second.slots["name"], second.slots["ratio"]) == ("T2000", pytest.approx(0.5))
    (overtaking,) = (c for c in rest if c.id == "crossover")
    assert (overtaking.case, overtaking.slots["load"]) == ("at", pytest.approx(16))
    assert (overtaking.slots["first"], overtaking.slots["second"]) == ("T2000", "V490")


def test_repeats_give_intervals_that_hold_the_truth() -> None:
    comparison = argument(repeats=5, noise=0.03)
    for speed, truth in ((comparison.one_session, 0.5), (comparison.peak, 2), (comparison.per_thread, 0.5)):
        assert speed.ratio is not None
        assert speed.ratio.low is not None
        assert speed.ratio.high is not None
        assert speed.ratio.low < truth < speed.ratio.high
        assert speed.ratio.method == "repeats"
    (crossing,) = comparison.crossings
    assert crossing.low is not None
    assert crossing.high is not None
    assert 12 < crossing.low < 16 < crossing.high < 24


def band(measured: Ladder) -> pl.DataFrame:
    """Returns a band of a tenth to either side."""
    mean = measured.points["throughput"]
    return pl.DataFrame(
        {"load": measured.points["load"], "throughput": mean, "low": mean * 0.9, "high": mean / 0.9}
    )


def test_an_end_beyond_the_range_is_open() -> None:
    """The machines meet just below the highest rung; beyond it the interval's end is unknown."""
    loads = [1, 4, 8, 15, 17]
    (crossing,) = machines(ladder(few_fast, loads), ladder(many_slow, loads), band=band).crossings
    assert crossing.value == pytest.approx(16)
    # the interval of 50 n / 800 holds 1 from where log(800 / 50 n) is both bands together
    assert crossing.low == pytest.approx(16 * 0.9**2**0.5, rel=1e-4)
    assert crossing.high is None


def test_swapped_machines_swap_the_ratio() -> None:
    a, b = ladder(few_fast, repeats=4, noise=0.02), ladder(many_slow, repeats=4, noise=0.02, seed=9)
    one, other = machines(a, b, band=no_band), machines(b, a, band=no_band)
    for x, y in zip(one.at_loads, other.at_loads, strict=True):
        assert x.throughput.ratio is not None
        assert y.throughput.ratio is not None
        assert x.throughput.ratio.value * y.throughput.ratio.value == pytest.approx(1)
        assert x.throughput.ratio.low == pytest.approx(1 / (y.throughput.ratio.high or 0))
    assert one.crossings[0].value == pytest.approx(other.crossings[0].value)
    assert one.crossings[0].low == pytest.approx(other.crossings[0].low)


def test_loads_of_one_side_are_interpolated() -> None:
    comparison = machines(ladder(few_fast, (1, 8, 64)), ladder(many_slow, (2, 32, 100)), band=no_band)
    assert [(x.load, x.how) for x in comparison.at_loads] == [
        (2, "interpolated"), (8, "interpolated"), (32, "interpolated"), (64, "interpolated"),
    ]  # fmt: skip
    assert comparison.at_loads[0].throughput.a is not None
    assert comparison.at_loads[0].throughput.a.value == pytest.approx(200)
    assert comparison.one_session.ratio is None
    assert "start the ladder at 1" in comparison.one_session.reason


def test_a_models_band_stands_in_for_repeats() -> None:
    comparison = machines(ladder(few_fast), ladder(many_slow), band=band)
    ratio = comparison.peak.ratio
    assert ratio is not None
    assert ratio.method == "model band"
    assert ratio.low == pytest.approx(2 * 0.9**2**0.5, rel=1e-4)  # the errors of both sides add as squares
    assert ("machine-figures", "model") in {(n.id, n.case) for n in comparison.notes}


def test_without_a_crossing_the_claim_names_who_is_ahead() -> None:
    comparison = machines(ladder(few_fast), ladder(lambda n: 3 * few_fast(n)), band=no_band)
    assert comparison.crossings == ()
    (claim,) = (c for c in comparison.claims if c.id == "crossover")
    assert (claim.case, claim.slots["ahead"], claim.slots["span"]) == ("none", "B", "1 to 200 sessions")
    same = machines(ladder(few_fast), ladder(few_fast), band=no_band)
    assert same.crossings == ()
    assert ("crossover", "noise") in {(c.id, c.case) for c in same.claims}


@pytest.mark.parametrize("seed", range(2, 8))
def test_two_of_a_kind_do_not_cross(seed: int) -> None:
    """Noise alone brings the ratio above and below 1."""
    a, b = (ladder(few_fast, repeats=3, noise=0.02, seed=s) for s in (seed, seed + 100))
    comparison = machines(a, b, band=no_band)
    ratios = [x.throughput.ratio.value for x in comparison.at_loads if x.throughput.ratio]
    assert min(ratios) < 1 < max(ratios)
    assert comparison.crossings == ()


def test_figures_per_core_are_unknown_without_the_number_of_cores() -> None:
    comparison = machines(
        ladder(few_fast, machine=V490), ladder(many_slow, machine=Machine(cpus=32)), band=no_band
    )
    assert comparison.per_core.ratio is None
    assert comparison.per_core.reason == "The number of cores of B is unknown."
    assert comparison.per_thread.ratio is not None


BAD = {
    "throughput in orders/s .A. and in LIO/s": (ladder(few_fast), ladder(few_fast, unit="LIO/s")),
    "no load in common: 1 to 4 sessions against 8 to 9": (ladder(few_fast, (1, 4)), ladder(few_fast, (8, 9))),
    "B has no throughput": (ladder(few_fast), ladder(few_fast, ())),
}


@pytest.mark.parametrize("why", BAD)
def test_ladders_without_a_common_unit_or_load_are_refused(why: str) -> None:
    with pytest.raises(UsageError, match=why):
        machines(*BAD[why], band=no_band)


def test_ladders_of_one_rung_have_no_crossing() -> None:
    comparison = machines(ladder(few_fast, (4,)), ladder(many_slow, (4,)), band=no_band)
    assert comparison.crossings == ()
    assert comparison.claims[0].case == "one-load"
    assert {n.slots["count"] for n in comparison.notes if n.case == "few"} == {1}


def test_ladders_are_paired_by_name() -> None:
    a, b, c = (ladder(few_fast, name=n) for n in ("lio", "scan", "cpu"))
    assert pairs((a, b), (b, c)) == ((b, b),)
    assert pairs((a,), (b,)) == ((a, b),)
    with pytest.raises(UsageError, match="no ladder in common: lio, scan against cpu"):
        pairs((a, b), (c,))


def test_the_text_names_machines_loads_and_peaks() -> None:
    text = as_text(sections([argument(repeats=3, noise=0.01, response=True)]))
    assert "order-entry, T2000 over V490" in text
    assert "V490: 8 cores, 8 threads, UltraSPARC IV" in text
    assert "peak per thread" in text
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "2" in lines["200 sessions"]


def test_the_page_has_a_valid_chart_with_the_crossing() -> None:
    comparison = argument(repeats=3, noise=0.01)
    root = ElementTree.fromstring(as_html(sections([comparison])))
    (drawn,) = (b for b in walk(sections([comparison])) if isinstance(b, Chart))
    alt.LayerChart.validate(drawn.spec)
    assert drawn.marks == 2 * len(LOADS)
    (band,) = (r for rows in drawn.spec["datasets"].values() for r in rows if "from" in r)
    assert (band["from"], band["load"], band["to"]) == tuple(
        pytest.approx(v) for e in comparison.crossings for v in (e.low, e.value, e.high)
    )
    assert len(root.findall(".//tbody/tr")) == len(LOADS) + 5
    odd = machines(ladder(few_fast), ladder(few_fast), ("<A>", "B&C"), no_band)
    assert ElementTree.fromstring(as_html(sections([odd]))) is not None


def test_json_holds_peaks_crossings_and_reasons() -> None:
    (document,) = present.machines_document(None, [argument()])["machines"]
    again = json.loads(json.dumps(document, allow_nan=False))
    assert again["peak"]["loads"] == [8, 32]
    assert again["peak"]["ratio"]["low"] is None
    assert again["crossings"][0]["value"] == pytest.approx(16)
    assert again["at_loads"][0]["response"]["reason"] == "Not measured on both."


def _run(id: str, *, sees_host: bool = True, **cpu: object) -> Results:
    results = noisy(World(rungs=(1, 4, 8, 12), repeats=3), id=id, seed=len(id))
    host, server = results.environment.host, results.environment.server
    host = host.model_copy(update={"cpu": host.cpu.model_copy(update=cpu)})
    server = server.model_copy(update={"here": sees_host})
    around = results.environment.model_copy(update={"host": host, "server": server})
    return replace(results, environment=around)


def test_runs_of_two_hosts_are_two_machines() -> None:
    """Two hosts are compared as machines if their CPUs differ, or if it is asked for."""
    a, b = _run("first"), _run("other", model="another CPU")
    unasked, asked = (
        MachineOptions.from_options(False, None, None),
        MachineOptions.from_options(True, (2, 4), None),
    )
    comparison, ladders = compared_results(a, b, Options(), unasked)
    assert comparison is not None
    (pair,) = ladders
    assert [x.load for x in pair.at_loads] == [1, 4, 8, 12]
    assert pair.peak.ratio is not None
    assert pair.peak.ratio.method == "repeats"
    assert pair.b.machine.model == "another CPU"
    assert compared_results(a, _run("same"), Options(), unasked)[1] == ()
    assert compared_results(a, _run("unseen", sees_host=False, model="?"), Options(), unasked)[1] == ()
    (on_request,) = compared_results(a, _run("same"), Options(), asked)[1]
    assert on_request.per_core.ratio is not None
    assert on_request.per_core.ratio.value == pytest.approx(
        (on_request.peak.ratio.value if on_request.peak.ratio else 0) / 2
    )
    page = as_html(present.comparison(comparison, ladders).blocks)
    assert 'id="effect"' in page
    assert 'id="machines"' in page
    assert set(present.machines_document(comparison, ladders)) > {"metrics", "machines"}


def test_the_command_compares_two_files(tmp_path: Path) -> None:
    for name, law in (("few", few_fast), ("many", many_slow)):
        lines = [f"{n},{law(n) * wobble},{r}" for r, wobble in ((1, 0.99), (2, 1.01)) for n in LOADS]
        (tmp_path / f"{name}.csv").write_text("\n".join(["sessions,orders/s,repeat", *lines]))
    files = [str(tmp_path / f"{name}.csv") for name in ("few", "many")]
    done = CliRunner().invoke(app, ["compare", *files, "--threads", "8", "32", "--json"])
    assert done.exit_code == 0, done.output
    (document,) = json.loads(done.output)["machines"]
    assert document["names"] == ["few", "many"]
    assert document["crossings"][0]["value"] == pytest.approx(16, rel=0.01)
    assert document["per_thread"]["ratio"]["value"] == pytest.approx(0.5)
    assert document["per_core"]["ratio"] is None
    page = tmp_path / "m.html"
    assert CliRunner().invoke(app, ["compare", *files, "-o", str(page)]).exit_code == 0
    assert "machines-0-throughput" in page.read_text()
    wrong = CliRunner().invoke(app, ["compare", *files, "--cores", "0", "8"])
    assert isinstance(wrong.exception, UsageError)
