"""Whether the server's counters of statements can tell those of a sampling connection from a user's."""

from __future__ import annotations

from typing import Any

from dbdyno.engines.postgres import observation, own_settings, sql


class Recording:
    """A connection that keeps what it is asked."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def execute(self, text: bytes) -> Recording:
        self.texts.append(text.decode())
        return self

    def fetchone(self) -> tuple[Any, ...]:
        return ("off",)


def test_each_statement_that_a_new_connection_sends_has_the_mark() -> None:
    parts = own_settings.statement(150000, None).split(";")
    assert len(parts) == 2
    assert all(map(sql.is_own, parts)), "the server counts each part of a message by itself"


def test_what_is_asked_before_each_window_has_the_mark() -> None:
    connection = Recording()
    assert observation.counted_to_begin(connection)["executions"] == 2  # type: ignore[arg-type]
    assert connection.texts and all(map(sql.is_own, connection.texts))
