"""Which command of a script is which statement of the server, and what a call of it reads."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from dbdyno.account.script_statements import normalised, script_statements, with_work
from dbdyno.model.schema.tables import Tables, rows

HEAD = {"cell": "c1", "workload": "w", "variant": "base", "sessions": 1, "repeat": 1}

PAIRS = (
    ("select abalance from a where aid = :aid", "SELECT abalance FROM a WHERE aid = $1"),
    ("select 'it''s', 1.5e3, x1 from t2 -- why", "select $1, $2, x1\nfrom t2"),
    ("select (:name)::bigint::text", "select ($1)::bigint::text"),
    ("select price as price2 from p", "select price as price1 from p"),
    ("select 1 where x in (1, 2, :c)", "select $1 where x in ($2 /*, ... */)"),
    ("end", "COMMIT"),
    ("update t set a = a + :d where b=-5", "update t set a = a + $1 where b=-$2"),
)
"""Statements as in a script, and as PostgreSQL 15 and 18 keep them in pg_stat_statements."""


@pytest.mark.parametrize(("written", "kept"), PAIRS)
def test_a_statement_of_a_script_is_found_among_the_servers(written: str, kept: str) -> None:
    assert normalised(written) == normalised(kept)


@pytest.mark.parametrize("other", ["select b from a where aid = $1", "select abalance from a where id = $1"])
def test_other_columns_are_other_statements(other: str) -> None:
    assert normalised(other) != normalised(PAIRS[0][0])


def _tables(
    *commands: tuple[int, str, int], statements: tuple[tuple[int, str, int, int, int], ...]
) -> Tables:
    """``commands``: script, text, executions; ``statements``: id, text, calls, blocks, rows."""
    none = {
        "failures": 0,
        "retries": 0,
        "total_ns": None,
        "max_ns": None,
        "mean_ns": None,
        "time_share": None,
    }
    calls = {s: max(n for script, _, n in commands if script == s) for s, _, _ in commands}
    command_rates: list[dict[str, Any]] = [
        HEAD | none | {"script": s, "name": f"s{s}", "command": i, "line": i, "text": text, "executions": n}
        for i, (s, text, n) in enumerate(commands)
    ]
    same = {"rank": 1, "toplevel": True, "status": "ok", "source": "x", "wall_s": 1.0}
    return {
        "command_rates": rows("command_rates", command_rates),
        "script_rates": _scripts(calls),
        "statement_texts": rows(
            "statement_texts",
            [{"query_id": q, "text": text, "length": len(text)} for q, text, *_ in statements],
        ),
        "statements": rows(
            "statements",
            [
                HEAD | same | {"query_id": q, "calls": n, "shared_blks_hit": blocks, "rows": r}
                for q, _, n, blocks, r in statements
            ],
        ),
    }


def _scripts(calls: dict[int, int]) -> pl.DataFrame:
    zero = {"weight": 1, "errors": 0, "retried": 0, "retries": 0, "in_call_ns": 0}
    return rows(
        "script_rates", [HEAD | zero | {"script": s, "name": f"s{s}", "calls": n} for s, n in calls.items()]
    )


def test_work_of_a_statement_that_two_scripts_send_is_divided_by_their_executions() -> None:
    """Ten executions of id 1 read 30 blocks; script 0 sends it, script 1 does not."""
    tables = _tables(
        (0, "\\set a random(1, 9)", 5), (0, "begin", 5), (0, "select :a", 5), (0, "select :a + 0", 5),
        (1, "select x from t where x = :a", 4),
        statements=(
            (1, "select $1", 10, 30, 10), (2, "select $1 + $2", 10, 50, 10),
            (3, "select x from t where x = $1", 8, 8, 16),
        ),
    )  # fmt: skip
    work = with_work(tables).sort("script")
    assert work["lio_per_call"].to_list() == [pytest.approx(3 + 5), pytest.approx(1)]
    assert work["rows_per_call"].to_list() == [2.0, 2.0]


def test_a_shared_statement_belongs_to_each_command_in_part() -> None:
    tables = _tables((0, "select 1", 3), (1, "select :b", 9), statements=((7, "select $1", 24, 48, 24),))
    result = script_statements(tables["command_rates"], tables["statement_texts"]).sort("script")
    assert result["part"].to_list() == [0.25, 0.75]
    assert with_work(tables)["lio_per_call"].to_list() == [2.0, 2.0]


def test_work_is_unknown_where_a_statement_is_not_counted_but_for_begin_and_commit() -> None:
    known = (1, "select $1", 10, 30, 10)
    whole = _tables((0, "begin", 5), (0, "select 1", 5), (0, "end", 5), statements=(known,))
    assert with_work(whole)["lio_per_call"].to_list() == [3.0]
    part = _tables((0, "select 1", 5), (0, "select x from y", 5), statements=(known,))
    assert with_work(part)["lio_per_call"].to_list() == [None]


def test_several_queries_of_one_command_are_statements_of_their_own() -> None:
    both = _tables(
        (0, "select 1 \\; select x from y", 5),
        statements=(
            (1, "select $1", 5, 10, 5),
            (2, "select x from y", 5, 20, 5),
        ),
    )
    assert with_work(both)["lio_per_call"].to_list() == [6.0]
