"""A rung whose sessions are all unknown but one has the accounts of that one."""

import polars as pl
import pytest
from tests.fakery import S, made_cell, sample_row, sampler_row, session_row, task_row

from dbdyno.account.ledger import accounts, cross_check
from dbdyno.account.window import cut
from dbdyno.model.results.session_time import base, served


def test_a_rung_of_a_traced_and_a_lost_session_has_the_number_of_its_sessions():
    who = {"pid": 100, "tid": 100, "session": 0, "start_ticks": 7}
    read = {"before_ns": 10 * S - 998, "after_ns": 10 * S + 1002, "run_ns": 1, "runq_ns": 0, "sleep_ns": 0}
    cell = made_cell(
        {
            "sessions": [session_row(0), session_row(1)],
            "tasks": [task_row(8 * S, 0, 0, **who, user_ns=0, system_ns=0, status="ok")],
            "traced": [who | read | {"role": "session", "status": "ok"}],
        },
        sessions=2,
    )
    result = accounts(cut([cell]))["ledger"]
    row = result.filter(pl.col("account") == "client", scope="rung").select("aas", "low", "status").row(0)
    assert row == (0.0, 0.0, "1 of 2 tasks")
    assert result.filter(pl.col("account") == "client", scope="rung")["high"].item() >= 1.0
    lost = result.filter(pl.col("account") == "client", scope="session", session=1)
    assert lost.select("aas", "status").row(0) == (None, "lost")


def _tables_of_two(own: bool, via: str = "sql") -> dict[str, pl.DataFrame]:
    """Sessions of 10 s, asleep for 9: the first is hidden; with ``own`` the second is in a lock."""
    tasks, samples = [], []
    for n in range(1 + own):
        who = {"pid": 100 + n, "tid": 100 + n, "session": n}
        tasks += [task_row(10 * S, 0, 0, **who), task_row(20 * S, S // 2, S // 2, **who)]
        keys = {"pid": 100 + n, "session": n}
        for i in range(20):
            at = 10 * S + i * S // 2 + S // 4
            seen = sample_row(i, at, "S", "Lock/tuple" if n else None)
            samples.append(seen | keys | {"state": "active" if n else "hidden"})
            if via == "memory":
                row = sample_row(i, at, "S", "Client/ClientRead", via="memory")
                samples.append(row | keys | {"state": None})
    sampler = [
        sampler_row(i, 10 * S + i * S // 2 + S // 4) | {"via": v}
        for v in dict.fromkeys(("sql", via))
        for i in range(20)
    ]
    sessions = [session_row(n) | {"backend_pid": 100 + n} for n in range(1 + own)]
    cell = made_cell(
        {"sessions": sessions, "tasks": tasks, "samples": samples, "sampler": sampler}, sessions=1 + own
    )
    tables = cut([cell])
    return tables | accounts(tables)


def _rung(tables: dict[str, pl.DataFrame], account: str) -> list[tuple[str | None, float | None, str]]:
    rows = tables["ledger"].filter(pl.col("account") == account, scope="rung")
    return rows.select("detail", "aas", "status").rows()


def test_hidden_sessions_do_not_count_as_active():
    tables = _tables_of_two(own=False)
    assert _rung(tables, "run")[0][1] == pytest.approx(0.05)
    for account in ("sleep", "client"):
        assert _rung(tables, account) == [(None, None, "hidden from this role")]
    assert _rung(tables, "unaccounted")[0][1] == pytest.approx(0.9)
    assert not tables["ledger"]["account"].str.starts_with("naive").any()
    assert served(tables).aas is None
    assert "hidden" in served(tables).status


def test_a_rung_with_hidden_sessions_has_figures_of_the_others_and_no_sum():
    tables = _tables_of_two(own=True)
    some = "1 of 2 sessions, others hidden from this role"
    ((detail, value, status),) = _rung(tables, "sleep")
    assert (detail, status, value) == ("Lock/tuple", some, pytest.approx(0.9))
    assert _rung(tables, "client") == [(None, None, some)]
    highest = tables["ledger"].filter(pl.col("account") == "sleep", scope="rung")["high"].item()
    assert highest >= 1.9, "the hidden session may have slept in it, too"
    assert served(tables).aas is None
    assert base(tables, {"sessions": 0}) == 0, "no share of an unknown sum"
    own = tables["ledger"].filter(pl.col("account") == "client", scope="session", session=1)
    assert own.select("aas", "status").row(0) == (0.0, "ok")


def test_waits_read_from_memory_are_known_of_hidden_sessions():
    tables = _tables_of_two(own=False, via="memory")
    assert _rung(tables, "client") == [(None, pytest.approx(0.9), "ok")]
    assert served(tables).aas == pytest.approx(0.1)
    states = tables["events"].filter(scope="rung")["state"].drop_nulls().to_list()
    assert states == [], "and their states are not"


def test_accounts_of_a_window_too_short_are_unknown_and_not_zero():
    """Two reads 0.3 s apart, and samples that met the session on a CPU each time."""
    tasks = [task_row(10 * S, 0, 0), task_row(10 * S + 3 * S // 10, S // 10, 0)]
    at = [10 * S + i * S // 20 + S // 40 for i in range(20)]
    samples = [sample_row(i, t, "R") for i, t in enumerate(at)]
    sampler = [sampler_row(i, t) for i, t in enumerate(at)]
    cell = made_cell(
        {"sessions": [session_row()], "tasks": tasks, "samples": samples, "sampler": sampler}, t1=11 * S
    )
    tables = accounts(cut([cell]))
    for account in ("run", "runq", "sleep", "client"):
        assert _rung(tables, account) == [(None, None, "too short")]


def test_a_window_too_short_for_any_sleep_is_read_by_the_trace():
    """Bracketed sleep may come out below 0, and no wait was refused."""
    who = {"pid": 100, "tid": 100, "session": 0, "start_ticks": 7, "role": "session", "status": "ok"}
    ends = [(10 * S, 0), (20 * S, 10 * S)]
    cell = made_cell(
        {
            "sessions": [session_row(0)],
            "tasks": [task_row(at, run, 0, **who) for at, run in ends],
            "traced": [
                {"before_ns": at, "after_ns": at, "run_ns": run, "runq_ns": 0, "sleep_ns": 0} | who
                for at, run in ends
            ],
        }
    )
    tables = cut([cell])
    tables["cut_traced"] = tables["cut_traced"].with_columns(sleep_ns=pl.lit(-5_000, pl.Int64))
    tables |= accounts(tables)
    read = cross_check(tables, tables["ledger"]).filter(quantity="db_time", source="scheduler trace")
    assert read.select("value", "status").row(0) == (pytest.approx(1.0), "ok")
