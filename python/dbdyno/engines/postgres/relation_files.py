"""Finds the files of all relations of a server, and counts their pages in the page cache.

PostgreSQL, "Database File Layout": ``base/DATABASE/FILENODE``, ``global/FILENODE`` for relations shared by
all databases, ``pg_tblspc/TABLESPACE/VERSION/DATABASE/FILENODE``. Suffixes ``_fsm``, ``_vm`` or ``_init``
name the fork, and ``.1``, ``.2`` the second and third segment of 1 GB. Temporary relations begin with
``tBACKEND_``.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from dbdyno.kernel.machine import HERE
from dbdyno.model.engine.machine import Machine
from dbdyno.model.sources.source import Status

DEFAULT_TABLESPACE, SHARED_TABLESPACE = 1663, 1664
"""Oids of ``pg_default`` and ``pg_global`` (catalog/pg_tablespace.dat)."""
FORKS = {"": 0, "fsm": 1, "vm": 2, "init": 3}
_FILE = re.compile(r"(?:t\d+_)?(\d+)(?:_(fsm|vm|init))?(?:\.(\d+))?")


class Key(NamedTuple):
    """Identifies a relation's files and buffers. Database 0 means shared by all databases."""

    database: int
    tablespace: int
    filenode: int


class Part(NamedTuple):
    """A file of a relation."""

    path: str
    fork: int
    segment: int


class Counted(NamedTuple):
    """Sums over all files of a relation; if None, see the status."""

    size_bytes: int | None
    cached_bytes: int | None
    within_bytes: int | None  # of these, in blocks that are in shared buffers
    status: Status


class Layout(NamedTuple):
    """Sizes of the server's blocks and segments."""

    block_bytes: int
    segment_bytes: int


Blocks = Mapping[tuple[Key, int], bytes]
"""Block numbers as big-endian 64-bit integers, by relation and fork."""


def files_of(main_pid: int, tree: Path = HERE.root) -> dict[Key, list[Part]]:
    """Returns all files of the server with this main process, whose working directory is the data
    directory. Raises :class:`OSError` if this user may not read that."""
    directory, root = (tree / f"proc/{main_pid}/{link}" for link in ("cwd", "root"))
    files: dict[Key, list[Part]] = {}
    for folder, database, tablespace in _folders(directory, root):
        for name in _names(folder):
            if (match := _FILE.fullmatch(name)) is not None:
                fork, segment = FORKS[match[2] or ""], int(match[3] or 0)
                key = Key(database, tablespace, int(match[1]))
                files.setdefault(key, []).append(Part(str(folder / name), fork, segment))
    return files


def _names(folder: Path) -> list[str]:
    try:
        return [p.name for p in folder.iterdir()]
    except FileNotFoundError:  # the database was dropped meanwhile
        return []


def _folders(directory: Path, root: Path) -> Iterator[tuple[Path, int, int]]:
    """Yields (folder, database, tablespace)."""
    yield directory / "global", 0, SHARED_TABLESPACE
    yield from ((d, int(d.name), DEFAULT_TABLESPACE) for d in _numbered(directory / "base"))
    for link in _numbered(directory / "pg_tblspc"):
        # resolve the link in the server's root: it may be in another mount namespace
        place = root / str(link.readlink()).lstrip("/") if link.is_symlink() else link
        for version in place.glob("PG_*"):
            yield from ((d, int(d.name), int(link.name)) for d in _numbered(version))


def _numbered(folder: Path) -> Iterator[Path]:
    return (p for p in folder.iterdir() if p.name.isdecimal())


class PageCache:
    """Counts one relation after another. Begins where time ran out in the last call."""

    def __init__(self, machine: Machine = HERE) -> None:
        self._machine = machine
        self._next: Key | None = None

    def counted(
        self, files: Mapping[Key, list[Part]], blocks: Blocks, layout: Layout, most_ns: int
    ) -> dict[Key, Counted]:
        """Returns counts by relation; the status is "lost" if there was no time for it."""
        keys = sorted(files)
        start = bisect_left(keys, self._next) % len(keys) if keys and self._next else 0
        keys = keys[start:] + keys[:start]
        segment_blocks = layout.segment_bytes // layout.block_bytes
        requests = [
            (p.path, blocks.get((key, p.fork), b""), p.segment * segment_blocks)
            for key in keys
            for p in files[key]
        ]
        counts = iter(self._machine.page_cache(requests, layout.block_bytes, most_ns))
        counted = {key: _sum([next(counts) for _ in files[key]]) for key in keys}
        self._next = next((key for key in keys if counted[key].status == "lost"), None)
        return counted


def _sum(parts: list[tuple[int | None, int | None, int | None, str]]) -> Counted:
    """Returns sums over the files. Ignores vanished files. A sum is None if a file's figure is unknown."""
    existing = [p for p in parts if p[3] != "vanished"] or parts
    status = next((p[3] for p in existing if p[3] != "ok"), "ok")
    columns = zip(*(p[:3] for p in existing), strict=True)
    sums = [None if None in column else sum(n or 0 for n in column) for column in columns]
    return Counted(sums[0], sums[1], sums[2], status)  # type: ignore[arg-type]
