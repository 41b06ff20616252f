#!/usr/bin/env python3
"""Prints the test files of one room, one per line: `tools/tests_of_room.py conclude`.

A room is a folder of python/dbdyno. A file of tests/unit or tests/laws belongs to the highest room that it
imports from, in the order of the layers in pyproject.toml, and to the rooms that have its name or a module of
its name.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "python" / "dbdyno"
FOLDERS = (ROOT / "tests" / "unit", ROOT / "tests" / "laws")


@cache
def rooms() -> list[str]:
    return sorted(p.parent.name for p in PACKAGE.glob("*/__init__.py"))


@cache
def imported_rooms(source: str) -> set[str]:
    """Returns the rooms from which a module imports directly, also within functions."""
    return {parts[1] for name in _imported(ast.parse(source)) if len(parts := name.split(".")) > 1} & set(
        rooms()
    )


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yields the imported names below dbdyno, with dots."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name for name in names if name.startswith("dbdyno."))


def tests_of(room: str) -> list[Path]:
    names = {f"test_{name}" for name in (room, *(p.stem for p in (PACKAGE / room).rglob("*.py")))}
    files = [p for folder in FOLDERS for p in sorted(folder.rglob("test_*.py"))]
    return [p for p in files if p.stem in names or p.stem.startswith(f"test_{room}_") or _ends_in(p, room)]


def _ends_in(test: Path, room: str) -> bool:
    used = imported_rooms(test.read_text(encoding="utf-8"))
    return room in used and room == max(used, key=way().index)


@cache
def way() -> list[str]:
    """Returns all rooms in the order in which data flows through them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = reversed(settings["contracts"][0]["layers"])
    return [room.removeprefix("dbdyno.") for layer in layers for room in layer.split(" | ")]


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in rooms():
        print(f"usage: tools/tests_of_room.py ROOM, one of: {', '.join(rooms())}", file=sys.stderr)
        return 2
    print(*(p.relative_to(ROOT) for p in tests_of(arguments[0])), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
