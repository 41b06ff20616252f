"""Runs of commands: figures and claims must be those of the law behind them."""

from __future__ import annotations

import math
import random
from typing import Any

import polars as pl
import pytest
from tests.unit.execution_cells import amdahl, job, run_of_jobs, threads

from dbdyno.conclude.catalogue.number_format import changes
from dbdyno.conclude.commands.command_pairs import Took, against_fastest
from dbdyno.conclude.compare import compare_variants
from dbdyno.conclude.compare.table import MARGIN
from dbdyno.conclude.ladder.axis_ladders import with_axes
from dbdyno.conclude.ladder.ladders import ladders_of
from dbdyno.conclude.machines.machines import machines, pairs
from dbdyno.model.plan.jobs import PlannedJob
from dbdyno.model.plan.plan import Variant
from dbdyno.model.results.claim import Claim, Estimate
from dbdyno.model.results.results import Results
from dbdyno.model.units import NS_PER_S
from dbdyno.stats.amdahl import serial_share

pytestmark = pytest.mark.queries


def _claims(results: Results, id: str) -> list[Claim]:
    return [c for c in results.findings if c.id == id]


def test_amdahls_share_of_exact_durations() -> None:
    """S(n) = 1 / (s + (1 - s) / n): with s = 0.13, 32 threads give 6.36 (Amdahl 1967)."""
    serial = serial_share([1, 2, 4, 8], [10 * (0.13 + 0.87 / n) for n in (1, 2, 4, 8)])
    assert serial is not None and serial.fits
    assert serial.share == pytest.approx(0.13)
    assert serial.one_s == pytest.approx(10)
    assert serial.speed_up(32) == pytest.approx(6.36, abs=0.005)
    assert serial_share([4, 4], [1.0, 1.1]) is None


@pytest.mark.parametrize(("share", "repeats"), [(0.13, 3), (0.02, 5), (0.5, 2)])
def test_interval_of_the_serial_share_covers_it(share: float, repeats: int) -> None:
    """95 % of the intervals of 400 generated ladders hold the true share, within chance (2 to 8 % miss)."""
    rng, missed = random.Random(7), 0
    ns = [n for n in (1, 2, 4, 8) for _ in range(repeats)]
    for _ in range(400):
        serial = serial_share(ns, [2 * (share + (1 - share) / n) * (1 + rng.gauss(0, 0.03)) for n in ns])
        assert serial is not None and serial.low is not None and serial.high is not None
        missed += not serial.low <= share <= serial.high
    assert 8 <= missed <= 36


def test_durations_that_do_not_follow_amdahls_law_do_not_fit() -> None:
    ns = [n for n in (1, 2, 4, 8) for _ in range(4)]
    slow = {1: 1.0, 2: 0.9, 4: 0.4, 8: 0.9}
    serial = serial_share(ns, [slow[n] * (1 + 0.001 * (i % 4)) for i, n in enumerate(ns)])
    assert serial is not None and not serial.fits


def test_one_jobs_speed_up_is_claimed_with_its_serial_share() -> None:
    results = run_of_jobs(threads(1, 2, 4, 8), amdahl(0.13))
    (speed_up,) = _claims(results, "speed-up")
    assert speed_up.case == "serial" and speed_up.value is not None
    assert speed_up.value.low is not None and speed_up.value.low <= 4.19 <= (speed_up.value.high or 0)
    assert abs(speed_up.slots["share"] - 0.13) < 0.02
    assert speed_up.slots["top"] == "8 threads" and 4 <= speed_up.value.value < 5


def test_threads_beyond_the_cpus_are_not_called_serial() -> None:
    (speed_up,) = _claims(run_of_jobs(threads(1, 2, 4, 8, 16, 32), amdahl(0.05)), "speed-up")
    assert speed_up.case == "cpus" and abs(speed_up.slots["share"] - 0.05) < 0.02


def test_five_jobs_are_compared_in_every_order() -> None:
    """Five jobs of 2 s: 10 s one after another; at once they share 8 CPUs, 2 s."""
    names = ("httpd", "mysql", "perl", "php", "zsh")
    results = run_of_jobs(threads(1, 4, jobs=names), amdahl(0.2), ladder=(1, 5), once=True, noise=0.001)
    orders = {c.case: c for c in _claims(results, "orders")}
    assert orders["concurrent"].value is not None and orders["concurrent"].value.value == pytest.approx(
        0.2, rel=0.01
    )
    assert orders["parallel"].value is not None and orders["parallel"].value.value == pytest.approx(
        0.4, rel=0.01
    )
    assert (orders["concurrent"].slots["jobs"], orders["concurrent"].slots["how"]) == ("Five", "at once")
    assert set(orders) == {"parallel", "concurrent", "both"}


def test_the_ratio_of_two_commands_holds_the_true_one() -> None:
    fast, slow = (Variant(name=n, jobs=(job(n),)) for n in ("zstd", "xz"))
    results = run_of_jobs((slow, fast), lambda _v, _s, j: 1.84 if j == "xz" else 1.0, repeats=5)
    (claim,) = _claims(results, "commands-compared")
    assert claim.case == "faster" and claim.value is not None
    assert claim.value.low is not None and claim.value.low < 1.84 < (claim.value.high or 0)
    same = run_of_jobs((slow, fast), lambda *_: 1.0, repeats=12, noise=0.002)
    assert [c.case for c in _claims(same, "commands-compared")] == ["equal"]


@pytest.mark.parametrize(
    ("noise", "repeats", "case"), [(0.001, 8, "equal"), (0.01, 3, "undecided"), (0.4, 3, "undecided")]
)
def test_one_verdict_in_the_headline_and_in_the_comparison(noise: float, repeats: int, case: str) -> None:
    """Commands that take about the same time have an interval within the margin."""
    pair = [Variant(name=n, jobs=(job(n),)) for n in ("zstd", "xz")]
    results = run_of_jobs(pair, lambda *_: 1.0, repeats=repeats, noise=noise)
    (claim,) = _claims(results, "commands-compared")
    durations = {t.metric: t for t in compare_variants(results).metrics}["response_mean_ns"]
    assert (claim.case, claim.slots["verdict"]) == (case, durations.claims[0].verdict.replace("equal", case))
    assert claim.value is not None and claim.value.low is not None and claim.value.high is not None
    within = claim.value.low >= 1 - MARGIN and claim.value.high <= 1 + MARGIN
    assert within == (case == "equal")
    assert ("ends" in claim.slots) == (case == "undecided")


def test_a_wide_interval_is_put_in_plain_words() -> None:
    assert changes(Estimate("", 1.31, "", 0.122, 14.2)) == "8.2 times less and 14 times more"
    assert changes(Estimate("", 1.0, "", 0.95, 1.12)) == "5.0 % less and 12 % more"


def test_more_threads_that_may_help_or_not_are_undecided() -> None:
    (speed_up,) = _claims(run_of_jobs(threads(1, 2), lambda *_: 1.0, noise=0.3), "speed-up")
    assert (speed_up.case, speed_up.slots["verdict"]) == ("undecided", "undecided")
    (few,) = _claims(
        run_of_jobs(threads(1, 2), lambda v, *_: 1.5 if v.name == "threads=1" else 1.0), "speed-up"
    )
    assert few.slots["verdict"] == "undecided"
    assert "That is undecided. The interval excludes 1, but 3 repeats may differ" in few.text
    (even,) = _claims(run_of_jobs(threads(1, 2), lambda *_: 1.0, noise=0.001, repeats=6), "speed-up")
    assert (even.case, even.slots["verdict"]) == ("even", "no difference")


def _durations(rng: random.Random, *factors: float, repeats: int = 5) -> dict[str, Took]:
    """Repeats with a spread of 1 %; from one to the next the machine drifts by 10 %."""
    drift = [1 + 0.1 * r for r in range(repeats)]
    return {
        str(n): Took({r: d * f * (1 + rng.gauss(0, 0.01)) for r, d in enumerate(drift)}, 5, None)
        for n, f in enumerate(factors)
    }


@pytest.mark.parametrize("commands", [2, 6])
def test_equal_commands_are_seldom_claimed_to_differ(commands: int) -> None:
    """Whichever command is the fastest: in at most 5 % of 400 generated runs, within chance."""
    rng, differing = random.Random(3), 0
    for _ in range(400):
        differing += any(
            (f.times.low or 0) > 1 and f.case != "equal"
            for f in against_fastest(_durations(rng, *[1.0] * commands))
        )
    assert differing <= 0.05 * 400 + 2.5 * math.sqrt(400 * 0.05 * 0.95)


def test_a_difference_smaller_than_the_drift_is_found() -> None:
    """Repeats differ by 40 %, commands by 15 %: they are compared within each repeat."""
    rng = random.Random(5)
    runs = [next(against_fastest(_durations(rng, 1.15, 1.0, 1.15, 1.15))) for _ in range(50)]
    assert all(f.fast == "1" and f.case == "faster" for f in runs)
    assert sum((f.times.low or 0) <= 1.15 <= (f.times.high or 0) for f in runs) >= 48


def test_three_repeats_decide_only_beyond_a_ratio_of_two() -> None:
    """Three against three may be two modes of the machine, unless the ratio is beyond 2; so the default is
    five."""
    rng = random.Random(9)
    (few,) = against_fastest(_durations(rng, 1.0, 1.5, repeats=3))
    (many,) = against_fastest(_durations(rng, 1.0, 1.5, repeats=5))
    (far,) = against_fastest(_durations(rng, 1.0, 30.0, repeats=3))
    assert (few.case, few.enough) == ("few", 5)
    assert (many.case, far.case) == ("faster", "faster")
    variants = [Variant(name=n, jobs=(job(n),)) for n in ("zstd", "xz")]
    (one,) = _claims(
        run_of_jobs(variants, lambda _v, _s, j: 2.0 if j == "xz" else 1.0, repeats=1), "commands-compared"
    )
    assert one.case == "single" and one.advice == "--repeats 5"


def test_failed_executions_are_shown_with_their_error_output() -> None:
    def every_second(row: dict[str, Any]) -> dict[str, Any]:
        bad = {"outcome": "exit", "exit_code": 3, "detail": "xz: no such file"}
        return row | (bad if row["number"] % 2 else {})

    results = run_of_jobs(
        (Variant(name="base", jobs=(job("xz"),)),), lambda *_: 1.0, repeats=1, each=10, change=every_second
    )
    (failed,) = _claims(results, "executions-failed")
    assert failed.severity == "invalid" and failed.slots["count"] == 5
    assert (failed.case, failed.slots["code"], failed.slots["detail"]) == ("exit", 3, "xz: no such file")
    assert not _claims(results, "errors-3")
    (row,) = results.tables["execution_rates"].filter(pl.col("job").is_null()).to_dicts()
    assert (row["executions"], row["failed"]) == (5, 5)


def test_outliers_a_slow_first_execution_and_the_shell_are_claimed() -> None:
    """Modified Z-score: 3.5 median absolute deviations / 0.6745; the first takes 3 s, the others 1 s."""

    def longer(row: dict[str, Any]) -> dict[str, Any]:
        return row | ({"end_ns": row["start_ns"] + 3 * NS_PER_S} if row["number"] == 0 else {})

    base = Variant(name="base", jobs=(job("xz", 10_000_000),))
    results = run_of_jobs((base,), lambda *_: 1.0, repeats=1, each=12, change=longer)
    (out,), (first,), (shell,) = (
        _claims(results, id) for id in ("execution-outliers", "first-execution", "shell-taken-off")
    )
    assert out.case == "one" and out.value is not None and out.value.value == 1
    assert first.value is not None and first.value.value == pytest.approx(3, rel=0.05)
    assert shell.value is not None and shell.value.value == pytest.approx(0.01)
    times = results.tables["execution_times"]
    assert times["duration_ns"][0] == 3 * NS_PER_S - 10_000_000
    (claim,) = _claims(results, "command-time")
    assert claim.slots["job"] == "xz" and claim.value is not None and 1.1 <= claim.value.value < 1.2


def test_cpus_are_over_the_time_that_holds_the_shells_own_work() -> None:
    """1.6 s of CPU in each second with the start-up, of which half is taken off durations."""
    base = Variant(name="base", jobs=(job("xz", 500_000_000),))
    results = run_of_jobs((base,), lambda *_: 1.0, noise=0.0)
    rates = results.tables["execution_rates"].filter(pl.col("job") == "xz")
    assert rates["mean_ns"].to_list() == pytest.approx([0.5e9] * rates.height)
    assert rates["parallelism"].to_list() == pytest.approx([1.6] * rates.height)


def test_a_machine_that_is_slower_alone_and_faster_from_many_threads_on() -> None:
    """A runs a thread twice as fast and has 2 CPUs; B has 8."""

    def a(variant: Variant, _sessions: int, _job: str) -> float:
        return 5.0 / min(float(variant.params["threads"]), 2.0)

    def b(variant: Variant, _sessions: int, _job: str) -> float:
        return 10.0 / float(variant.params["threads"])

    runs = [run_of_jobs(threads(1, 2, 4, 8), law, each=2) for law in (a, b)]
    left, right = (with_axes(r, ladders_of(r)) for r in runs)
    ((x, y),) = pairs(left, right)
    assert x.load_unit == "threads" and x.throughput_unit == "executions/s"
    compared = machines(x, y)
    assert compared.one_session.ratio is not None and compared.peak.ratio is not None
    assert compared.one_session.ratio.value == pytest.approx(0.5, rel=0.03)
    assert compared.peak.ratio.value == pytest.approx(2, rel=0.03)
    assert [c.value for c in compared.crossings] == [pytest.approx(4, rel=0.05)]
    texts = [c.text for c in compared.claims]
    assert any("B is slower than A alone (0.500 times)" in t and "at 8 threads (2 times)" in t for t in texts)
    assert compared.per_cpu_second.reason == "The CPU used by A and B is unknown."


def _shell_job(name: str, error_ns: int) -> PlannedJob:
    return job(name, 1_000_000).model_copy(update={"shell_error_ns": error_ns})


def test_the_error_of_the_shells_share_belongs_to_the_interval() -> None:
    results = run_of_jobs(
        (Variant(name="base", jobs=(_shell_job("xz", 5_000_000),)),), lambda *_: 1.0, each=12
    )
    (took,) = _claims(results, "command-time")
    assert took.value is not None and took.value.low is not None
    assert took.value.value - took.value.low == pytest.approx(0.005)
    assert "up to 5.00 ms less" in took.text
    (shell,) = _claims(results, "shell-taken-off")
    assert shell.value is not None and shell.value.high == pytest.approx(0.006)


@pytest.mark.parametrize(
    ("error_ns", "case"), [(0, "faster"), (300_000_000, "undecided"), (3_000_000_000, "shell")]
)
def test_commands_do_not_differ_by_less_than_the_shells_error(error_ns: int, case: str) -> None:
    one = Variant(name="one", jobs=(_shell_job("one", error_ns),))
    other = Variant(name="other", jobs=(job("other", 0),))
    results = run_of_jobs((one, other), lambda v, *_: 1.1 if v.name == "one" else 1.0, repeats=8, noise=0.001)
    (claim,) = _claims(results, "commands-compared")
    assert claim.case == case
    by = compare_variants(results).metrics[0]
    (compared,) = by.claims
    assert by.metric == "response_mean_ns"  # executions per second have the shell's start-up in them
    assert (compared.verdict == "undecided") == (case != "faster")
    assert (compared.effect.low is None) == (case == "shell")


def test_processes_left_behind_are_claimed() -> None:
    base = Variant(name="base", jobs=(job("xz"),))
    results = run_of_jobs(
        (base,), lambda *_: 1.0, repeats=2, change=lambda r: r | {"left_over": 2 * (r["number"] == 1)}
    )
    (claim,) = _claims(results, "left-behind")
    assert claim.severity == "warning"
    assert [claim.slots[n] for n in ("count", "of", "job", "most")] == [2, 10, "xz", 2]
    whole = results.tables["execution_rates"].filter(pl.col("job") == "xz")
    assert whole["left_over"].to_list() == [1, 1, 2]
