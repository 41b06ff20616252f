"""Writes which part of PostgreSQL's server a function belongs to, from source trees, the oldest one first:

    python tools/code_areas.py postgresql-14.20 ... postgresql-18.1 > \\
        python/dbdyno/engines/postgres/code_areas.txt

A part is a directory of src/backend (``storage/buffer``), ``wal`` for the files of the write-ahead log, or
``common``, ``port``, ``timezone``; of a function that moved, where the newest has it. Names that several
parts of one version have are under ``?``: unknown. A name that ends in ``*`` stands for all names that begin
so; it is as short as no name of another part permits.
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
"""PostgreSQL writes a function's name at the beginning of a line, and its body's brace on one of its own."""
_NOT_IN_SERVER = ("/test/", "/win32")
_FRONTEND = "not expected to be compiled for backend code"
_MACRO = "pg_attribute_"


def area(path: str) -> str:
    """Of a source file below ``src``: ``backend/storage/buffer/bufmgr.c``."""
    top, *rest = path.split("/")
    if top != "backend":
        return top
    if rest[:2] == ["access", "transam"] and rest[-1].startswith("xlog"):
        return "wal"
    return "/".join(rest[:-1][:2]) or "main"


def functions(tree: Path) -> Iterator[tuple[str, str]]:
    """Names and parts. Raises :class:`OSError` where ``tree`` is no source tree of PostgreSQL."""
    if not (tree / "src/backend").is_dir():
        raise NotADirectoryError(f"{tree}: no src/backend")
    for top in ("backend", *_ELSEWHERE):
        for file in (tree / "src" / top).rglob("*.c"):
            path = str(file.relative_to(tree / "src"))
            text = file.read_text("utf-8", "replace")
            if _FRONTEND not in text and not any(no in path for no in _NOT_IN_SERVER):
                yield from ((n, area(path)) for n in _DEFINED.findall(text) if not n.startswith(_MACRO))


def _one(parts: set[str]) -> str:
    """What src/common and src/port define besides is for other programs."""
    own = parts - set(_ELSEWHERE) or parts
    return own.pop() if len(own) == 1 else UNKNOWN


def shortened(areas: Mapping[str, str]) -> dict[str, list[str]]:
    """Per part its names, those that follow one another under their common beginning."""
    found = defaultdict(list)
    for beginning, part in _beginnings(sorted(areas), areas):
        found[part].append(beginning)
    return {part: found[part] for part in sorted(found)}


def _beginnings(names: list[str], areas: Mapping[str, str], depth: int = 0) -> Iterator[tuple[str, str]]:
    """The shortest beginnings, from :data:`_SHORTEST` letters on, that name one part alone."""
    parts = {areas[n] for n in names}
    if len(names) == 1:
        yield names[0], areas[names[0]]
        return
    if depth >= _SHORTEST and len(parts) == 1:
        yield f"{names[0][:depth]}*", parts.pop()
        return
    by: dict[str, list[str]] = defaultdict(list)
    for name in names:
        by[name[: depth + 1]].append(name)
    for beginning, some in by.items():
        if beginning in some and len(beginning) == depth:  # a whole name, and others begin with it
            yield beginning, areas[beginning]
            some.remove(beginning)
        if some:
            yield from _beginnings(some, areas, depth + 1)


_SHORTEST = 4
UNKNOWN = "?"


def main(trees: Iterable[Path]) -> str:
    """The text of the data file."""
    one: dict[str, str] = {}
    versions = []
    for tree in trees:
        versions.append(
            re.findall(r"AC_INIT\(\[PostgreSQL\], \[(\d+)", (tree / "configure.ac").read_text())[0]
        )
        met: dict[str, set[str]] = defaultdict(set)
        for name, part in functions(tree):
            met[name].add(part)
        one |= {name: _one(parts) for name, parts in met.items()}
    lines = [
        f"# PostgreSQL {', '.join(sorted(set(versions)))}: which part of the server a function belongs to.",
        "# name*: all names that begin so. ?: functions of several parts have this name.",
        "# Made by tools/code_areas.py from the sources.",
    ]
    for part, names in shortened(one).items():
        lines += [f"[{part}]", *textwrap.wrap(" ".join(names), 118)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(main(map(Path, sys.argv[1:])))
