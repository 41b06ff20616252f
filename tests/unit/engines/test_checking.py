"""Commits by script, compared with calls."""

from __future__ import annotations

import polars as pl

from dbdyno.engines.postgres.checking import counted


def test_commits_are_counted_against_calls_and_unknown_ones_widen() -> None:
    tables = {
        "scripts": pl.DataFrame(
            {"script": [0, 1, 0], "name": ["a", "b", "a"], "calls": [5, 1, 2], "settle_calls": [1, 0, 0]}
        ),
        "script_errors": pl.DataFrame(
            {"script": [0, 0, 1], "sqlstate": ["08006", "40001", "40001"], "count": [2, 9, 9]}
        ),
        "sessions": pl.DataFrame({"end_reason": ["deadline", "lost"]}),
    }
    checks = counted({"a": 10, "b": 3, "c": 0}, {"a": 20, "b": 3, "c": 0}, tables)
    assert [(c.low, c.high, c.found, c.holds) for c in checks] == [
        (8, 11, 10, True),
        (1, 2, 0, False),
        (0, 1, 0, True),
    ]
