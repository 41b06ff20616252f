"""Of sessions of which one alone was heard of, the rung's accounts are that one's."""

import polars as pl
from tests.fakery import S, made_cell, session_row, task_row

from dbdyno.ledger import accounts
from dbdyno.window import cut


def test_a_rung_of_a_traced_and_a_lost_session_says_how_many_it_speaks_for():
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
    found = accounts(cut([cell]))["ledger"]
    row = found.filter(pl.col("account") == "client", scope="rung").select("aas", "low", "status").row(0)
    assert row == (0.0, 0.0, "1 of 2 tasks")
    assert found.filter(pl.col("account") == "client", scope="rung")["high"].item() >= 1.0
    lost = found.filter(pl.col("account") == "client", scope="session", session=1)
    assert lost.select("aas", "status").row(0) == (None, "lost")
