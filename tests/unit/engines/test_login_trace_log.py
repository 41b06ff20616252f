"""Reads a server's log by process: lines that PostgreSQL 18 wrote, in its three formats."""

from __future__ import annotations

import pytest

from dbdyno.engines.postgres.login_trace.log_lines import (
    _csv_messages,
    _json_messages,
    _lines_by_pid,
    _plain_messages,
    _prefix_pattern,
)

TEXT = """\
2026-11-23 21:51:48.907 UTC [3718] LOG:  of another process
2026-11-23 21:51:48.907 UTC [3719] LOG:  of the one before with this number
2026-11-23 21:51:48.908 UTC [3719] LOG:  dbdyno trace-logins: process 3719 is session 5 of role app (local)
2026-11-23 21:51:49.000 UTC [3719] LOG:  duration: 0.118 ms  statement: select 1,
	2
2026-11-23 21:51:49.001 UTC [3718] LOG:  of another process
2026-11-23 21:51:49.002 UTC [3719] DETAIL:  Parameters: $1 = '1'
"""
CSV = (
    '2026-11-23 21:51:49.000 UTC,"app","shop",3719,"[local]",65a.e87,3,"SELECT",2026-11-23 21:51:48 UTC,'
    '3/4,0,LOG,00000,"duration: 0.118 ms  statement: select ""a"",\n 2","Parameters: $1 = \'1\'",,,,'
    ',,,,"psql","client backend",,0\n'
)
JSON = (
    '{"timestamp":"2026-11-23 21:51:49.000 UTC","user":"app","pid":3719,"error_severity":"LOG",'
    '"message":"duration: 0.118 ms","detail":"Parameters: $1 = \'1\'"}\n'
)


def test_a_session_s_messages_begin_where_it_was_caught_with_the_lines_that_continue_them() -> None:
    messages = list(_plain_messages(TEXT, _prefix_pattern("%m [%p] ")))
    lines = _lines_by_pid(iter(messages), {3719}, marked=True)[3719]
    assert [text.split("] ")[1].split(":")[0] for text in lines] == ["LOG", "LOG", "DETAIL"]
    assert lines[1].endswith("select 1,\n\t2")
    assert len(_lines_by_pid(iter(messages), {3719}, marked=False)[3719]) == 4


@pytest.mark.parametrize(
    ("prefix", "line", "pid"),
    [
        ("%m [%p] ", "2026-11-23 21:51:49.000 UTC [3719] LOG:  x", 3719),
        ("%m [%p] %q%u@%d ", "2026-11-23 21:51:49.000 UTC [3719] app@shop LOG:  x", 3719),
        ("%t:%r:%u@%d:[%p]:", "2026-11-23 21:51:49 UTC:10.0.0.1(4711):app@shop:[3719]:LOG:  x", 3719),
        ("%c ", "65a1b2c3.e87 LOG:  x", 0xE87),
        ("%-8p|%p ", "3719    |3719 LOG:  x", 3719),
    ],
)
def test_the_process_of_a_line_is_read_after_any_prefix(prefix: str, line: str, pid: int) -> None:
    assert [p for p, _ in _plain_messages(line, _prefix_pattern(prefix))][-1] == pid


@pytest.mark.parametrize(("read", "text"), [(_csv_messages, CSV), (_json_messages, "cut off\n" + JSON)])
def test_logs_in_csv_and_json_are_read(read, text) -> None:  # type: ignore[no-untyped-def]
    ((pid, message),) = read(text)
    assert pid == 3719
    assert "LOG:  duration: 0.118 ms" in message
    assert message.endswith("DETAIL:  Parameters: $1 = '1'")
