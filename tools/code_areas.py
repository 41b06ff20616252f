"""Writes the areas of PostgreSQL's source code by function, from source trees, the oldest one first:

    python tools/code_areas.py postgresql-14.20 ... postgresql-18.1 > \\
        python/dbdyno/engines/postgres/code_areas.txt

An area is a directory of src/backend (``storage/buffer``), ``wal`` for the files of the write-ahead log, or
``common``, ``port``, ``timezone``; for a function that moved, that of the newest version. Names that several
areas of one version define are under ``?``: unknown. A name that ends in ``*`` stands for all names with this
beginning, which is as short as names of other areas allow.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_ELSEWHERE = ("common", "port", "timezone")
_DEFINED = re.compile(r"^([A-Za-z_]\w*)\((?=[^;{}]*\)\s*\n\{)", re.M)
"""PostgreSQL writes a function's name at the beginning of a line, and the opening brace of its body on
another."""
_NOT_IN_SERVER = ("/test/", "/win32")
_FRONTEND = "not expected to be compiled for backend code"
_MACRO = "pg_attribute_"


def area(path: str) -> str:
    """Returns the area of a source file below ``src``, for example ``backend/storage/buffer/bufmgr.c``."""
    top, *rest = path.split("/")
    if top != "backend":
        return top
    if rest[:2] == ["access", "transam"] and rest[-1].startswith("xlog"):
        return "wal"
    return "/".join(rest[:-1][:2]) or "main"


def functions(tree: Path) -> Iterator[tuple[str, str]]:
    """Yields (function, area). Raises :class:`OSError` if ``tree`` is no source tree of PostgreSQL."""
    if not (tree / "src/backend").is_dir():
        raise NotADirectoryError(f"{tree}: no src/backend")
    for top in ("backend", *_ELSEWHERE):
        for file in (tree / "src" / top).rglob("*.c"):
            path = str(file.relative_to(tree / "src"))
            text = file.read_text("utf-8", "replace")
            if _FRONTEND not in text and not any(no in path for no in _NOT_IN_SERVER):
                yield from ((n, area(path)) for n in _DEFINED.findall(text) if not n.startswith(_MACRO))


def _single_area(parts: set[str]) -> str:
    """Returns the area of a function, unknown if there are several. Definitions in src/common and src/port
    do not count beside one of the server, as they are for other programs."""
    own = parts - set(_ELSEWHERE) or parts
    return own.pop() if len(own) == 1 else UNKNOWN


def shortened(areas: Mapping[str, str]) -> dict[str, list[str]]:
    """Returns names by area; names with a common beginning are replaced by this."""
    by_area = defaultdict(list)
    for beginning, part in _beginnings(sorted(areas), areas):
        by_area[part].append(beginning)
    return {part: by_area[part] for part in sorted(by_area)}


def _beginnings(names: list[str], areas: Mapping[str, str], depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yields the shortest beginnings, of at least :data:`_SHORTEST` letters, that occur in one area only."""
    parts = {areas[n] for n in names}
    if len(names) == 1:
        yield names[0], areas[names[0]]
        return
    if depth >= _SHORTEST and len(parts) == 1:
        yield f"{names[0][:depth]}*", parts.pop()
        return
    by_beginning: dict[str, list[str]] = defaultdict(list)
    for name in names:
        by_beginning[name[: depth + 1]].append(name)
    for beginning, some in by_beginning.items():
        if beginning in some and len(beginning) == depth:  # a name that is the beginning of others
            yield beginning, areas[beginning]
            some.remove(beginning)
        if some:
            yield from _beginnings(some, areas, depth + 1)


_SHORTEST = 4
UNKNOWN = "?"


def main(trees: Iterable[Path]) -> str:
    """Returns the text of the data file."""
    areas: dict[str, str] = {}
    versions = []
    for tree in trees:
        versions.append(
            re.findall(r"AC_INIT\(\[PostgreSQL\], \[(\d+)", (tree / "configure.ac").read_text())[0]
        )
        areas_now: dict[str, set[str]] = defaultdict(set)
        for name, part in functions(tree):
            areas_now[name].add(part)
        areas |= {name: _single_area(parts) for name, parts in areas_now.items()}
    lines = [
        f"# PostgreSQL {', '.join(sorted(set(versions)))}: which part of the server a function belongs to.",
        "# name*: all names that begin so. ?: functions of several parts have this name.",
        "# Made by tools/code_areas.py from the sources.",
    ]
    for part, names in shortened(areas).items():
        lines += [f"[{part}]", *textwrap.wrap(" ".join(names), 118)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(main(map(Path, sys.argv[1:])))
