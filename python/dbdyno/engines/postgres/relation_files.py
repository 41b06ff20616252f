"""The files of all relations of a server, and how much of them is in the page cache.

PostgreSQL, "Database File Layout": ``base/DATABASE/FILENODE``, ``global/FILENODE`` of what all databases
share, ``pg_tblspc/TABLESPACE/VERSION/DATABASE/FILENODE``; behind the number ``_fsm``, ``_vm`` or ``_init``,
and ``.1``, ``.2`` for the second and third segment of 1 GB. Temporary relations begin with ``tBACKEND_``.
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
"""``pg_default`` and ``pg_global`` (catalog/pg_tablespace.dat)."""
FORKS = {"": 0, "fsm": 1, "vm": 2, "init": 3}
_FILE = re.compile(r"(?:t\d+_)?(\d+)(?:_(fsm|vm|init))?(?:\.(\d+))?")


class Key(NamedTuple):
    """What a relation's files and buffers are known by, in numbers; database 0: shared."""

    database: int
    tablespace: int
    filenode: int


class Part(NamedTuple):
    path: str
    fork: int
    segment: int


class Counted(NamedTuple):
    """Sum over all files of a relation; None: see the status."""

    size_bytes: int | None
    cached_bytes: int | None
    within_bytes: int | None  # blocks that were asked for
    status: Status


class Layout(NamedTuple):
    block_bytes: int
    segment_bytes: int


Blocks = Mapping[tuple[Key, int], bytes]
"""By relation and fork: numbers of blocks as big-endian 64-bit integers."""


def files_of(main_pid: int, tree: Path = HERE.root) -> dict[Key, list[Part]]:
    """All files of the server with that main process, which works in its data directory. Raises
    :class:`OSError` where this user may not look there."""
    directory, root = (tree / f"proc/{main_pid}/{link}" for link in ("cwd", "root"))
    found: dict[Key, list[Part]] = {}
    for folder, database, tablespace in _folders(directory, root):
        for name in _names(folder):
            if (named := _FILE.fullmatch(name)) is not None:
                fork, segment = FORKS[named[2] or ""], int(named[3] or 0)
                key = Key(database, tablespace, int(named[1]))
                found.setdefault(key, []).append(Part(str(folder / name), fork, segment))
    return found


def _names(folder: Path) -> list[str]:
    try:
        return [p.name for p in folder.iterdir()]
    except FileNotFoundError:  # its database has been dropped meanwhile
        return []


def _folders(directory: Path, root: Path) -> Iterator[tuple[Path, int, int]]:
    """(folder, database, tablespace)."""
    yield directory / "global", 0, SHARED_TABLESPACE
    yield from ((d, int(d.name), DEFAULT_TABLESPACE) for d in _numbered(directory / "base"))
    for link in _numbered(directory / "pg_tblspc"):
        # a link leads where the server sees it, which may be in another mount namespace
        place = root / str(link.readlink()).lstrip("/") if link.is_symlink() else link
        for version in place.glob("PG_*"):
            yield from ((d, int(d.name), int(link.name)) for d in _numbered(version))


def _numbered(folder: Path) -> Iterator[Path]:
    return (p for p in folder.iterdir() if p.name.isdecimal())


class PageCache:
    """Counts relation after relation, and begins where the time was over the last time."""

    def __init__(self, machine: Machine = HERE) -> None:
        self._machine = machine
        self._next: Key | None = None

    def counted(
        self, files: Mapping[Key, list[Part]], blocks: Blocks, layout: Layout, most_ns: int
    ) -> dict[Key, Counted]:
        keys = sorted(files)
        start = bisect_left(keys, self._next) % len(keys) if keys and self._next else 0
        keys = keys[start:] + keys[:start]
        segment_blocks = layout.segment_bytes // layout.block_bytes
        asked = [
            (p.path, blocks.get((key, p.fork), b""), p.segment * segment_blocks)
            for key in keys
            for p in files[key]
        ]
        counts = iter(self._machine.page_cache(asked, layout.block_bytes, most_ns))
        found = {key: _sum([next(counts) for _ in files[key]]) for key in keys}
        self._next = next((key for key in keys if found[key].status == "lost"), None)
        return found


def _sum(parts: list[tuple[int | None, int | None, int | None, str]]) -> Counted:
    """A file that has vanished is none any more; of all others every figure has to be known."""
    there = [p for p in parts if p[3] != "vanished"] or parts
    status = next((p[3] for p in there if p[3] != "ok"), "ok")
    columns = zip(*(p[:3] for p in there), strict=True)
    sums = [None if None in column else sum(n or 0 for n in column) for column in columns]
    return Counted(sums[0], sums[1], sums[2], status)  # type: ignore[arg-type]
