"""Lines that traced sessions wrote to the server's log, where it can be read.

Through the server, which has the files of its logging collector, or here, where the log is what the server's
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
    """``marked``: a session's lines begin with the one that says that it was caught."""
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
    return TraceLog(where, _of(parts, set(pids), marked=marked), "", find)


def _text(site: Site, directory: str, current: str) -> tuple[str, str | None]:
    """(where the log is, its end); None: it cannot be read."""
    if current:
        path = current if current.startswith("/") else f"{directory}/{current}"
        asking = sql.fill("login_trace_log_part", file=pgsql.Literal(path).as_string(), most=_MOST_BYTES)
        row = site.connection().execute(asking.encode()).fetchone()
        return path, None if row is None else bytes(row[0]).decode("utf-8", "replace")
    if site.instance is not None:
        return _here(site.instance.log)
    seen = presence.presence(site.connection())
    return ("", None) if seen.main_pid is None else _here(Path(f"/proc/{seen.main_pid}/fd/2"))


def _here(path: Path) -> tuple[str, str | None]:
    """A file of this host; a terminal, a pipe and what may not be opened are none."""
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


def _of(parts: Iterator[tuple[int, str]], pids: set[int], *, marked: bool) -> dict[int, list[str]]:
    """For a process number that was used again, the lines since it was last caught."""
    found: dict[int, list[str]] = {}
    for pid, text in parts:
        if pid not in pids:
            continue
        if marked and f"{MARKER} process {pid} is session" in text:
            found[pid] = []
        if not marked or pid in found:
            found.setdefault(pid, []).append(text)
    return found


def _parser(file: str, prefix: str) -> Callable[[str], Iterator[tuple[int, str]]]:
    if file.endswith(".json"):
        return _json
    if file.endswith(".csv"):
        return _csv
    return lambda text: _plain(text, _pattern(prefix))


def _plain(text: str, begins: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """(process, message with the lines that continue it)."""
    pid, lines = 0, list[str]()
    for line in text.split("\n"):
        if (found := begins.match(line)) is not None:
            yield pid, "\n".join(lines)
            pid, lines = _pid(found), []
        lines.append(line)
    yield pid, "\n".join(lines)


def _pid(found: re.Match[str]) -> int:
    named = found.groupdict()
    return int(named["pid"]) if "pid" in named else int(named["session"].partition(".")[2], 16)


def _pattern(prefix: str) -> re.Pattern[str]:
    """The parts of a line that begins a message.

    >>> _pattern("%m [%p] %q%u@%d ").match("2026-11-23 21:00:00.1 UTC [4711] app@shop LOG:  x")["pid"]
    '4711'
    """
    made, at, seen = "", 0, set[str]()
    for found in re.finditer(r"%(-?\d*)([a-zA-Z%])", prefix):
        made += re.escape(prefix[at : found.start()])
        at = found.end()
        known = {"p": r"\s*(?P<pid>\d+)\s*", "c": r"(?P<session>[0-9a-f]+\.[0-9a-f]+)\s*", "q": "", "%": "%"}
        piece = known.get(found[2], ".*?")
        made += re.sub(r"\?P<\w+>", "?:", piece) if found[2] in seen else piece  # a group's name stands once
        seen.add(found[2])
    return re.compile(made + re.escape(prefix[at:]) + r"[A-Z]+\d?:  ")


def _csv(text: str) -> Iterator[tuple[int, str]]:
    for row in csv.reader(io.StringIO(text)):
        if len(row) > _CSV_MESSAGE and (pid := number(row[_CSV_PID])) is not None:
            yield pid, _message(row[0], row[11], row[_CSV_MESSAGE], row[_CSV_MESSAGE + 1])


def _json(text: str) -> Iterator[tuple[int, str]]:
    for line in text.split("\n"):
        try:
            one = json.loads(line)
        except ValueError:  # the first one may be cut
            continue
        if isinstance(one, dict) and isinstance(one.get("pid"), int):
            said = (str(one.get(key, "")) for key in ("timestamp", "error_severity", "message", "detail"))
            yield one["pid"], _message(*said)


def _message(at: str, severity: str, message: str, detail: str) -> str:
    return f"{at} {severity}:  {message}" + (f"\n\tDETAIL:  {detail}" if detail else "")
