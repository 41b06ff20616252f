"""Lists the runs of a store by their ``run.json``, and stores the output of ``show``.

Uses the standard library alone, so that it loads fast.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dbdyno import __version__
from dbdyno.kernel.private import check_private
from dbdyno.model.errors import SchemaTooNew, StoreError
from dbdyno.model.home import base_directory
from dbdyno.model.schema.column import DERIVED_VERSION, SCHEMA_VERSION
from dbdyno.model.text.visible import shortened
from dbdyno.store import files

# Whether the measuring process still exists: pid and start time identify it, as pids are reused.

_STARTTIME = 22  # field of /proc/PID/stat, counted from 1 (proc_pid_stat(5))


def start_ticks(pid: int) -> int | None:
    """Returns the start time of a process since boot in clock ticks; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The name of the process may contain blanks and brackets; after it comes field 3.
    after_comm = stat.rpartition(")")[2].split()
    if after_comm[0] in "ZX":
        return None
    return int(after_comm[_STARTTIME - 3])


def is_alive(pid: int, ticks: int) -> bool:
    return pid > 0 and start_ticks(pid) == ticks


RUN_ID = re.compile(r"\d{8}-\d{6}-[a-z0-9-]{1,40}-[0-9a-f]{4}", re.ASCII)
"""Pattern of a run's id, which is the name of its directory; a matching name cannot lead out of the store."""
_LIKE_A_RUN = re.compile(r"\d{8}-\d{6}-.+")
_TRIED = 20
"""Most runs that are read to find the one before."""
_STORE_CURE = "name one: DBDYNO_STORE=DIR, or --store DIR"
STATUSES = ("running", "complete", "cut short", "broken")
_PROCESS_ENDED = "the process ended"
_SHOWN = "document.json"
_DEFAULTS: dict[str, Any] = {
    "schema_version": SCHEMA_VERSION,
    "id": "",
    "dbdyno": "unknown",
    "started": "",
    "started_monotonic_ns": 0,
    "ended": None,
    "status": "running",
    "reason": None,
    "pid": 0,
    "pid_start_ticks": 0,
    "applied": {},
    "stopped": None,
    "name": "",
    "tags": [],
    "note": "",
    "group": "",
    "benchmark": "",
}
"""Listed fields of :class:`dbdyno.model.results.results.RunInfo`, with the values of absent ones."""


@dataclass(frozen=True)
class Listed:
    """A run of the store. An unreadable one has the status ``broken`` and the reason."""

    path: Path
    started: datetime  # UTC
    ended: datetime | None
    status: str
    reason: str | None
    document: Mapping[str, Any]  # ``run.json`` without workloads and calibrations

    @property
    def id(self) -> str:
        return self.path.name


def default_root() -> Path:
    """Returns ``$XDG_DATA_HOME/dbdyno``, else ``~/.local/share/dbdyno`` (XDG Base Directory Specification
    0.8).

    Raises :class:`StoreError` if another user may write there.
    """
    root = base_directory("XDG_DATA_HOME", ".local/share", "the run store", _STORE_CURE) / "dbdyno"
    with files.guard(root):
        check_private(root, missing=True)
    return root


def run_ids(root: Path) -> Sequence[str]:
    """Returns the names of the runs' directories, oldest first. Raises :class:`StoreError`."""
    try:
        with files.guard(root):
            return sorted(p.name for p in root.iterdir() if is_run(p))
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return []
        raise


def has_run(root: Path, run_id: str) -> bool:
    """Returns whether :func:`run_ids` has ``run_id``, without reading the whole store."""
    try:
        return run_id not in ("", ".", "..") and "/" not in run_id and is_run(root / run_id)
    except OSError:  # a name that is too long
        return False


def list_runs(root: Path) -> Sequence[Listed]:
    """Returns all runs, oldest first."""
    return [list_run(root / run_id) for run_id in run_ids(root)]


def run_before(root: Path, run: str) -> str | None:
    """Returns the id of the run before ``run`` that measured something of the same title to its end."""
    title = _title(run)
    earlier = [i for i in run_ids(root) if i < run and title and _title(i) == title]
    return next((i for i in reversed(earlier[-_TRIED:]) if list_run(root / i).status == "complete"), None)


def _title(run: str) -> str:
    """Returns what is in the id of a run besides its time: workload, script or name of the recipe."""
    return run[16:].rpartition("-")[0] if RUN_ID.fullmatch(run) else ""


def list_run(path: Path) -> Listed:
    try:
        return _listed(path)
    except StoreError as error:
        return _broken(path, error.message)


def size_on_disk(path: Path) -> int:
    """Returns the bytes on disk of all files below ``path``; 0 for a link, of which only itself is
    removed."""
    if path.is_symlink():
        return 0
    below = (Path(place) / name for place, _, names in os.walk(path) for name in names)
    return sum(file.lstat().st_blocks * 512 for file in below)


def cure_of(run: str) -> str:
    """Returns the cure for a damaged file of a run, from which nothing makes the file again."""
    return f"put back a copy of the file, or remove the run: dbdyno rm {run}"


def rebuild_cure(run: str) -> str:
    """Returns the cure for damage to what was derived from a run."""
    return f"make it again from the raw data: dbdyno rebuild {run}"


def read_document(path: Path) -> tuple[bytes, dict[str, Any]]:
    """Returns ``run.json`` of a run's directory as bytes and parsed.

    Raises :class:`StoreError` if it is damaged or has the id of another run, :class:`SchemaTooNew` if a
    newer dbdyno wrote it.
    """
    content = files.read(path / "run.json")
    try:
        document = files.from_json(content)
        version = document["schema_version"]
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(f"run.json of {path} is damaged: {error}", cure_of(path.name)) from error
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"{path} was written by a newer dbdyno ({_writer(content)}): "
            f"schema {version}, this one knows {SCHEMA_VERSION}",
            "upgrade dbdyno to that version or a later one",
        )
    identity = document.get("id")
    if identity != path.name or RUN_ID.fullmatch(identity) is None:
        raise StoreError(
            f"the id in run.json of {path} is wrong: {shortened(str(identity), 80)!r}",
            "a run's directory keeps the name that dbdyno gave it: rename it back, or remove it",
        )
    return content, document


def read_shown(path: Path) -> bytes | None:
    """Returns the document that :func:`keep_shown` stored for a run.

    None if there is none, the run has changed since, or another version of dbdyno derived it. Raises as
    :func:`read_document`.
    """
    run_json, _ = read_document(path)
    try:
        stamp, _, shown = files.read(path / _SHOWN).partition(b"\n")
        return shown if stamp == _stamp(path, run_json, shown) else None
    except StoreError:
        return None


def keep_shown(path: Path, shown: bytes) -> None:
    """Stores ``shown``, a document of a run that has ended. Raises :class:`StoreError`."""
    run_json, _ = read_document(path)
    files.write_atomic(path / _SHOWN, _stamp(path, run_json, shown) + b"\n" + shown)


def stamp(path: Path) -> str:
    """Returns a checksum of everything that is shown of a run that has ended. Raises as
    :func:`read_document`."""
    run_json, _ = read_document(path)
    return _stamp(path, run_json, b"").decode()


def _stamp(path: Path, run: bytes, shown: bytes) -> bytes:
    """Returns a checksum of everything that the stored document depends on.

    These are the run's state, its derived tables and conclusions, and the version that derived them.
    """
    manifest = path / "derived" / files.MANIFEST
    derived = files.read(manifest) if manifest.exists() else b""
    parts = (__version__.encode(), str(DERIVED_VERSION).encode(), run, derived, shown)
    return hashlib.sha256(b"".join(hashlib.sha256(p).digest() for p in parts)).hexdigest().encode()


def reason_if_ended(status: str, pid: int, start_ticks: int) -> str | None:
    """Returns why a run with status ``running`` is cut short: its process is gone. None otherwise."""
    return _PROCESS_ENDED if status == "running" and not is_alive(pid, start_ticks) else None


def _listed(path: Path) -> Listed:
    _, whole = read_document(path)
    return listed_of(path, whole)


def listed_of(path: Path, whole: Mapping[str, Any]) -> Listed:
    """Returns a run from ``run.json`` or its listed part. Raises :class:`StoreError` on damage."""
    document = _DEFAULTS | {key: whole[key] for key in _DEFAULTS if key in whole}
    try:
        ended = reason_if_ended(document["status"], int(document["pid"]), int(document["pid_start_ticks"]))
        if ended is not None:
            document |= {"status": "cut short", "reason": ended}
        status, reason = document["status"], document["reason"]
        if status not in STATUSES or not isinstance(reason, str | None):
            raise ValueError("status")
        texts = [document["name"], document["note"], *document["tags"]]
        if not isinstance(document["tags"], list) or not all(isinstance(t, str) for t in texts):
            raise ValueError("name, tags or note")
        until = None if document["ended"] is None else _time(document["ended"])
        return Listed(path, _time(document["started"]), until, status, reason, document)
    except (ValueError, TypeError, OverflowError) as error:
        raise StoreError(f"run.json of {path} is damaged: {error}", cure_of(path.name)) from error


def _broken(path: Path, reason: str) -> Listed:
    started = _time_of(path)
    document = _DEFAULTS | {"id": path.name, "status": "broken", "reason": reason}
    document["started"] = started.isoformat().replace("+00:00", "Z")
    return Listed(path, started, None, "broken", reason, document)


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def is_run(path: Path) -> bool:
    """Returns whether ``path`` is a run's directory, by its name or what is in it."""
    return path.is_dir() and (_LIKE_A_RUN.fullmatch(path.name) is not None or (path / "run.json").exists())


def _writer(content: bytes) -> str:
    return str(json.loads(content).get("dbdyno", "version unknown"))


def _time_of(path: Path) -> datetime:
    """Returns the start of a run from its name, else the modification time of its directory."""
    try:
        return datetime.strptime(path.name[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
