"""Sessions that were started together: groups where there are some, none where there are none, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy
from tests.fakery import S, climb
from tests.unit.observe_trees import BIG, golden
from tests.unit.placements import Siblings, article, simulated_rounds, slowdowns, table_of

from dbdyno.account.placement import placement, shares
from dbdyno.conclude.run import steadiness as on
from dbdyno.conclude.run.case import Case
from dbdyno.model.results.claim import Claim
from dbdyno.model.schema.tables import rows
from dbdyno.observe.cpus import siblings
from dbdyno.stats.significance import coincidence, fisher
from dbdyno.stats.two_groups import groups

SMT2 = {1: 1.0, 2: 4 / 3}  # the article's: two on a core take 1.5 times as long
POWER = {1: 1.0, 2: 1.4, 3: 1.5, 4: 1.6}  # busy threads of a core, published for POWER7; 3 between


@pytest.fixture(scope="module")
def ec2() -> Siblings:
    """c4.4xlarge: 8 cores of 2 threads, the machine of the article."""
    cores = siblings(golden("ec2-c4-4xlarge"))
    assert cores is not None and len(cores) == 8 and {len(c) for c in cores} == {2}
    return cores


def placement_of(table: pl.DataFrame, cores: Siblings | None) -> dict[str, Any]:
    return placement(table, cores)[1].row(0, named=True)


def claims_of(table: pl.DataFrame, cores: Siblings | None) -> dict[str, Claim]:
    """Findings on placement of a run of these rounds."""
    ran = climb("fake:", [1], measure_ns=S)
    placed, placements = placement(table, cores)
    keys = ("cell", "workload", "variant", "sessions", "repeat")
    windows = [
        {k: r[k] for k in keys} | {"t0_ns": 0, "t1_ns": 10**10, "wall_s": 10.0, "status": "ok"}
        for r in placements.to_dicts()
    ]
    tables = {"placed": placed, "placements": placements, "windows": rows("windows", windows)}
    case = Case(ran.plan, ran.environment, tables, {})
    return {
        f.id: f for check in (on.placement_groups, on.all_share, on.alike, on.settled) for f in check(case)
    }


# -- the article -----------------------------------------------------------------------------------


def test_the_articles_nine_sessions_fall_into_seven_and_two() -> None:
    seconds = article()
    eight, nine = (placement_of(table_of([1000 * s for s in seconds[n]]), None) for n in (8, 9))
    assert not eight["groups"] and eight["p_groups"] == 1 and eight["max_over_min"] == 1
    assert nine["groups"] and nine["slow_sessions"] == 2 and nine["ratio"] == pytest.approx(1.5)
    assert nine["shared"] is None, "without CPUs there is no telling why"


def test_the_articles_conclusion_needs_the_cpus(ec2: Siblings) -> None:
    """The two slow ones on one core, all others on cores of their own: what he concludes."""
    seconds = article()[9]
    slow = [i for i, s in enumerate(seconds) if s == 60]
    cpus = [-1] * 9
    (cpus[slow[0]], cpus[slow[1]]), others = ec2[0], iter(ec2[1:])
    cpus = [next(others)[0] if c < 0 else c for c in cpus]
    table = table_of([1000 * s for s in seconds], [cpus], moved=np.zeros((1, 9)))
    row = placement_of(table, ec2)
    assert row["shared"] == "core" and (row["slow_core"], row["fast_core"]) == (2, 0)
    assert row["p_core"] == pytest.approx(1 / 36, abs=0.006), "one pair of 36, by drawn orders"
    finding = claims_of(table, ec2)["placement-shared-core"]
    assert finding.value.value == pytest.approx(1.5, rel=0.05)
    assert (finding.slots["place"], finding.slots["slow"], finding.slots["rounds"]) == ("at 9 sessions", 2, 1)
    # the same times with the slow ones on cores of their own: nobody shares, and that is not the reason
    apart = table_of([1000 * s for s in seconds], [[c[0] for c in ec2] + [99]], moved=np.zeros((1, 9)))
    assert placement_of(apart, [*ec2, (99,)])["shared"] is None
    assert set(claims_of(apart, [*ec2, (99,)])) >= {"placement-groups"}


# -- machines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("sessions", [4, 8, 9, 12])
def test_slow_sessions_share_a_core_of_two_threads(ec2: Siblings, sessions: int, settled: bool) -> None:
    row = placement_of(simulated_rounds(ec2, sessions, settled=settled, yields=SMT2, seed=sessions), ec2)
    on_shared = 2 * max(0, sessions - 8)
    assert row["groups"] == (sessions > 8)
    if sessions > 8:
        assert (row["slow_sessions"], row["shared"], row["group_rounds"]) == (on_shared, "core", 30)
        assert row["ratio"] == pytest.approx(1.5, rel=0.03)
        assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]


def test_all_sixteen_threads_are_compared_with_one_alone(ec2: Siblings) -> None:
    table = pl.concat([simulated_rounds(ec2, n, yields=SMT2, seed=n) for n in (1, 16)])
    claims = claims_of(table, ec2)
    assert "placement-shared-core" not in claims and "placement-groups" not in claims
    assert claims["placement-all-share"].value.value == pytest.approx(1.5, rel=0.02)


def test_more_sessions_than_threads_share_a_cpu(ec2: Siblings) -> None:
    row = placement_of(simulated_rounds(ec2, 18, yields=SMT2, seed=3), ec2)
    assert (row["slow_sessions"], row["shared"]) == (4, "cpu")
    assert row["ratio"] == pytest.approx(2, rel=0.05)


def test_slow_sessions_share_a_core_of_four_threads() -> None:
    cores = siblings(golden("power9-lpar-smt4"))
    assert cores is not None and {len(c) for c in cores} == {4}
    sessions = len(cores) + 1
    row = placement_of(simulated_rounds(cores, sessions, yields=POWER, seed=2), cores)
    assert (row["slow_sessions"], row["shared"]) == (2, "core")
    assert row["ratio"] == pytest.approx(2 / 1.4, rel=0.03)


def test_groups_are_found_on_160_cpus() -> None:
    cores = siblings(golden(BIG))
    assert cores is not None and len(cores) == 80
    row = placement_of(simulated_rounds(cores, 88, rounds=12, yields=SMT2, seed=4), cores)
    assert (row["slow_sessions"], row["shared"]) == (16, "core")
    assert row["ratio"] == pytest.approx(1.5, rel=0.03)


# -- none where there are none -----------------------------------------------------------------------

POPULATIONS: dict[str, Callable[[Any, tuple[int, int]], Any]] = {
    "normal": lambda c, s: np.exp(c.normal(0, 0.05, s)),
    "wide": lambda c, s: np.exp(c.normal(0, 0.3, s)),
    "flat": lambda c, s: c.uniform(1, 2, s),
    "hiccups": lambda c, s: 1 + c.exponential(0.3, s),
    "sessions differ": lambda c, s: np.exp(c.normal(0, 0.1, s[1])) * np.exp(c.normal(0, 0.01, s)),
    "rounds differ": lambda c, s: np.where(c.random((s[0], 1)) < 0.4, 1.5, 1) * np.exp(c.normal(0, 0.02, s)),
}


@pytest.mark.parametrize("name", POPULATIONS)
def test_one_population_has_no_groups(name: str) -> None:
    """At most one of twenty has groups: of 120 at most 12 (99.5 % of the binomial). Benchmarks try more."""
    chance = np.random.default_rng(7)
    shapes = [(1, 4), (1, 9), (10, 3), (30, 9), (12, 2), (30, 16)]
    wrong = sum(groups(100 * POPULATIONS[name](chance, s)).significant for s in shapes for _ in range(20))
    assert wrong <= 12


def test_a_gap_under_ten_percent_is_no_group() -> None:
    assert not groups(np.array([[100.0, 100, 100, 100, 108, 108]] * 20)).significant
    assert groups(np.array([[100.0, 100, 100, 100, 112, 112]] * 20)).significant


def test_slow_sessions_may_change_from_round_to_round() -> None:
    chance = np.random.default_rng(3)
    times = 100 * np.exp(chance.normal(0, 0.02, (40, 2)))
    slow = chance.integers(0, 2, 40)
    times[np.arange(40), slow] *= 1.5
    grouping = groups(times)
    assert grouping.significant and grouping.slow.sum(axis=1).tolist() == [1] * 40
    assert (grouping.slow.argmax(axis=1) == slow).all()


def test_groups_of_too_few_figures_are_unknown() -> None:
    row = placement_of(table_of([[100, 150]]), [(0,), (1,)])
    assert row["p_groups"] is None and not row["groups"] and row["moved"] is None
    alone = placement_of(table_of([[100], [101]]), None)
    assert alone["max_over_min"] is None and alone["cv"] is None and alone["alone_ns"] == 100_500_000


# -- who shared ---------------------------------------------------------------------------------------


def test_shares_name_cpu_before_core_and_do_not_guess() -> None:
    cores = {0: 0, 4: 0, 1: 1, 5: 1, 2: 2}
    assert shares([0, 4, 1, 2, 2], cores) == ["core", "core", "none", "cpu", "cpu"]
    # one was moved: it may have been anywhere, so nobody is known to have been alone
    assert shares([0, 4, None, 1], cores) == ["core", "core", None, None]
    assert shares([0, 4, 7], cores) == ["core", "core", None], "a CPU of an unknown core"
    assert shares([0, 4, 4], {}) == ["none", "cpu", "cpu"], "no core is known: CPUs alone"


def test_slow_ones_that_only_happen_to_share_are_not_blamed_on_it() -> None:
    """Every order of four sessions: two slow of two that share, one of six pairs."""
    slow = np.array([[True, True, False, False]])
    assert coincidence(slow, slow) == pytest.approx(1 / 6)
    assert coincidence(np.repeat(slow, 30, axis=0), np.repeat(slow, 30, axis=0)) == pytest.approx(1 / 6)
    turning = np.array([np.roll(slow[0], r) for r in range(4)])
    assert coincidence(turning, turning) == pytest.approx(1 / 24), "places that change tell more"
    assert coincidence(slow, np.ones_like(slow)) is None


def test_repeats_decide_what_one_cannot() -> None:
    """Five sessions on four cores that keep their places: one of ten pairs; three repeats are enough."""
    cores = tuple((n, n + 4) for n in range(4))
    tables = [simulated_rounds(cores, 5, yields=SMT2, seed=r, repeat=r) for r in (1, 2, 3)]
    assert placement(tables[0], cores)[1].select("groups", "shared").row(0) == (True, None)
    rows_of = placement(pl.concat(tables), cores)[1]
    assert rows_of["p_core"].to_list() == pytest.approx([0.1] * 3)
    assert rows_of["shared"].to_list() == ["core"] * 3
    assert fisher([0.1] * 3) == pytest.approx(scipy.stats.combine_pvalues([0.1] * 3).pvalue)
    assert fisher([0.3, 0.02]) == pytest.approx(scipy.stats.combine_pvalues([0.3, 0.02]).pvalue)
    assert fisher([0.028]) == pytest.approx(0.028) and fisher([1.0, 1.0]) == 1.0


def test_sharing_that_is_unrelated_leaves_the_cause_open(ec2: Siblings) -> None:
    """Groups for another reason, on a machine where some share: the cause stays open."""
    cpus = [c[0] for c in ec2[:6]] + [ec2[0][1], ec2[1][1]]
    assert set(np.round(slowdowns(cpus, ec2, SMT2), 3)) == {1.0, 1.5}
    times = 100 * np.exp(np.random.default_rng(1).normal(0, 0.02, (30, 8)))
    times[:, 3:5] *= 1.5
    row = placement_of(table_of(times, [cpus] * 30, moved=np.zeros((30, 8))), ec2)
    assert row["groups"] and row["shared"] is None and row["slow_core"] == 0


def test_moves_are_counted_and_take_the_place_away(ec2: Siblings) -> None:
    cpus, moved = [[0, 1, 2], [0, 1, 3], [0, 1, 3]], [[0, 0, 0], [0, 0, 1], [0, 0, 0]]
    placed, cells = placement(table_of([[10, 10, 10]] * 3, cpus, moved=moved), ec2)
    row = cells.row(0, named=True)
    assert (row["moved"], row["resettled"], row["calls"]) == (1, 1, 9)
    assert placed.filter(pl.col("round") == 2)["shares"].to_list() == [None, None, None]
    settled = claims_of(table_of([[10, 10, 10]] * 30, [[0, 1, 2]] * 30, moved=np.zeros((30, 3))), ec2)
    assert (settled["placement-settled"].slots["stayed"], settled["placement-settled"].slots["calls"]) == (
        1,
        90,
    )
    assert settled["placement-alike"].slots["sessions"] == 3
