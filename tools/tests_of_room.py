#!/usr/bin/env python3
"""Prints the test files of one room, a line each: `tools/tests_of_room.py conclude`.

A room is a folder of python/dbdyno. Its tests are the files of tests/unit and tests/laws that import from
it or are named after it or one of its modules. Nearly all tests import from the vocabulary `model`: of
these only the ones that import from no other room are its own.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "python" / "dbdyno"
FOLDERS = (ROOT / "tests" / "unit", ROOT / "tests" / "laws")
VOCABULARY = "model"


def rooms() -> list[str]:
    return sorted(p.parent.name for p in PACKAGE.glob("*/__init__.py"))


def imported_rooms(source: str) -> set[str]:
    """Rooms from which a module imports directly, within functions too."""
    return {parts[1] for name in _imported(ast.parse(source)) if len(parts := name.split(".")) > 1} & set(
        rooms()
    )


def _imported(tree: ast.Module) -> Iterator[str]:
    """Names below dbdyno, with dots."""
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
    return [p for p in files if p.stem in names or p.stem.startswith(f"test_{room}_") or _is_user(p, room)]


def _is_user(test: Path, room: str) -> bool:
    used = imported_rooms(test.read_text(encoding="utf-8"))
    return used == {room} if room == VOCABULARY else room in used


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in rooms():
        print(f"usage: tools/tests_of_room.py ROOM, one of: {', '.join(rooms())}", file=sys.stderr)
        return 2
    print(*(p.relative_to(ROOT) for p in tests_of(arguments[0])), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
