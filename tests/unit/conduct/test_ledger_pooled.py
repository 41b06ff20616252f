"""Behind a pooler three sessions take turns on one server connection; rows are written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from tests.fake_engine import FakeServer
from tests.fakery import (
    MS,
    S,
    environment_of,
    info_of,
    made_cell,
    sample_row,
    sampler_row,
    session_row,
    task_row,
)

from dbdyno.account import window
from dbdyno.account.ledger import accounts as derived
from dbdyno.account.ledger import cross_check, ledger
from dbdyno.conduct.derive.derive import derive
from dbdyno.model.engine.protocols import Target
from dbdyno.model.plan.plan import Experiment, Plan
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.raw import RawCell

pytestmark = pytest.mark.queries

KINDS = {"pool_waiting": "gauge", "pool_size": "gauge", "pool_read_ns": "gauge"}


def counter_rows(t0: dict[str, float | None], t1: dict[str, float | None]) -> Iterator[dict[str, Any]]:
    """Yields the pooler's counters, read at 10 s and 20 s; a value is None if the pooler did not answer."""
    for phase, at_ns, values in (("t0", 10 * S, t0), ("t1", 20 * S, t1)):
        for name, value in values.items():
            yield {
                "before_ns": at_ns - 1000,
                "after_ns": at_ns + 1000,
                "phase": phase,
                "scope": "pooler",
                "name": name,
                "kind": KINDS.get(name, "counter"),
                "unit": "ns",
                "value": value,
                "status": "ok" if value is not None else "lost",
            }


def pooler(wait_s: float | None = 18.0, waited_s: float = 0.0, waiting: int = 0) -> list[dict[str, Any]]:
    """Returns counters of 10 s with ``wait_s`` in the queue and ``waited_s`` for the client in 100
    transactions."""
    before = {"pool_wait_ns": 5.0 * S, "pool_query_time_ns": 0.0, "pool_transaction_time_ns": 0.0}
    after: dict[str, float | None] = {
        "pool_wait_ns": None if wait_s is None else (5 + wait_s) * S,
        "pool_query_time_ns": 27.0 * S,
        "pool_transaction_time_ns": (27 + waited_s) * S,
        "pool_transactions": 100.0,
    }
    gauges = {"pool_waiting": float(waiting), "pool_size": 1.0, "pool_read_ns": 5.0 * MS}
    return [*counter_rows({**before, "pool_transactions": 0.0, **gauges}, {**after, **gauges})]


def cell(**changes: Any) -> RawCell:
    """The connection (pid 100) ran 4 s, queued 1 s, slept 3 s in I/O and 2 s for work; sessions had 27 s of
    calls and 3 s between."""
    tasks = [
        task_row(10 * S, 0, 0),
        task_row(20 * S, 4 * S, S, user_ns=3 * S, system_ns=S),
        *(task_row(t * S, 0, 0, pid=300, tid=300, role="pooler", session=None) for t in (10,)),
        task_row(20 * S, S // 2, S // 4, pid=300, tid=300, role="pooler", session=None),
    ]
    states = [("R", None)] * 5 + [("S", "IO/DataFileRead")] * 3 + [("S", "Client/ClientRead")] * 2
    times_ns = [10 * S + S // 2 + i * S for i in range(10)]
    tables: dict[str, Any] = {
        "tasks": tasks,
        "samples": [
            sample_row(i, t, s, w) for i, (t, (s, w)) in enumerate(zip(times_ns, states, strict=True))
        ],
        "sampler": [sampler_row(i, t) for i, t in enumerate(times_ns)],
        "sessions": [session_row(n, backend_pid=None, in_call_ns=9 * S) for n in range(3)],
        "counters": pooler(),
    }
    return made_cell({**tables, **changes}, sessions=3)


def accounts(raw: RawCell, scope: str = "rung") -> dict[str, float | None]:
    rows = ledger(window.cut([raw])).filter(scope=scope)
    return dict(rows.select("account", "aas").rows())


def test_the_sessions_time_is_queue_service_client_and_the_rest() -> None:
    """3 sessions x 10 s = 3 s between calls + 18 s queue + 4 run + 1 run queue + 3 asleep + 1 on the way."""
    by_account = accounts(cell())
    known = ("client", "pool.queue", "run", "runq", "sleep", "unaccounted")
    assert [by_account[a] for a in known] == pytest.approx([0.3, 1.8, 0.4, 0.1, 0.3, 0.1])


def test_the_connections_own_time_is_a_memo() -> None:
    by_account = accounts(cell(), "memo")
    memos = [by_account[a] for a in ("wall", "pool.connections", "pool.idle", "client.between")]
    assert memos == pytest.approx([3.0, 1.0, 0.2, 0.3])


def test_the_poolers_own_cpu_is_outside_the_sessions_time() -> None:
    rows = ledger(window.cut([cell()])).filter(scope="beside", who="pooler")
    assert dict(rows.drop_nulls("aas").select("account", "aas").rows()) == pytest.approx(
        {"run": 0.05, "runq": 0.025}
    )


def test_a_transaction_that_waits_for_its_client_is_at_the_client() -> None:
    by_account = accounts(cell(counters=pooler(waited_s=1.0)))
    assert (by_account["client"], by_account["unaccounted"]) == pytest.approx((0.4, 0.0))
    rows = ledger(window.cut([cell(counters=pooler(waited_s=1.0))])).filter(scope="rung", account="client")
    # One transaction of 10 ms of it on the one connection may have been under way at either end.
    assert rows.select("low", "high").row(0) == pytest.approx((0.399, 0.401))


def test_the_queue_is_uncertain_by_the_length_of_reads_while_clients_wait() -> None:
    """2 clients wait at both ends, while the reads take 5 ms: 20 ms of 10 s."""
    row = ledger(window.cut([cell(counters=pooler(waiting=2))])).filter(scope="rung", account="pool.queue")
    assert row.select("aas", "low", "high").row(0) == pytest.approx((1.8, 1.798, 1.802))


def test_a_pooler_that_does_not_answer_is_unknown_and_no_zero() -> None:
    raw = cell(counters=pooler(wait_s=None))
    row = ledger(window.cut([raw])).filter(scope="rung", account="pool.queue")
    assert row.select("aas", "status").row(0) == (None, "lost")
    assert accounts(raw)["unaccounted"] == pytest.approx(1.9)


def test_of_one_session_only_the_time_between_calls_is_known() -> None:
    rows = ledger(window.cut([cell()])).filter(scope="session", session=2)
    by_account = {a: (v, s) for a, v, s in rows.select("account", "aas", "status").rows()}
    assert by_account["run"] == (None, "shared") and by_account["pool.queue"] == (None, "shared")
    assert by_account["client"][0] == pytest.approx(0.1)
    assert by_account["unaccounted"][0] == pytest.approx(0.9)


def test_failed_calls_may_hide_in_the_time_at_the_client() -> None:
    sessions = [session_row(n, backend_pid=None, in_call_ns=9 * S, errors=1) for n in range(3)]
    rung = ledger(window.cut([cell(sessions=sessions)])).filter(scope="rung")
    client, left = (rung.filter(account=name).row(0, named=True) for name in ("client", "unaccounted"))
    sure = ledger(window.cut([cell()])).filter(scope="rung", account="unaccounted").row(0, named=True)
    assert (client["low"], client["high"]) == pytest.approx((0.0, 0.3))
    assert left["high"] == pytest.approx(sure["high"] + 0.3)


def test_a_parallel_worker_adds_its_time_to_both_sides() -> None:
    more = {"pid": 200, "tid": 200, "role": "helper:parallel worker", "session": None}
    tasks = [*cell().tables["tasks"].to_dicts(), task_row(10 * S, 0, 0, **more)]
    tasks.append(task_row(20 * S, 10 * S, 0, user_ns=10 * S, **more))
    samples = cell().tables["samples"].to_dicts()
    samples += [sample_row(i, 10 * S + S // 2 + i * S, "R", leader_pid=100, **_less(more)) for i in range(10)]
    by_account = accounts(cell(tasks=tasks, samples=samples))
    assert (by_account["run"], by_account["unaccounted"]) == pytest.approx((1.4, 0.1))


def _less(row: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in row.items() if k != "tid"}


def test_events_have_the_queue_and_not_the_connections_wait_for_work() -> None:
    events = derived(window.cut([cell()]))["events"]
    asleep = events.filter(pl.col("sleep") > 0).select("wait_class", "wait_event", "sleep").rows()
    assert sorted(asleep) == [
        ("IO", "DataFileRead", pytest.approx(0.3)),
        ("Pool", "Queue", pytest.approx(1.8)),
    ]
    assert set(events["scope"]) == {"rung"}


def test_the_drivers_db_time_is_held_against_queue_and_service() -> None:
    cut = window.cut([cell()])
    checked = cross_check(cut, ledger(cut)).filter(quantity="db_time")
    assert dict(checked.select("source", "value").rows()) == {
        "driver": pytest.approx(2.7),
        "ledger": pytest.approx(2.6),
        "engine counters": None,
    }


def test_cpu_per_call_is_that_of_the_connections() -> None:
    """4 s of CPU in 10 s at 3 calls a second."""
    rates = window.rates([cell()]).filter(name="cpu_per_call_ns")
    assert rates.filter(scope="rung")["value"].to_list() == pytest.approx([0.4 / 3 * S])
    assert rates.filter(scope="session").select("value", "status").unique().rows() == [(None, "shared")]


def test_strips_of_single_sessions_are_not_made_up() -> None:
    assert window.cut([cell()])["cut_bins"].is_empty()


def findings(raw: RawCell) -> dict[str, Claim]:
    server = FakeServer(Target())
    plan = Plan(
        experiment=Experiment(workload="lio"),
        cpus=4,
        call_target_ns=None,
        cells=(raw.meta.cell,),
        expected_ns=1,
    )
    results = derive(info_of(), plan, environment_of(server), [raw])
    assert results.tables["rungs"]["pool_queue_aas"].null_count() == 0
    return {f.id: f for f in results.findings}


def test_a_queue_that_is_the_largest_account_is_a_claim() -> None:
    claims = findings(cell())
    assert claims["pool-queue"].value.value == pytest.approx(1.8)
    assert "only server connection" in claims["pool-queue"].slots["connection"]
    assert claims["pool-queue"].slots["wall"] == pytest.approx(3.0)
    assert "unaccounted" not in claims and "ledger-closes" not in claims


def test_a_queue_that_is_not_the_largest_account_is_no_claim() -> None:
    claims = findings(cell(counters=pooler(wait_s=3.0)))
    assert "pool-queue" not in claims


def test_the_way_through_the_pooler_is_claimed_with_its_own_cpu() -> None:
    far, near = findings(cell(counters=pooler(wait_s=16.0))), findings(cell(counters=pooler(wait_s=18.5)))
    assert far["pool-way"].value.value == pytest.approx(0.1)
    assert (far["pool-way"].slots["run"], far["pool-way"].slots["runq"]) == pytest.approx((0.05, 0.025))
    assert "pool-way" not in near


@pytest.mark.parametrize(("used_s", "claimed"), [(9, True), (5, False)])
def test_a_pooler_that_uses_a_whole_cpu_is_a_claim(used_s: int, claimed: bool) -> None:
    tasks = [r for r in cell().tables["tasks"].to_dicts() if r["role"] != "pooler"]
    more = {"pid": 300, "tid": 300, "role": "pooler", "session": None}
    tasks += [task_row(10 * S, 0, 0, **more), task_row(20 * S, used_s * S, 0, **more)]
    assert ("pooler-busy" in findings(cell(tasks=tasks))) == claimed
