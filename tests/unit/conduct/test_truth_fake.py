"""Window and ledger on loads whose truth is known to the nanosecond, by both tiers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

import polars as pl
import pytest
from tests.fake_engine import Law
from tests.fake_engine.sampling import WORD_NS
from tests.fake_engine.trace import RUNNING
from tests.fake_engine.truth import Truth
from tests.fakery import Climb, S, climb, sampled_again
from tests.unit.truth_cases import CASES, OLTP, SPIN_1X, SPIN_2X, Case

from dbdyno.account.ledger import ledger
from dbdyno.account.window import cut
from dbdyno.conduct.derive.polars_thread import on_polars_thread
from dbdyno.model.results.ledger_rows import account_rows, top_level
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.tables import empty

pytestmark = pytest.mark.queries

W_NS = 10 * S
SKEW_NS = Law().skew
TRACED = ("traced", "waits", "syscalls")
EXACT, SEEDS = "scheduler trace", range(5)

Accounts = dict[tuple[str, str | None], float]


@cache
def played(dsn: str, sessions: int, hz: float = 10.0) -> Climb:
    """Returns a climb of one cell with all data sources."""
    return climb(dsn, [sessions], hz=hz, memory_hz=100.0, trace=True)


def truths(climbed: Climb, *, workers: bool = False) -> dict[int, Truth]:
    (cell,) = climbed.cells
    return climbed.server.truth(cell.id, cell.meta.t0_ns, cell.meta.t1_ns, workers=workers)


def sampled(climbed: Climb, seed: int | None = None, memory_hz: float = 100.0) -> RawCell:
    """Returns the cell without its trace, with another series of samples."""
    (cell,) = climbed.cells
    again = cell if seed is None else sampled_again(climbed.server, cell, seed, memory_hz)
    own = cell.meta.cell.model_copy(update={"id": f"{cell.id}-{seed}"})
    meta = cell.meta.model_copy(update={"cell": own})
    return RawCell(meta, {**again.tables, **{name: empty(name) for name in TRACED}})


def accounts_of(truth: Truth) -> Accounts:
    """Returns seconds per second by account, with the ledger's names."""
    waits = {("sleep", f"{c}/{e}" if c else "no wait event"): ns for (c, e), ns in truth.sleep.items() if ns}
    exact: dict[tuple[str, str | None], int] = {("run", None): truth.run, ("runq", None): truth.runq}
    exact |= {("client", None): truth.client, **waits}
    return {account: ns / W_NS for account, ns in exact.items()}


def sum_accounts(parts: Iterator[Accounts]) -> Accounts:
    total: Accounts = {}
    for part in parts:
        for account, value in part.items():
            total[account] = total.get(account, 0.0) + value
    return total


def holds(row: dict, exact: float, slip: float) -> bool:
    return bool(row["low"] - slip - 1e-9 <= exact <= row["high"] + slip + 1e-9)


def slip_of(climbed: Climb, skew_ns: int) -> float:
    """Bounds the error from reading label and task state of a sample ``skew_ns`` apart. A task that falls
    asleep in between counts as sleeping without a label: at most its sleeps a second times that, for all
    sessions."""
    sleeps = sum(under.sleeps for t in truths(climbed).values() for under in t.labels.values())
    return sleeps * skew_ns / W_NS


def rung(frame: pl.DataFrame) -> dict[tuple[str, str | None], dict]:
    """Returns the rung's rows of the ledger without accounts inside others."""
    rows = account_rows(frame, "run", "runq", "sleep", "client")
    return {(r["account"], r["detail"]): r for r in rows.to_dicts()}


def memo(frame: pl.DataFrame, account: str, detail: str | None = None) -> float:
    rows = frame.filter(scope="memo", who="rung", account=account)
    rows = rows.filter(pl.col("detail").eq_missing(pl.lit(detail, dtype=pl.String)))
    return float(rows["aas"].item())


class Played(NamedTuple):
    """A case, its truth, and its ledgers by the names of tier and series of samples as cells."""

    case: Case
    climbed: Climb
    truths: dict[int, Truth]
    ledgers: pl.DataFrame

    @property
    def truth(self) -> Accounts:
        return sum_accounts(accounts_of(t) for t in self.truths.values())

    def tier(self, name: str) -> list[pl.DataFrame]:
        """Returns the ledgers of five series of samples."""
        return [self.ledgers.filter(cell=f"{name}-{seed}") for seed in SEEDS]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(c, marks=[pytest.mark.whole] if i % 5 else [], id=c.name) for i, c in enumerate(CASES)
    ],
)
@on_polars_thread
def load(request: pytest.FixtureRequest) -> Played:
    """A case played once, sampled five times, and cut with and without samples of the wait event word."""
    case: Case = request.param
    climbed = played(case.dsn, case.sessions)
    cells = [rename_cell(climbed.cells[0], "exact")]
    for seed in SEEDS:
        dense = sampled(climbed, seed)
        cells += [rename_cell(dense, f"word-{seed}"), rename_cell(without_word(dense), f"activity-{seed}")]
    return Played(case, climbed, truths(climbed), ledger(cut(cells)))


def rename_cell(cell: RawCell, name: str) -> RawCell:
    return RawCell(
        cell.meta.model_copy(update={"cell": cell.meta.cell.model_copy(update={"id": name})}), cell.tables
    )


def without_word(cell: RawCell) -> RawCell:
    """Returns the cell with activity samples alone."""
    tables = {
        **cell.tables,
        **{n: cell.tables[n].filter(via="sql") for n in ("samples", "sampler")},
    }
    return RawCell(cell.meta, tables)


def test_the_simulated_machine_does_what_arithmetic_says(load: Played):
    """The truth that other tests compare with equals figures that follow from the law alone."""
    case = load.case
    by_name = {detail or account: value for (account, detail), value in load.truth.items()}
    for name, value in case.parts().items():
        assert by_name.get(name, 0.0) == pytest.approx(value, abs=case.within * case.sessions), name
    assert sum(by_name.values()) == pytest.approx(case.sessions, abs=1e-9)


def test_the_exact_tier_is_the_truth(load: Played):
    rows = load.ledgers.filter(cell="exact")
    for session, truth in load.truths.items():
        own_rows = rows.filter(scope="session", session=session)
        _is_exact(own_rows, accounts_of(truth))
    _is_exact(rows.filter(scope="rung"), load.truth)


def _is_exact(rows: pl.DataFrame, truth: Mapping[tuple[str, str | None], float]) -> None:
    """Asserts equality to the nanosecond of 10 s, with all sleeps and no other time."""
    added = top_level(rows).filter(pl.col("account").is_in(("run", "runq", "sleep", "client", "unaccounted")))
    by_account = {(a, d): v for a, d, v in added.select("account", "detail", "aas").rows() if v}
    known = {account: value for account, value in truth.items() if value}
    assert by_account.pop(("unaccounted", None), 0.0) == pytest.approx(0, abs=1e-9)
    assert by_account == pytest.approx(known, abs=1e-9)
    assert set(added.filter(account="sleep")["source"]) <= {EXACT}


def test_sampled_accounts_are_within_two_per_cent_and_their_intervals(load: Played):
    """With five series of samples of the wait event word each account is within 2 % of wall, nothing is left
    over, and at least 9 of 10 intervals hold."""
    case, truth, slip = load.case, load.truth, slip_of(load.climbed, WORD_NS)
    holding = []
    for frame in load.tier("word"):
        by_account = rung(frame)
        for account in {*truth, *by_account}:
            exact, row = truth.get(account, 0.0), by_account.get(account)
            value = 0.0 if row is None else row["aas"]
            assert value == pytest.approx(exact, abs=0.02 * case.sessions), account
            holding.append(row is not None and holds(row, exact, slip))
        left = frame.filter(scope="rung", account="unaccounted")["aas"].item()
        assert abs(left) <= 0.01 * case.sessions
    assert sum(holding) >= 0.9 * len(holding), f"{sum(holding)} of {len(holding)}"


def test_ten_samples_a_second_hold_the_truth_too(load: Played):
    """Activity samples alone have wider intervals, which hold as often."""
    truth, slip = load.truth, slip_of(load.climbed, SKEW_NS)
    rows = [(account, row) for frame in load.tier("activity") for account, row in rung(frame).items()]
    holding = [holds(row, truth.get(account, 0.0), slip) for account, row in rows]
    assert sum(holding) >= 0.9 * len(holding), f"{sum(holding)} of {len(holding)}"


# -- what others call CPU, and CPU WAIT ---------------------------------------------------------------


def _naive(dsn: str, sessions: int) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the naive figures and the truth, in seconds per second."""
    climbed = played(dsn, sessions, hz=100.0)
    each_truth = truths(climbed).values()
    frame = ledger(cut([sampled(climbed)]))
    run, runq = (sum(getattr(t, a) for t in each_truth) / W_NS for a in ("run", "runq"))
    unlabelled = sum(sum(t.labels[RUNNING][:3]) for t in each_truth) / W_NS
    active = (
        sum(sum(u[:3]) for t in each_truth for label, u in t.labels.items() if label.state == "active") / W_NS
    )
    naive = {"cpu": memo(frame, "naive.cpu"), "active": memo(frame, "naive.active")}
    return naive, {"run": run, "runq": runq, "unlabelled": unlabelled, "active": active}


@pytest.mark.parametrize(("dsn", "sessions"), [(SPIN_1X, 4), (SPIN_2X, 8), (OLTP, 16)])
def test_naive_memos_are_the_figures_of_samples(dsn: str, sessions: int):
    naive, truth = _naive(dsn, sessions)
    assert naive["cpu"] == pytest.approx(truth["unlabelled"], abs=0.02 * sessions)
    assert naive["active"] == pytest.approx(truth["active"], abs=0.02 * sessions)


def test_the_naive_formulas_are_right_where_nobody_waits_for_a_cpu():
    naive, truth = _naive(SPIN_1X, 4)
    assert naive["cpu"] == pytest.approx(truth["run"], rel=0.01)


def test_active_without_event_doubles_the_cpu_of_a_machine_with_two_loops_a_cpu():
    """4 CPUs, 8 loops: CPU used 4.0, active without event 8.0: off by 100 %. Elapsed less CPU, 4.0, is all
    run queue; read as waits of the database it is off by as much: nobody sleeps."""
    naive, truth = _naive(SPIN_2X, 8)
    assert naive["cpu"] / truth["run"] == pytest.approx(2.0, rel=0.01)
    assert naive["active"] - truth["run"] == pytest.approx(4.0, rel=0.01)


def test_on_short_calls_both_formulas_fail_the_other_way_round():
    """3,333 calls/s of 0.5 ms: CPU used 1.667, of which 0.667 while the server said active. CPU WAIT by
    subtraction, active without event less CPU, is -1.0; in truth sessions spend 7 s/s in the run queue,
    labelled idle in ClientRead."""
    naive, truth = _naive(OLTP, 16)
    assert truth["run"] == pytest.approx(2 * 5 / 6, rel=0.001)
    assert naive["cpu"] == pytest.approx(2 / 3, rel=0.1)
    assert naive["cpu"] - truth["run"] == pytest.approx(-1.0, abs=0.1)
    assert truth["runq"] > 6.5
    assert naive["active"] - truth["run"] < 0 < truth["runq"], "elapsed (active) less CPU is negative, too"
