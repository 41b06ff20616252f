"""Session numbers that hold over all windows, whatever the watches called them."""

from __future__ import annotations

from typing import Any

import polars as pl

from dbdyno.conduct.measure.observed import Numbers
from dbdyno.model.schema.tables import empty, rows

Tables = dict[str, pl.DataFrame]


def tables(*backends: tuple[int, int, int | None], sample: int = 0) -> Tables:
    """Returns tables of one sample with these (session, pid, start_ticks)."""
    blank: dict[str, Any] = {
        "sql_before_ns": 1,
        "sql_after_ns": 2,
        "role": "session",
        "via": "sql",
        "status": "ok",
    }
    samples = [{**blank, "sample": sample, "session": n, "pid": p, "start_ticks": t} for n, p, t in backends]
    return {
        "samples": rows("samples", samples),
        "tasks": empty("tasks"),
        "traced": empty("traced"),
        "waits": empty("waits"),
        "syscalls": empty("syscalls"),
    }


def numbers_in(sampled: Tables) -> dict[int, int]:
    return dict(sampled["samples"].select("pid", "session").iter_rows())


def test_two_watches_that_met_newcomers_in_another_order_agree() -> None:
    numbers = Numbers()
    first = numbers.of(tables((0, 100, 5), (1, 200, 6), (2, 300, 7)))
    assert numbers_in(first) == {100: 0, 200: 1, 300: 2}
    second = numbers.of(tables((0, 100, 5), (1, 300, 7), (2, 200, 6)))
    assert numbers_in(second) == {100: 0, 200: 1, 300: 2}


def test_a_pid_that_is_used_again_is_another_session() -> None:
    numbers = Numbers()
    numbers.of(tables((0, 100, 5), (1, 200, 6)))
    assert numbers_in(numbers.of(tables((0, 100, 50)))) == {100: 2}
    assert numbers.met == 3


def test_a_number_is_never_given_twice_even_if_its_session_ended() -> None:
    numbers = Numbers()
    numbers.of(tables((0, 100, 5)))
    numbers.of(tables())
    assert numbers_in(numbers.of(tables((0, 200, 6)))) == {200: 1}


def test_a_session_whose_start_time_becomes_known_stays_the_same() -> None:
    numbers = Numbers()
    numbers.of(tables((0, 100, None), (1, 200, 6)))
    assert numbers_in(numbers.of(tables((0, 200, 6), (1, 100, 5)))) == {100: 0, 200: 1}


def test_the_next_watch_gets_the_numbers_of_the_latest_sample_only() -> None:
    numbers = Numbers()
    old, new = tables((0, 100, 5), (1, 200, 6)), tables((1, 200, 6), sample=1)
    recent = {name: pl.concat([frame, new[name]]) for name, frame in old.items()}
    assert numbers.alive(recent) == {(200, 200): 1}
