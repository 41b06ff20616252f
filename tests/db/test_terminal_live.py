"""Hostile names of roles, databases and applications, and texts of queries, on a terminal."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.on_terminal import STEERING, obeyed, on_terminal

NAME = f"{STEERING}\nr"  # 63 bytes at most


@pytest.mark.parametrize("words", [(), ("--lines",)], ids=["live", "lines"])
def test_names_in_the_live_view_do_not_steer(dsn18: str, tmp_path: Path, words: tuple[str, ...]) -> None:
    role = sql.Identifier(NAME)
    with psycopg.connect(dsn18, autocommit=True) as connection:
        connection.execute(sql.SQL("create role {} superuser login").format(role))
        connection.execute(sql.SQL("create database {}").format(role))
        try:
            with psycopg.connect(dsn18, user=NAME, dbname=NAME, application_name=STEERING) as other:
                query = sql.SQL("select {}, pg_sleep(0)").format(sql.Literal(STEERING))
                other.execute(query)
                env = {"DBDYNO_STORE": str(tmp_path / "store")}
                code, written = on_terminal(
                    "observe", "--dsn", dsn18, "--for", "2s", *words, columns=150, env=env, seconds=120
                )
            assert code == 0, written
            assert obeyed(written) == []
            assert "␛]0;owned" in written or words
        finally:
            connection.execute(sql.SQL("drop database {} with (force)").format(role))
            connection.execute(sql.SQL("drop role {}").format(role))
