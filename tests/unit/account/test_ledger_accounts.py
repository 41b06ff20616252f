"""The ledger against hand-computed examples and against the truth of the fake server."""

import polars as pl
import pytest
from tests.fakery import (
    S,
    climb,
    made_cell,
    sample_row,
    sampled_again,
    sampler_row,
    session_row,
    task_row,
)

from dbdyno.account.ledger import ledger
from dbdyno.account.window import cut
from dbdyno.model.results.ledger_rows import BY_LABEL, account_rows, queue_labels
from dbdyno.model.results.raw import RawCell
from dbdyno.stats.estimates import effective, interval, wilson

pytestmark = pytest.mark.queries


def _ledger(*cells: RawCell) -> pl.DataFrame:
    return ledger(cut(cells))


def _accounts(frame: pl.DataFrame, scope: str = "rung") -> dict:
    rows = frame.filter(~BY_LABEL, scope=scope)
    return {(r["account"], r["detail"]): r["aas"] for r in rows.to_dicts()}


def _ten_samples(states: list[tuple[str | None, str | None]], **changes) -> dict:
    """One sample in the middle of each second of the window 10 to 20 s: each stands for 1 s."""
    at = [10 * S + i * S + S // 2 for i in range(10)]
    return {
        "sampler": [sampler_row(i, t) for i, t in enumerate(at)],
        "samples": [
            sample_row(i, t, *state, **changes) for i, (t, state) in enumerate(zip(at, states, strict=True))
        ],
        "sessions": [session_row()],
    }


MIXED = (
    [("R", None)] * 4
    + [("S", "IO/DataFileRead")] * 2
    + [("S", "Client/ClientRead")] * 3
    + [("R", "Client/ClientRead")]
)


def test_accounts_of_a_session_are_those_worked_out_by_hand():
    """W 10 s: run 4 s (user 3, system 1), runq 3 s, so off 3 s. Ten samples: 4 R, 2 asleep in IO, 3 at the
    client, 1 R though labelled client.

    5 of 10 asleep do not contradict off = 0.3: it is divided 2 : 3. Runnable 0.7 is divided 4 : 1, so 0.56
    without a label and 0.14 under the client's, and raked from seeds 1 : 1 and 0.02 : 1 to run 0.4, runq 0.3:
    0.56 x / (1 + x) + 0.14 * 0.02 x / (1 + 0.02 x) = 0.4, so 0.006 x^2 + 0.1548 x - 0.4 = 0, x = 2.366904,
    and run under the client's label is 0.0063277.
    """
    tasks = [
        task_row(10 * S, 0, 0),
        task_row(20 * S, 4 * S, 3 * S, user_ns=3 * S, system_ns=1 * S),
    ]
    result = _ledger(made_cell(_ten_samples(MIXED) | {"tasks": tasks}))
    assert _accounts(result) == pytest.approx(
        {
            ("run.user", None): 0.3,
            ("run.system", None): 0.1,
            ("run", None): 0.4,
            ("runq", None): 0.3,
            ("sleep", "IO/DataFileRead"): 0.12,
            ("client", None): 0.18,
            ("unaccounted", None): 0.0,
            ("block_io", None): None,
        },
        abs=1e-12,
    )
    memos = result.filter(scope="memo", who="rung")
    assert {(a, d): v for a, d, v in memos.select("account", "detail", "aas").rows()} == pytest.approx(
        {
            ("wall", None): 1.0,
            ("runnable", None): 0.5,
            ("label.runnable", "Client/ClientRead"): 0.1,
            ("label.run", "no wait event"): 0.3936723,
            ("label.run", "Client/ClientRead"): 0.0063277,
            ("state.run", "active"): 0.4,
            ("state.runq", "active"): 0.3,
            ("state.sleep", "active"): 0.3,
            ("naive.cpu", None): 0.4,
            ("naive.active", None): 1.0,
            ("margin.off", None): -0.2,
        },
        abs=1e-7,
    )
    queued = queue_labels(result)
    assert dict(queued.select("detail", "aas").rows()) == pytest.approx(
        {"no wait event": 0.1663277, "Client/ClientRead": 0.1336723}, abs=1e-7
    )
    assert queued["parent"].to_list() == ["runq", "runq"]


def test_one_tick_more_or_less_bounds_the_split():
    """run 100 ms, 5 ticks user, 5 system: user between 4/10 and 6/10 of it."""
    tasks = [
        task_row(10 * S, 0, 0),
        task_row(20 * S, S // 10, 0, user_ns=50_000_000, system_ns=50_000_000),
    ]
    row = _ledger(made_cell(_ten_samples(MIXED) | {"tasks": tasks})).filter(scope="rung", account="run.user")
    assert row.select("aas", "low", "high").row(0) == pytest.approx((0.005, 0.004, 0.006))


def test_without_a_tick_user_and_system_time_are_unknown():
    tasks = [task_row(10 * S, 0, 0), task_row(20 * S, S // 100, 0)]
    row = _ledger(made_cell(_ten_samples(MIXED) | {"tasks": tasks})).filter(scope="rung", account="run.user")
    assert row.select("aas", "low", "high", "status").row(0) == (None, 0.0, 0.001, "no tick seen")


def test_on_another_host_run_and_queue_are_unknown_and_labels_are_no_cpu():
    states = [(None, wait) for _, wait in MIXED]
    tasks = [task_row(t * S, None, None, status="not here", start_ticks=None) for t in (10, 20)]
    result = _ledger(made_cell(_ten_samples(states) | {"tasks": tasks}))
    assert _accounts(result) == pytest.approx(
        {
            ("run.user", None): None,
            ("run.system", None): None,
            ("run", None): None,
            ("runq", None): None,
            ("sleep", "IO/DataFileRead"): 0.2,
            ("client", None): 0.4,
            ("active without wait event", None): 0.4,
            ("unaccounted", None): 0.0,
            ("block_io", None): None,
        },
        abs=1e-9,
    )
    rung = result.filter(scope="rung")
    assert set(rung.filter(account="run")["status"]) == {"not here"}
    assert set(rung.filter(account="sleep")["source"]) == {"activity samples, the server's word alone"}


def test_without_samples_waits_are_unknown_and_the_rest_is_unaccounted():
    tasks = [task_row(10 * S, 0, 0), task_row(20 * S, 4 * S, 3 * S, user_ns=4 * S)]
    result = _ledger(made_cell({"tasks": tasks, "sessions": [session_row()]}))
    accounts = _accounts(result)
    assert accounts[("sleep", None)] is None
    assert accounts[("client", None)] is None
    assert accounts[("unaccounted", None)] == pytest.approx(0.3)


def test_parallel_workers_are_folded_into_their_leaders_session():
    """A worker of pid 100 ran 5 s of its 10: the session has two tasks, W 2.0, run 0.4 + 0.5."""
    tasks = [
        task_row(10 * S, 0, 0),
        task_row(20 * S, 4 * S, 0, user_ns=4 * S),
        task_row(10 * S, 0, 0, pid=200, tid=200, role="helper:parallel worker", session=None),
        task_row(
            20 * S, 5 * S, 0, user_ns=5 * S, pid=200, tid=200, role="helper:parallel worker", session=None
        ),
    ]
    tables = _ten_samples(MIXED)
    tables["samples"].append(
        sample_row(0, 10 * S, "R", pid=200, role="helper:parallel worker", session=None, leader_pid=100)
    )
    result = _ledger(made_cell(tables | {"tasks": tasks}))
    assert _accounts(result, "session")[("run", None)] == pytest.approx(0.9)
    assert result.filter(scope="memo", who="session", account="wall")["aas"].to_list() == pytest.approx([2.0])
    assert result.filter(scope="helper").is_empty()


def _group(key: str, values: tuple[int, int], **changes) -> list[dict]:
    head = {"scope": "server", "version": 2, "path": "/g", "key": key, "status": "ok"} | changes
    return [
        head | {"before_ns": t, "after_ns": t, "value": v}
        for t, v in zip((10 * S, 20 * S), values, strict=True)
    ]


@pytest.mark.parametrize(
    ("throttled", "usage", "bracket"),
    [
        (2 * S, 4 * S, (0.2, 0.3)),  # at least 2 of the 3 s in the run queue
        (9 * S, 4 * S, (0.3, 0.3)),  # more than all: per-CPU queues, never more than the run queue
        (0, 4 * S, (0.0, 0.0)),  # no throttling
        (2 * S, 8 * S, (0.0, 0.3)),  # half of the group's CPU is of tasks unknown: they may have borne it
    ],
)
def test_throttled_time_is_a_bracket_inside_the_run_queue(throttled: int, usage: int, bracket):
    tasks = [task_row(10 * S, 0, 0), task_row(20 * S, 4 * S, 3 * S, user_ns=4 * S)]
    cgroup = _group("throttled_ns", (0, throttled)) + _group("usage_ns", (0, usage))
    result = _ledger(made_cell(_ten_samples(MIXED) | {"tasks": tasks, "cgroup": cgroup}))
    row = result.filter(account="runq.throttled_bracket")
    assert row.select("low", "high").row(0) == pytest.approx(bracket)
    assert row["aas"].to_list() == [None], "a bracket, no value: never added"


@pytest.mark.parametrize("servers", [0, None], ids=["counted", "root"])
def test_a_group_of_sessions_alone_adds_all_of_its_throttled_time(servers: int | None):
    """The server's own group has no quota, or is the root, which counts none; the session's has 1 s of it."""
    tasks = [task_row(10 * S, 0, 0), task_row(20 * S, 4 * S, 3 * S, user_ns=4 * S)]
    own = _group("throttled_ns", (0, 1 * S), scope="sessions", path="/own")
    cgroup = own + ([] if servers is None else _group("throttled_ns", (0, servers)))
    result = _ledger(made_cell(_ten_samples(MIXED) | {"tasks": tasks, "cgroup": cgroup}))
    row = result.filter(account="runq.throttled_bracket")
    assert row.select("low", "high").row(0) == pytest.approx((0.1, 0.3))


def test_a_throttled_group_that_sessions_share_with_others_may_have_throttled_none_or_all_of_their_wait():
    tasks = [task_row(10 * S, 0, 0), task_row(20 * S, 4 * S, 3 * S, user_ns=4 * S)]
    cgroup = _group("throttled_ns", (0, 0)) + _group("throttled_ns", (0, S), scope="shared", path="/both")
    result = _ledger(made_cell(_ten_samples(MIXED) | {"tasks": tasks, "cgroup": cgroup}))
    row = result.filter(account="runq.throttled_bracket")
    assert row.select("low", "high").row(0) == pytest.approx((0.0, 0.3))


@pytest.mark.parametrize(
    ("scope", "changes"),
    [
        ("shared", {"before_ns": 15 * S, "after_ns": 15 * S}),
        ("sessions", {"value": None, "status": "vanished"}),
        ("shared", {"value": None, "status": "not here"}),
        ("server", {"value": None, "status": "lost"}),
    ],
    ids=["met later", "removed", "outside of what is mounted", "a level of the server's"],
)
def test_a_group_that_was_not_read_over_the_whole_window_may_have_throttled_all_wait(
    scope: str, changes: dict
):
    tasks = [task_row(10 * S, 0, 0), task_row(20 * S, 4 * S, 3 * S, user_ns=4 * S)]
    first, last = _group("throttled_ns", (0, 0), scope=scope, path="/other")
    cgroup = [
        *_group("throttled_ns", (0, 0)),
        first | changes,
        last | {k: changes[k] for k in changes if k == "status"},
    ]
    if "status" in changes:
        cgroup[-1] |= {"value": None}
    result = _ledger(made_cell(_ten_samples(MIXED) | {"tasks": tasks, "cgroup": cgroup}))
    row = result.filter(account="runq.throttled_bracket")
    assert row.select("low", "high").row(0) == pytest.approx((0.0, 0.3))


def test_a_group_that_cannot_be_throttled_leaves_the_bracket_of_zero():
    """The root counts no throttling."""
    tasks = [task_row(10 * S, 0, 0), task_row(20 * S, 4 * S, 3 * S, user_ns=4 * S)]
    cgroup = _group("throttled_ns", (0, 0))
    cgroup += [r | {"value": None} for r in _group("throttled_ns", (0, 0), path="/", status="not supported")]
    result = _ledger(made_cell(_ten_samples(MIXED) | {"tasks": tasks, "cgroup": cgroup}))
    row = result.filter(account="runq.throttled_bracket")
    assert row.select("low", "high").row(0) == (0.0, 0.0)


@pytest.mark.parametrize(("state", "by"), [("T", "Signal"), ("t", "Signal"), ("F", "Frozen")])
def test_a_stopped_process_is_in_no_wait_of_its_own(state: str, by: str):
    samples = _ten_samples([(state, "Client/ClientRead")] * 5 + [("S", "Client/ClientRead")] * 5)
    tasks = [task_row(10 * S, 0, 0), task_row(20 * S, 0, 0)]
    rung = _accounts(_ledger(made_cell(samples | {"tasks": tasks})))
    assert rung["sleep", f"Stopped/{by}"] == pytest.approx(0.5, abs=0.01)
    assert rung["client", None] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilsons_interval_is_the_one_that_newcombe_published(hits: int, n: int, low: float, high: float):
    """R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 3."""
    bounds = wilson(pl.lit(hits / n), pl.lit(float(n)))
    result = pl.select(low=bounds[0], high=bounds[1]).row(0)
    assert result == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [
        (1, 29, 0.051 / 29, 0.1718),  # rare: Poisson's lower end, Wilson's upper end
        (2, 40, 0.355 / 40, None),
        (3, 40, 0.818 / 40, None),
        (39, 40, None, 1 - 0.051 / 40),
        (15, 148, 0.0624, 0.1605),  # Wilson's
        (0, 20, 0.0, 0.1611),
    ],
)
def test_rare_shares_have_the_interval_of_brown_cai_and_dasgupta(hits: int, n: int, low, high):
    """Statistical Science 16 (2001), table 5: 0.051, 0.355, 0.818 for 1, 2, 3 hits at 95 %."""
    result = interval(pl.Series([hits / n]), pl.Series([n]))
    for selected, published in zip(result, (low, high), strict=True):
        assert published is None or selected.item() == pytest.approx(published, abs=5e-5)


def test_unequal_weights_count_for_less():
    """Kish: weights 1, 1, 2 are (1 + 1 + 2)^2 / (1 + 1 + 4) = 2.67 samples."""
    assert pl.DataFrame({"w": [1, 1, 2]}).select(effective(pl.col("w"))).item() == pytest.approx(16 / 6)


LAWS = (
    "fake:cpus=4,cpu=10ms,wait=IO/DataFileRead:5ms,think=3ms,helper=checkpointer:0.1",
    "fake:cpus=2,cpu=20ms,wait=IO/DataFileRead:7ms,think=2ms,spread=0.5",
    "fake:cpus=2,cpu=5ms,lock=LWLock/WALWrite:3ms,think=1ms,quota=1.2,spread=0.3",
    "fake:cpus=3,cpu=30ms,wait=Lock/tuple:9ms+IO/WALSync:4ms,driver=1ms,spread=0.4",
)


@pytest.mark.whole
@pytest.mark.parametrize("dsn", LAWS)
def test_exact_accounts_are_the_truth(dsn: str):
    run = climb(dsn, [1, 2, 6])
    result = _ledger(*run.cells)
    for cell in run.cells:
        truth = run.server.truth(cell.id, cell.meta.t0_ns, cell.meta.t1_ns)
        selected = result.filter(cell=cell.id)
        for account in ("run", "runq"):
            exact = {n: getattr(t, account) / t.wall for n, t in truth.items()}
            rows = account_rows(selected, account, scope="session")
            assert dict(rows.select("session", "aas").rows()) == pytest.approx(exact, abs=1e-12)
            rung = account_rows(selected, account)["aas"].item()
            assert rung == pytest.approx(sum(exact.values()), abs=1e-9)


@pytest.mark.whole
@pytest.mark.parametrize("dsn", LAWS)
def test_dense_samples_come_near_the_truth(dsn: str):
    """500 samples a second, label and state together: every wait within 1.5 % of the sessions' time. Of 5,000
    samples of a session a share of one half has a standard error of 0.7 %, the sum of five one of 0.016."""
    run = climb(dsn + ",skew=0s", [5], hz=500.0)
    (cell,) = run.cells
    truth = run.server.truth(cell.id, cell.meta.t0_ns, cell.meta.t1_ns).values()
    result = _ledger(cell)
    rung = _accounts(result)
    waits = {f"{c}/{e}" for t in truth for c, e in t.sleep}
    for wait in waits:
        exact = sum(t.sleep.get(tuple(wait.split("/")), 0) for t in truth) / 10 / S
        assert rung[("sleep", wait)] == pytest.approx(exact, abs=0.015 * 5)
    assert rung[("client", None)] == pytest.approx(sum(t.client for t in truth) / 10 / S, abs=0.015 * 5)
    assert rung[("unaccounted", None)] == pytest.approx(0, abs=0.015 * 5)
    hidden = result.filter(scope="memo", who="rung", account="label.runnable")
    for detail, aas in hidden.select("detail", "aas").rows():
        exact = sum(t.queued_as.get(tuple(detail.split("/")), 0) for t in truth) / 10 / S
        assert aas == pytest.approx(exact, abs=0.015 * 5)


def test_sampled_accounts_hold_the_truth_in_their_intervals():
    """20 series of samples: the 95 % intervals of sleep and client hold the truth in at least 34 of 40."""
    run = climb("fake:cpus=2,cpu=20ms,wait=IO/DataFileRead:9ms,think=4ms,spread=0.5", [4])
    (cell,) = run.cells
    truth = run.server.truth(cell.id, cell.meta.t0_ns, cell.meta.t1_ns).values()
    exact = {
        "sleep": sum(sum(t.sleep.values()) for t in truth) / 10 / S,
        "client": sum(t.client for t in truth) / 10 / S,
    }
    result = _ledger(*(_named(sampled_again(run.server, cell, seed), f"again-{seed}") for seed in range(20)))
    rungs = result.filter(
        (pl.col("account") == "client") | (pl.col("detail") == "IO/DataFileRead"), scope="rung"
    )
    ends = rungs.select("account", "low", "high").rows()
    assert len(ends) == 40
    assert sum(low <= exact[account] <= high for account, low, high in ends) >= 34


def _named(cell: RawCell, name: str) -> RawCell:
    """Returns the cell under another name, so that one ledger keeps several apart."""
    own = cell.meta.cell.model_copy(update={"id": name})
    return RawCell(cell.meta.model_copy(update={"cell": own}), cell.tables)


def test_the_quota_bracket_holds_the_truth():
    run = climb("fake:cpus=2,cpu=20ms,quota=1.2,helper=checkpointer:0.1", [1, 3, 6])
    result = _ledger(*run.cells).filter(account="runq.throttled_bracket").sort("sessions")
    for cell, low, high in result.select("cell", "low", "high").rows():
        meta = next(c.meta for c in run.cells if c.id == cell)
        truth = run.server.truth(cell, meta.t0_ns, meta.t1_ns).values()
        assert low <= sum(t.throttled for t in truth) / 10 / S <= high
    assert result["low"][-1] > 0.1
