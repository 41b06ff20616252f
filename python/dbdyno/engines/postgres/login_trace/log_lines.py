"""Reads the lines that traced sessions wrote to the server's log.

Through the server if its logging collector writes the log, else from the file on this host that the server's
main process writes to.

PostgreSQL, "Error Reporting and Logging", 19.8: log_line_prefix, csvlog, jsonlog.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from psycopg import sql as pgsql

from dbdyno.engines.postgres import presence, sql
from dbdyno.engines.postgres.settings import Site
from dbdyno.kernel.numbers import number
from dbdyno.model.engine.login_tracing import TraceLog

MARKER = "dbdyno trace-logins:"
_MOST_BYTES = 32 << 20
_CSV_PID, _CSV_MESSAGE = 3, 13  # columns


def read(site: Site, pids: Sequence[int], *, marked: bool) -> TraceLog:
    """Returns the log lines of these processes. ``marked``: a session's lines begin with dbdyno's line
    about it."""
    row = site.connection().execute(sql.text("login_trace_log").encode()).fetchone() or ("", "", "", None)
    destination, prefix, directory, current = (str(v) if v is not None else "" for v in row)
    where, text = _text(site, directory, current)
    find = f"grep '{MARKER}' {where}" if marked else f"grep -w {pids[0] if pids else 'PID'} {where}"
    if text is None:
        where = where or f"log_destination = {destination}, beyond the server's logging collector"
        grep = f"grep '{MARKER}'" if marked else f"grep -w {pids[0] if pids else 'PID'}"
        hint = f"journalctl -t postgres | {grep}" if "syslog" in destination else f"{grep} LOGFILE"
        return TraceLog(where, {}, "the server's log cannot be read from here: look on its host", hint)
    if not current.endswith((".csv", ".json")) and not re.search(r"%-?\d*[pc]", prefix):
        why = "log_line_prefix has neither %p nor %c: lines do not say which process wrote them"
        return TraceLog(where, {}, f"{why}; set log_line_prefix = '%m [%p] ' and trace again", find)
    parts = _parser(current, prefix)(text)
    return TraceLog(where, _lines_by_pid(parts, set(pids), marked=marked), "", find)


def _text(site: Site, directory: str, current: str) -> tuple[str, str | None]:
    """Returns the log's path and its last bytes; None instead of these if the log cannot be read."""
    if current:
        path = current if current.startswith("/") else f"{directory}/{current}"
        asking = sql.fill("login_trace_log_part", file=pgsql.Literal(path).as_string(), most=_MOST_BYTES)
        row = site.connection().execute(asking.encode()).fetchone()
        return path, None if row is None else bytes(row[0]).decode("utf-8", "replace")
    if site.instance is not None:
        return _read_here(site.instance.log)
    seen = presence.presence(site.connection())
    return ("", None) if seen.main_pid is None else _read_here(Path(f"/proc/{seen.main_pid}/fd/2"))


def _read_here(path: Path) -> tuple[str, str | None]:
    """Returns a file of this host with its last bytes. None if it is a terminal or pipe, or may not be
    opened."""
    shown = str(path)
    try:
        shown = str(path.readlink()) if path.is_symlink() else shown
        if not path.is_file():
            return "", None
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _MOST_BYTES))
            return shown, file.read().decode("utf-8", "replace")
    except OSError:
        return shown if shown.startswith("/") and "/fd/" not in shown else "", None


def _lines_by_pid(parts: Iterator[tuple[int, str]], pids: set[int], *, marked: bool) -> dict[int, list[str]]:
    """Returns lines by pid. If a pid was reused, returns those since dbdyno's latest line about it."""
    lines_by_pid: dict[int, list[str]] = {}
    for pid, text in parts:
        if pid not in pids:
            continue
        if marked and f"{MARKER} process {pid} is session" in text:
            lines_by_pid[pid] = []
        if not marked or pid in lines_by_pid:
            lines_by_pid.setdefault(pid, []).append(text)
    return lines_by_pid


def _parser(file: str, prefix: str) -> Callable[[str], Iterator[tuple[int, str]]]:
    if file.endswith(".json"):
        return _json_messages
    if file.endswith(".csv"):
        return _csv_messages
    return lambda text: _plain_messages(text, _prefix_pattern(prefix))


def _plain_messages(text: str, begins: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yields (pid, message with its continuation lines)."""
    pid, lines = 0, list[str]()
    for line in text.split("\n"):
        if (match := begins.match(line)) is not None:
            yield pid, "\n".join(lines)
            pid, lines = _pid(match), []
        lines.append(line)
    yield pid, "\n".join(lines)


def _pid(match: re.Match[str]) -> int:
    groups = match.groupdict()
    return int(groups["pid"]) if "pid" in groups else int(groups["session"].partition(".")[2], 16)


def _prefix_pattern(prefix: str) -> re.Pattern[str]:
    """Returns a pattern for the first line of a message, with the groups pid or session of the prefix.

    >>> _prefix_pattern("%m [%p] %q%u@%d ").match("2026-11-23 21:00:00.1 UTC [4711] app@shop LOG:  x")["pid"]
    '4711'
    """
    pattern, at, seen = "", 0, set[str]()
    for escape in re.finditer(r"%(-?\d*)([a-zA-Z%])", prefix):
        pattern += re.escape(prefix[at : escape.start()])
        at = escape.end()
        known = {"p": r"\s*(?P<pid>\d+)\s*", "c": r"(?P<session>[0-9a-f]+\.[0-9a-f]+)\s*", "q": "", "%": "%"}
        piece = known.get(escape[2], ".*?")
        pattern += (
            re.sub(r"\?P<\w+>", "?:", piece) if escape[2] in seen else piece
        )  # a group may be named only once
        seen.add(escape[2])
    return re.compile(pattern + re.escape(prefix[at:]) + r"[A-Z]+\d?:  ")


def _csv_messages(text: str) -> Iterator[tuple[int, str]]:
    for row in csv.reader(io.StringIO(text)):
        if len(row) > _CSV_MESSAGE and (pid := number(row[_CSV_PID])) is not None:
            yield pid, _message(row[0], row[11], row[_CSV_MESSAGE], row[_CSV_MESSAGE + 1])


def _json_messages(text: str) -> Iterator[tuple[int, str]]:
    for line in text.split("\n"):
        try:
            record = json.loads(line)
        except ValueError:  # the first line may be cut off
            continue
        if isinstance(record, dict) and isinstance(record.get("pid"), int):
            values = (
                str(record.get(key, "")) for key in ("timestamp", "error_severity", "message", "detail")
            )
            yield record["pid"], _message(*values)


def _message(at: str, severity: str, message: str, detail: str) -> str:
    return f"{at} {severity}:  {message}" + (f"\n\tDETAIL:  {detail}" if detail else "")
