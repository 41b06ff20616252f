"""Measures the cost of reading the clock on the server's machine, by PostgreSQL's pg_test_timing.

PostgreSQL, "pg_test_timing": up to 18 in microseconds as "Per loop time", from 19 on "Average loop time" for
each clock source. Runs on the server's host as the server's user, for a second; the figure is kept for a day,
until the host boots or changes its clock source.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from dbdyno.engines.postgres import versions
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.embedded import files
from dbdyno.engines.postgres.embedded.cluster import clean_environment
from dbdyno.kernel.private import make_private
from dbdyno.kernel.processes import boot_id
from dbdyno.model.errors import UsageError
from dbdyno.model.home import base_directory

_PROGRAM = "pg_test_timing"
_SECONDS = 1
_PATIENCE_S = 20  # from 19 on it measures up to three clock sources
_KEPT_S = 86_400  # a virtual machine may move to a host whose clock is slower, without a boot
_CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_LOOP = re.compile(r"^(?:Per|Average) loop time including overhead:\s*([\d.]+)\s*ns", re.MULTILINE)
_WORDS = re.compile(r"[\d.]+ ns a loop[\w (),.+]{0,300}")
_SOURCE = re.compile(r"^(?:System clock|Fast clock|Clock) source:\s*(.+?)\s*$", re.MULTILINE)
_BACKWARDS = re.compile(r"time (?:warp|going backward)|clock (?:is )?going backward", re.IGNORECASE)


def loop_times(text: str) -> list[tuple[str, float]]:
    """Returns (clock source, nanoseconds per loop) for each source in the output; source "" before 19."""
    sources = [(m.start(), m[1]) for m in _SOURCE.finditer(text)]
    return [
        (next((name for at, name in reversed(sources) if at < m.start()), ""), float(m[1]))
        for m in _LOOP.finditer(text)
    ]


def timing_overhead(bin_dir: Path, owner: Path | None = None) -> tuple[float | None, str]:
    """Returns (nanoseconds per loop, description). None, and the reason, if it cannot be measured. As
    root, runs as the owner of ``owner``."""
    program = bin_dir / _PROGRAM
    try:
        done = subprocess.run(
            [program, "-d", str(_SECONDS)],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_S,
            env=clean_environment(),
            cwd="/",
            **_as_owner(owner),  # type: ignore[call-overload]
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return None, f"{program} does not run: {e}"
    if _BACKWARDS.search(done.stdout + done.stderr):
        return None, "the clock goes backwards: no figure of timing can be trusted on this machine"
    loops = loop_times(done.stdout)
    if not loops:
        return None, f"{program} gives no figure (exit {done.returncode}): {done.stderr.strip()[:200]}"
    words = ", ".join(f"{ns:g} ns a loop{f' ({source})' if source else ''}" for source, ns in loops)
    return loops[0][1], words


def kept_overhead(bin_dir: Path, owner: Path, source: str) -> str:
    """Returns the description of :func:`timing_overhead` in this boot with this clock ``source`` of the
    kernel, at most a day old. Where nothing can be kept, it is measured each time."""
    kept = None
    with suppress(OSError, UsageError):
        kept = _place(bin_dir / _PROGRAM, source)
        if 0 <= time.time() - kept.stat().st_mtime < _KEPT_S:
            words = files.read(str(kept)) or ""
            if _WORDS.fullmatch(words):
                return words
    ns, words = timing_overhead(bin_dir, owner)
    if kept is not None and ns is not None:
        with suppress(OSError):
            files.write(str(kept), words)
    return words


def _place(program: Path, source: str) -> Path:
    """Returns the file that keeps the figure. Raises :class:`OSError`, :class:`UsageError`."""
    measured = f"{boot_id()} {source} {program} {program.stat().st_mtime_ns}"
    base = base_directory("XDG_CACHE_HOME", ".cache", "the clock's figure", "set XDG_CACHE_HOME")
    make_private(base / "dbdyno" / "clock")
    return base / "dbdyno" / "clock" / hashlib.sha256(measured.encode()).hexdigest()[:16]


def _as_owner(path: Path | None) -> dict[str, object]:
    """Returns arguments that make subprocess run as the owner of ``path``: never runs the server's
    programs as root."""
    if path is None or os.geteuid() != 0:
        return {}
    stat = path.stat()
    return {"user": stat.st_uid, "group": stat.st_gid, "extra_groups": []}


def clock_facts(connection: Connection, main_pid: int | None, bin_dir: Path | None) -> dict[str, str]:
    """Returns facts on the clock of a server on this host (``main_pid``). ``bin_dir`` has its programs, if
    known."""
    facts = _server_clock(connection)
    if main_pid is None:
        return facts
    process = Path(f"/proc/{main_pid}")
    if (source := _read(_CLOCK_SOURCE)) is not None:
        facts["clock source"] = source
    major = versions.major(connection)
    places = [p for p in _program_directories(process, major, bin_dir) if (p / _PROGRAM).is_file()]
    if not places:
        facts[_PROGRAM] = f"unknown: no program {_PROGRAM} of PostgreSQL {major} was found"
        return facts
    facts[_PROGRAM] = kept_overhead(places[0], process, facts.get("clock source", ""))
    return facts


def _server_clock(connection: Connection) -> dict[str, str]:
    """Returns the server's clock source, which it chooses itself from 19 on."""
    row = connection.execute("select pg_catalog.current_setting('timing_clock_source', true)").fetchone()
    return {"timing_clock_source": str(row[0])} if row and row[0] else {}


def _program_directories(process: Path, major: int, bin_dir: Path | None) -> Iterator[Path]:
    """Yields directories of programs: the server's own first, then those of its major version."""
    if bin_dir is not None:
        yield bin_dir
    with suppress(OSError):  # another user's process
        yield (process / "exe").readlink().parent
    yield Path(f"/usr/lib/postgresql/{major}/bin")
    yield Path(f"/usr/pgsql-{major}/bin")
    yield from _pg_config_directory(major)


def _pg_config_directory(major: int) -> Iterable[Path]:
    try:
        done = subprocess.run(["pg_config"], capture_output=True, text=True, check=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return ()
    config = dict(line.split(" = ", 1) for line in done.stdout.splitlines() if " = " in line)
    same = re.match(rf"PostgreSQL {major}\D", config.get("VERSION", "") + " ")
    return (Path(config["BINDIR"]),) if same and "BINDIR" in config else ()


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
