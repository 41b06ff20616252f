"""Statements of another session at known times of a load."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.waiting import eventually


@contextmanager
def disturbed(dsn: str, load: str, *steps: tuple[float, str]) -> Iterator[list[float]]:
    """Executes in another session, once sessions execute what begins with ``load``: a pause, a statement, a
    pause, a statement, ... Yields the times at which each statement began, as time.monotonic has it."""
    over = threading.Event()
    times: list[float] = []

    def work() -> None:
        with psycopg.connect(dsn, autocommit=True, application_name="disturber") as session:
            busy = "select count(*) > 1 from pg_stat_activity where query like %s"
            eventually(lambda: session.execute(busy, [f"{load}%"]).fetchone() == (True,))
            for before_s, statement in steps:
                if over.wait(before_s):
                    return
                times.append(time.monotonic())
                session.execute(statement.encode())

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield times
    finally:
        over.set()
        thread.join()
