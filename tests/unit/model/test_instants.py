"""Every time of a raw table is an instant of CLOCK_MONOTONIC or of the wall clock, or a duration."""

from __future__ import annotations

import re

from dbdyno.model.schema.instants import DURATIONS, EXCEPT, INSTANTS, WALL_CLOCK, instants
from dbdyno.model.schema.tables import RAW

TIME = re.compile(r".*_ns$")


def test_every_time_column_is_an_instant_or_a_duration() -> None:
    names = {c.name for columns in RAW.values() for c in columns if TIME.match(c.name)}
    kinds = [INSTANTS, WALL_CLOCK, DURATIONS]
    assert {n for n in names if sum(n in kind for kind in kinds) != 1} == set()
    assert set().union(*kinds) - names == set(), "no table has these"
    assert {(table, name) for table, name in EXCEPT if name in {c.name for c in RAW[table]}} == EXCEPT


def test_instants_are_whole_numbers_and_their_words_agree() -> None:
    for table, columns in RAW.items():
        for c in columns:
            if c.name in instants(table):
                assert c.type == "i64"
                assert not re.match("(sum|duration|time (of|on|in)|how long|shortest|longest)", c.doc), c
    assert instants("sessions") == {"began_ns", "first_start_ns", "last_end_ns"}
    assert "exec_ns" in instants("executions") and "exec_ns" not in instants("statement_reads")
