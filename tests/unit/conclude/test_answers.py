"""A ladder's answers: what it delivers, where and why it bends, in figures known by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from tests.unit.answer_cases import SMT8, Rung, points, results, scaling_with_knee

from dbdyno.conclude.ladder.ladders import ladders_of
from dbdyno.conclude.scaled import answered, paragraph
from dbdyno.conclude.scaling import scale
from dbdyno.conclude.scaling.cpu_wait import delay, load_until, observed
from dbdyno.model.plan.plan import LimitSpec
from dbdyno.model.results.analyses import Claim, Ladder, Machine, Scaling
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import rows
from dbdyno.present.scaling.scaling_document import document

PAIRS = tuple((n, n + 8) for n in range(8))
FULL = (*(Rung(n, 100.0 * n, run=n) for n in (1, 2, 4)), Rung(6, 400.0, 4.0, 2.0), Rung(8, 400.0, 4.0, 4.0))
"""Four CPUs, a hundred calls a second of each: CPU WAIT beyond."""


def claims_of(scaling: Scaling, run: Results | None = None) -> dict[str, Claim]:
    return {a.id: a for a in answered(scaling, run).answers}


def claims_of_rungs(
    rungs: Sequence[Rung], knee: float, ratio: float = 0.0, **options: Any
) -> dict[str, Claim]:
    run = results(rungs, **options)
    (ladder,) = ladders_of(run)
    return claims_of(scaling_with_knee(ladder, float(ladder.points["throughput"][0]), knee, ratio), run)


# -- ladders --------------------------------------------------------------------------------------


def test_a_ladder_is_in_units_of_work_and_its_times_are_per_unit() -> None:
    (ladder,) = ladders_of(results(FULL))
    assert (ladder.name, ladder.throughput_unit) == ("lio", "LIO/s")
    first, last = ladder.points.row(0, named=True), ladder.points.row(-1, named=True)
    assert (first["load"], first["throughput"]) == (1.0, 10_000.0)  # a hundred LIO a call
    assert first["response_s"] == pytest.approx(0.01 / 100) and first["response_p95_s"] == pytest.approx(2e-4)
    assert (last["cpu"], last["cpu_user"], last["cpu_system"], last["cpu_wait"]) == (4.0, 3.0, 1.0, 4.0)


def test_invalid_and_starved_cells_are_left_out_with_a_note() -> None:
    run = results([*FULL, Rung(12, 500.0, status="invalid"), Rung(16, 500.0, starved=0.5)])
    limited = pl.col("name").eq("client_limits") & pl.col("sessions").eq(16)
    rates = run.tables["rates"].with_columns(value=pl.when(limited).then(1.0).otherwise("value"))
    (ladder,) = ladders_of(Results(run.info, run.plan, run.environment, {**run.tables, "rates": rates}, ()))
    assert ladder.points["load"].to_list() == [1, 2, 4, 6, 8]
    assert [n.partition(",")[0] for n in ladder.notes[:2]] == ["12 sessions", "16 sessions"]
    assert "limited by the client" in ladder.notes[1]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (LimitSpec(), Machine(16, 8, 2)),
        (LimitSpec(cpus="0-3,8-11"), Machine(8, 4, 2)),
        (LimitSpec(cpus="0-3"), Machine(4, 4, 1)),
        (LimitSpec(quota=1.5), Machine(1.5, 1.5, 2, quota=True)),
        (LimitSpec(quota=32), Machine(16, 8, 2)),
    ],
)
def test_the_machine_is_what_the_variant_may_use(limits: LimitSpec, expected: Machine) -> None:
    (ladder,) = ladders_of(results(FULL, siblings=PAIRS, cpus=16, limits=limits))
    assert ladder.machine == expected and not ladder.notes


def test_a_run_from_before_siblings_were_kept_has_its_number_of_cores() -> None:
    run = results(FULL, cpus=16)
    cpu = run.environment.host.cpu.model_copy(update={"cores": 8, "threads_per_core": 2})
    host = run.environment.host.model_copy(update={"cpu": cpu})
    old = dataclasses.replace(run, environment=run.environment.model_copy(update={"host": host}))
    assert ladders_of(old)[0].machine == Machine(16, 8, 2)
    (blind,) = ladders_of(run)
    assert blind.machine == Machine(16) and "Which CPUs share a core is unknown" in blind.notes[0]


def test_of_a_server_elsewhere_no_machine_is_known() -> None:
    (ladder,) = ladders_of(results(FULL, siblings=PAIRS, cpus=16, here=False))
    assert ladder.machine == Machine() and "elsewhere" in ladder.notes[0]


# -- what it delivers -----------------------------------------------------------------------------


def test_throughput_of_one_session_one_core_and_the_machine_is_claimed() -> None:
    claims = claims_of_rungs(
        [*FULL[:4], Rung(8, 404.0, 4.0, 4.0)], 4.0, cpus=4, siblings=((0,), (1,), (2,), (3,))
    )
    one = claims["one-session"]
    assert one.value is not None and one.value.value == pytest.approx(10_000)
    assert (one.slots["unit"], one.slots["response"]) == ("LIO", pytest.approx(100e-6))
    top = claims["peak"].value
    assert top is not None and top.value == pytest.approx(40_400)
    core = claims["one-core"].value
    assert core is not None and core.value == pytest.approx(10_100) and "one-cpu" not in claims
    peak = claims["peak"]
    assert (peak.case, peak.slots["load"], peak.slots["reached"]) == ("times", "8 sessions", "4 sessions")
    assert claims["knee"].slots["beside"] == "; the machine has 4 cores"
    knee = claims["knee"].value
    assert knee is not None and (knee.value, knee.low, knee.high) == (4, 2, 6)
    assert claims["knee"].slots["model_load"] == "4 sessions (3.7 to 4.3)"
    assert claims["scales-to"].value is not None and claims["scales-to"].value.value == 4
    assert claims["at-cpus"].value is not None and claims["at-cpus"].value.value == pytest.approx(1.0)
    assert claims["one-more-session"].case == "nothing"


def test_of_one_load_nothing_is_claimed_about_growth() -> None:
    run = results([Rung(4, 400.0)], cpus=2, siblings=((0,), (1,)))
    (ladder,) = ladders_of(run)
    assert not {"one-core", "one-cpu", "knee", "scales-to", "reason"} & claims_of(scale(ladder), run).keys()
    assert document([scale(ladder)]).title.endswith(": 1 load, 4 sessions")


def test_repeats_give_intervals() -> None:
    rates = {1: 100.0, 2: 104.0, 3: 96.0}
    rungs = [Rung(n, n * r, run=n, repeat=k) for n in (1, 2, 4) for k, r in rates.items()]
    one = claims_of_rungs(rungs, 9.0)["one-session"].value
    assert one is not None and one.low is not None and one.high is not None
    # Student's t of 2 degrees 4.302653, standard deviation 4 %: times and over exp(4.302653 * 0.04 / sqrt 3)
    assert one.high / one.value == pytest.approx(one.value / one.low) == pytest.approx(1.104470, abs=1e-6)


# -- why it bends ---------------------------------------------------------------------------------

WIDE = [Rung(n, 100.0 * n, run=n) for n in (1, 2, 4)]


@pytest.mark.parametrize(
    ("beyond", "kind", "case"),
    [
        (Rung(8, 400.0, 4.0, 4.0), "CPU WAIT", "runq"),
        (Rung(8, 400.0, 4.0, 4.0, throttled=3.0), "throttle", "throttle"),
        (Rung(8, 400.0, 7.5, 0.5), "run", "run"),
        (
            Rung(8, 400.0, 4.0, 0.4, {"LWLock/WALWrite": 3.0, "IO/WalSync": 0.6}),
            "lock: LWLock/WALWrite",
            "lock",
        ),
        (
            Rung(8, 400.0, 4.0, 0.4, {"IO/DataFileRead": 3.0, "Lock/tuple": 0.6}),
            "I/O: IO/DataFileRead",
            "io",
        ),
        (Rung(8, 400.0, 4.0, 1.0, {"IPC/ExecuteGather": 3.0}), "wait: IPC/ExecuteGather", "wait"),
        (Rung(8, 400.0, 4.0, 1.0, client=3.0), "client", "client"),
        (Rung(8, 400.0, 4.0, 1.0, client=3.0, starved=0.15), "driver", "driver"),
    ],
)
def test_the_bend_gets_the_reason_of_its_ledger(beyond: Rung, kind: str, case: str) -> None:
    reason = claims_of_rungs([*WIDE, beyond], 4.0, cpus=8)["reason"]
    assert reason.value is not None and (reason.value.name, reason.case) == (kind, case)
    # 10 ms a call before, 20 ms after: 10 more, of which 7.5 at least are that account's
    assert reason.value.value >= 0.74


def test_a_lock_that_takes_less_than_the_cpu_is_not_the_reason() -> None:
    """Run and run queue count together: 1.6 and 1.4 are more than 1.0 of a lock."""
    reason = claims_of_rungs([*WIDE, Rung(8, 400.0, 5.6, 1.4, {"LWLock/WALWrite": 1.0})], 4.0, cpus=8)[
        "reason"
    ]
    assert (
        reason.value is not None and reason.value.name == "run" and reason.value.value == pytest.approx(0.75)
    )


def test_no_bend_needs_no_reason() -> None:
    reason = claims_of_rungs(WIDE, 9.0)["reason"]
    assert (reason.value, reason.case, reason.slots["top"]) == (None, "none", "4 sessions")


TABLE = [{"load": n, "throughput": 10.0 * min(n, 4)} for n in (1.0, 2.0, 4.0, 8.0)]


@pytest.mark.parametrize(
    ("cpu", "cpu_wait", "cpus", "case"),
    [
        (None, None, 4, "no-columns"),
        (3.9, None, 4, "full"),
        (3.4, None, 4, "unclear"),
        (3.9, None, 16, "spare"),
        (3.9, None, None, "no-cpus"),
        (4.0, 3.8, None, "cpu"),
        (4.0, 0.2, None, "not-cpu"),
    ],
)
def test_without_a_ledger_cpu_columns_give_the_reason(
    cpu: float | None, cpu_wait: float | None, cpus: float | None, case: str
) -> None:
    rows = [
        r
        | {"cpu": cpu and min(r["load"], cpu), "cpu_wait": cpu_wait and (cpu_wait if r["load"] > 4 else 0.0)}
        for r in TABLE
    ]
    ladder = Ladder("mine", points(*rows), "queries/s", machine=Machine(cpus=cpus))
    claims = claims_of(scaling_with_knee(ladder, 10.0, 4.0, 0.0))
    assert claims["reason"].case == case
    if case == "not-cpu":
        value = claims["reason"].value
        assert value is not None and value.value == pytest.approx(0.05)
    assert claims["one-session"].slots["unit"] == "query"


# -- threads --------------------------------------------------------------------------------------


def _smt_rungs(ratio: float = 0.3, run: float = 16.0) -> list[Rung]:
    """Eight cores of two threads; sixteen sessions run on all of them, 1 + ratio times as fast as eight."""
    low = [Rung(n, 100.0 * n, run=n) for n in (1, 2, 4, 8)]
    return [*low, Rung(12, 800 + 400 * ratio, run=12), Rung(16, 800 + 800 * ratio, run=run)]


def test_smt_yield_inflates_cpu_per_unit() -> None:
    claims = claims_of_rungs(_smt_rungs(), 8.0, 0.3, siblings=PAIRS, cpus=16)
    yielded, inflated = claims["smt-yield"].value, claims["cpu-inflation"].value
    assert yielded is not None and inflated is not None
    assert (yielded.value, yielded.low) == (pytest.approx(1.3), None)  # exact: its noise is not known
    assert (inflated.value, inflated.low) == (pytest.approx(2 / 1.3), None)
    assert claims["smt-yield"].slots["share"].startswith("30 %")
    measured = claims["cpu-inflation"].slots  # 16 / 1040 over 1 / 100
    assert (measured["load"], measured["measured"]) == ("16 sessions", pytest.approx(1.538, rel=1e-3))


@pytest.mark.parametrize(
    ("ratio", "siblings", "case"),
    [
        (1.0, PAIRS, "at-cpus"),
        (0.3, None, "no-threads"),
        (0.3, tuple((n,) for n in range(16)), "none"),
    ],
)
def test_smt_yield_is_not_claimed_where_it_cannot_be_known(ratio: float, siblings: Any, case: str) -> None:
    claims = claims_of_rungs(_smt_rungs(ratio), 8.0, 0.3, siblings=siblings, cpus=16)
    assert (claims["smt-yield"].case, claims["smt-yield"].value) == (case, None)
    assert "cpu-inflation" not in claims


def test_a_bend_for_a_lock_gives_no_smt_yield() -> None:
    rungs = [*_smt_rungs()[:4], Rung(16, 1000.0, 9.0, 0.0, {"LWLock/WALWrite": 7.0})]
    claims = claims_of_rungs(rungs, 8.0, 0.25, siblings=PAIRS, cpus=16)
    yielded = claims["smt-yield"]
    assert (yielded.case, yielded.slots["reason"]) == ("other-reason", "lock: LWLock/WALWrite")


def test_equivalent_cores_are_bounds_without_cpu_figures() -> None:
    row = Rung(16, 1.0).head() | {"threads": 15.0, "cores": 7.9, "low": 7.5, "high": 8.0, "status": "ok"}
    seen = claims_of_rungs(
        _smt_rungs(), 8.0, 0.3, siblings=PAIRS, cpus=16, cores=[row | {"source": "/proc/stat"}]
    )
    value = seen["equivalent-cores"].value
    assert value is not None and (value.value, value.low, value.high) == (7.9, 7.5, 8.0)
    assert seen["equivalent-cores"].slots["threads"] == 15
    bounded = claims_of_rungs(_smt_rungs(), 8.0, 0.3, siblings=PAIRS, cpus=16)["equivalent-cores"]
    assert bounded.value is not None and bounded.value.value == 8  # sixteen threads fill eight cores
    alone = claims_of_rungs(_smt_rungs(), 8.0, 0.3, siblings=tuple((n,) for n in range(16)), cpus=16)[
        "equivalent-cores"
    ]
    assert alone.value is not None and alone.value.value == 16.0
    table = Ladder("mine", points({"load": 4.0, "throughput": 9.0, "cpu": 3.0}), machine=SMT8)
    between = claims_of(Scaling(table, (), pl.DataFrame(), pl.DataFrame()))["equivalent-cores"]
    assert (between.case, between.slots["low"], between.slots["high"]) == ("between", 1.5, 3.0)


# -- waiting --------------------------------------------------------------------------------------


def test_cpu_wait_begins_between_two_rungs() -> None:
    onset = claims_of_rungs(FULL, 4.0)["cpu-wait"]
    assert onset.value is not None and (onset.value.value, onset.value.low, onset.value.high) == (6, 4, 6)
    assert onset.slots["share"].startswith("33 %")
    assert (onset.slots["before"], onset.slots["below"]) == (0, "4 sessions")


def test_cpu_wait_that_a_rungs_interval_leaves_open_is_not_claimed() -> None:
    """6 % of the time, but the ledger knows it to -+ 2 %: not surely above 5 %."""
    vague = Rung(6, 400.0, 4.0, 0.36, slack=0.12)
    onset = claims_of_rungs([*FULL[:3], vague, FULL[4]], 4.0)["cpu-wait"]
    assert onset.value is not None and (onset.value.value, onset.value.low) == (8, 6)
    none = claims_of_rungs([*FULL[:3], vague], 4.0)["cpu-wait"]
    assert (none.case, none.slots["top"]) == ("none", "6 sessions")


def test_cpu_wait_from_the_start_is_caused_by_others() -> None:
    rungs = [Rung(n, 50.0 * n, 0.5 * n, 0.5 * n) for n in (1, 2, 3)]
    onset = claims_of_rungs(rungs, 9.0)["cpu-wait"]
    assert (onset.case, onset.slots["load"]) == ("lowest", "1 session")
    assert "used" not in onset.slots  # one session cannot use all CPUs
    more = [Rung(n, 50.0 * n, 0.1 * n, 0.9 * n) for n in (16, 20, 24)]
    onset = claims_of_rungs(more, 20.0)["cpu-wait"]
    assert (onset.case, onset.slots["load"], onset.slots["used"]) == ("lowest", "16 sessions", 1.6)


# -- headroom -------------------------------------------------------------------------------------


def test_delay_follows_erlangs_formula() -> None:
    assert delay(2, 1.0) == pytest.approx(1 / 3)  # Kleinrock (1975), section 3.5: two servers, half busy
    assert delay(1, 0.7) == pytest.approx(0.7)
    assert delay(10, 8.0) == pytest.approx(0.4092, abs=5e-5)  # as tabulated


def test_the_load_until_a_share_of_wait_follows_queueing_theory() -> None:
    """In M/M/1 the wait is rho / (1 - rho) of the service: a tenth at 1 / 11."""
    assert load_until(0.1, 1.0) == pytest.approx(1 / 11)
    assert load_until(0.1, 1.5) == pytest.approx(1.5 / 11)
    # M/M/2: rho^2 / (1 - rho^2) = 0.1
    assert load_until(0.1, 2.0) == pytest.approx(2 * (0.1 / 1.1) ** 0.5)


def _window(k: int, run: float, runq: float) -> Rung:
    return Rung(0, 0.0, run, runq, repeat=k)


def test_headroom_follows_from_the_observed_load() -> None:
    run = results([_window(1, 0.3, 0.001), _window(2, 0.5, 0.001)], cpus=2)
    _, headroom = observed(run)
    assert headroom.value is not None
    assert headroom.value.value == pytest.approx(2 * (0.1 / 1.1) ** 0.5 / 0.4 - 1)
    assert headroom.value.high == pytest.approx(2 / 0.4 - 1)
    assert headroom.case == "some" and (headroom.slots["used"], headroom.slots["cpus"]) == (
        pytest.approx(0.4),
        2,
    )
    assert ladders_of(run) == ()


def test_the_whole_machine_counts_and_cpu_wait_leaves_no_headroom() -> None:
    windows = [_window(1, 0.4, 0.0), _window(2, 0.4, 0.0)]
    used = [
        w.head()
        | {"quantity": "cpu_used_machine", "source": "host", "value": 1.0, "unit": "cores"}
        | {"verdict": "reference", "status": "ok"}
        for w in windows
    ]
    _, headroom = observed(results(windows, cpus=2, sources=used))
    assert (
        headroom.value is not None
        and headroom.value.high == pytest.approx(1.0)
        and headroom.value.value == 0.0
    )
    _, waits = observed(results([_window(1, 1.9, 0.4)], cpus=2))
    assert waits.case == "none" and waits.value is not None and waits.value.high == 0
    assert observed(results(FULL)) == ()
    _, unknown = observed(results(windows, cpus=2, here=False))
    assert unknown.value is None and "elsewhere" in unknown.slots["why"]


def test_cpus_that_other_processes_use_beside_an_idle_server_are_named() -> None:
    """An idle server on a busy machine: "all CPUs are busy" did not say by whom."""
    window = _window(1, 0.0, 0.0)
    busy = window.head() | {"quantity": "cpu_used_machine", "source": "host", "value": 2.0, "unit": "cores"}
    busy |= {"verdict": "reference", "status": "ok"}
    run = results([window], cpus=2, sources=[busy])
    ledger = run.tables["ledger"].clear()
    cpu = {"name": "DB CPU", "unit": "s", "total": 0.0, "per_s": 0.0, "status": "ok", "source": "nobody"}
    nobody = rows("profile", [window.head() | cpu | {"cell": "all"}])
    _, headroom = observed(
        dataclasses.replace(run, tables={**run.tables, "ledger": ledger, "profile": nobody})
    )
    assert headroom.case == "others" and "Other processes used 2 of them" in headroom.text


def test_a_queue_beside_free_cpus_is_no_lack_of_cpus() -> None:
    """An observation of a machine that was 14 % busy stated that it had no CPU to spare."""
    window = _window(1, 0.1, 0.02)
    busy = window.head() | {"quantity": "cpu_used_machine", "source": "host", "value": 0.286, "unit": "cores"}
    busy |= {"verdict": "reference", "status": "ok"}
    _, queued = observed(results([window], cpus=2, sources=[busy]))
    assert queued.case == "queued" and queued.slots["others"] == pytest.approx(0.186)
    assert queued.value is not None and queued.value.high == pytest.approx(2 / 0.286 - 1)
    _, alone = observed(results([window], cpus=2))
    assert alone.case == "queued" and "others" not in alone.slots and "unknown" in alone.text


def test_headroom_under_a_quota_is_of_the_server_alone() -> None:
    """Others use 1.5 CPUs of the machine, and nothing of the server's quota of half a CPU."""
    window = _window(1, 0.1, 0.0)
    busy = window.head() | {"quantity": "cpu_used_machine", "source": "host", "value": 1.6, "unit": "cores"}
    busy |= {"verdict": "reference", "status": "ok"}
    limited = results([window], cpus=2, sources=[busy], limits=LimitSpec(quota=0.5))
    _, claimed = observed(limited)
    assert claimed.slots["used"] == pytest.approx(0.1) and claimed.slots["cpus"] == 0.5
    assert claimed.value is not None and claimed.value.high == pytest.approx(4)


def test_headroom_with_smt_has_a_low_end_of_cores_alone() -> None:
    windows = [_window(1, 2.0, 0.01), _window(2, 2.2, 0.01)]
    _, headroom = observed(results(windows, siblings=PAIRS, cpus=16))
    assert headroom.value is not None and headroom.value.low is not None
    assert headroom.value.low < load_until(0.1, 8) / 2.1 - 1 < headroom.value.value
    assert headroom.slots["least"] == headroom.value.low


# -- words ----------------------------------------------------------------------------------------


def test_the_paragraph_has_throughput_reason_basis_and_next_step() -> None:
    run = results(FULL)
    (ladder,) = ladders_of(run)
    text = paragraph(answered(scaling_with_knee(ladder, 10_000.0, 4.0, 0.0), run))
    assert text.startswith("lio: 40.0 k LIO/s with 4 sessions, 4 times the throughput of one")
    assert "because sessions wait for a CPU (CPU WAIT): 100 %" in text
    assert "Basis: 5 loads" in text and "Measure next: " in text
    assert 4 <= text.count(". ") + 1 <= 9


def test_without_a_fit_the_paragraph_has_the_reason() -> None:
    ladder = Ladder("mine", points(*TABLE[:2]), "queries/s")
    bare = Scaling(ladder, (), pl.DataFrame(), pl.DataFrame(), refused=("2 loads tell nothing of scaling",))
    text = paragraph(answered(bare))
    assert "Basis: 2 loads. 2 loads tell nothing of scaling. Measure next: " in text
    assert "mine: 20.0 queries/s with 2 sessions" in text


RATES = {1: 100.0, 2: 200.0, 4: 400.0, 8: 800.0, 16: 1040.0, 32: 1041.0, 64: 1039.0}


def _claims_of_climbs(*climbs: dict[int, float], machine: Machine = SMT8) -> dict[str, Claim]:
    rows = [
        {"load": float(n), "repeat": r, "throughput": x}
        for r, c in enumerate(climbs, 1)
        for n, x in c.items()
    ]
    return claims_of(scale(Ladder("mine", points(*rows), machine=machine)))


def test_smt_yield_is_that_of_the_measured_loads_where_there_is_one_a_core_and_one_a_cpu() -> None:
    """1,040 at 16 CPUs over 800 at 8 cores; with repeats each climb's own ratio."""
    claims = _claims_of_climbs(RATES)
    once, knee = claims["smt-yield"], claims["knee"]
    assert once.case == "measured" and once.value is not None
    low, high = once.value.low, once.value.high  # by the scatter of the last three, 0.05 %
    assert low is not None and high is not None and 1.295 < low < once.value.value == 1.3 < high < 1.305
    assert knee.value is not None and knee.value.value == 8 and knee.slots["model_load"] == "8 sessions"
    thrice = _claims_of_climbs(RATES, RATES | {16: 1060.0}, RATES | {16: 1050.0})["smt-yield"].value
    assert thrice is not None and thrice.low is not None and thrice.high is not None
    assert thrice.value == pytest.approx(1.3125, abs=1e-3) and 1.25 < thrice.low < 1.30 < thrice.high < 1.38


def test_without_a_rung_at_the_cores_or_the_cpus_smt_yield_is_that_of_the_tied_fit() -> None:
    noise = dict(zip((1, 3, 6, 10, 14, 24), (1.004, 0.995, 1.003, 0.996, 1.005, 0.997), strict=True))
    law = {n: 100.0 * (min(n, 8) + 0.3 * max(0, min(n, 16) - 8)) * e for n, e in noise.items()}
    smt_yield = _claims_of_climbs(law)["smt-yield"]
    assert smt_yield.case == "known" and smt_yield.value is not None
    assert smt_yield.value.low is not None and smt_yield.value.high is not None
    assert 1.2 < smt_yield.value.low < 1.30 < smt_yield.value.high < 1.4


def test_measured_yield_and_tied_fit_that_lie_apart_are_both_given() -> None:
    """Threads that add 30 % up to the CPUs, but the CPUs' own rung was disturbed in all climbs."""
    loads = (1, 2, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 32)
    law = {n: 100.0 * (min(n, 8) + 0.3 * max(0, min(n, 16) - 8)) for n in loads}
    climbs = [{n: x * (1 + 0.002 * ((7 * n + 3 * k) % 5 - 2)) for n, x in law.items()} for k in range(3)]
    smt_yield = _claims_of_climbs(*[c | {16: 0.85 * c[16]} for c in climbs])["smt-yield"]
    assert smt_yield.value is not None and smt_yield.value.value == pytest.approx(0.85 * 1.3, rel=0.01)
    assert (
        smt_yield.slots["fitted"].startswith("1.") and "differ by more than their intervals" in smt_yield.text
    )


def test_threads_that_contend_yield_less_than_one() -> None:
    claims = _claims_of_climbs(RATES | {16: 720.0, 32: 719.0, 64: 721.0})
    assert claims["smt-yield"].value is not None and claims["smt-yield"].value.value == pytest.approx(0.9)
    inflated = claims["cpu-inflation"].value
    assert inflated is not None and inflated.value == pytest.approx(2 / 0.9)


def test_smt_yield_of_four_threads_a_core_is_claimed() -> None:
    """Ten cores of four threads that deliver 1.6 of one."""
    law = {n: 100.0 * (min(n, 10) + 0.2 * max(0, min(n, 40) - 10)) for n in (1, 5, 10, 20, 40, 80)}
    claims = _claims_of_climbs(law, machine=Machine(cpus=40, cores=10, threads_per_core=4))
    assert claims["smt-yield"].value is not None and claims["smt-yield"].value.value == pytest.approx(1.6)
    assert claims["cpu-inflation"].value is not None
    assert claims["cpu-inflation"].value.value == pytest.approx(2.5)


def test_growth_that_ends_below_the_cores_gives_no_smt_yield() -> None:
    rates = {n: 100.0 * (min(n, 4) + 0.2 * max(0, n - 4)) for n in (1, 2, 3, 4, 6, 8, 12, 16)}
    rows = [{"load": float(n), "throughput": x} for n, x in rates.items()]
    smt_yield = claims_of(scaling_with_knee(Ladder("mine", points(*rows), machine=SMT8), 100.0, 4.0, 0.2))[
        "smt-yield"
    ]
    assert (smt_yield.case, smt_yield.value) == ("elsewhere", None)
