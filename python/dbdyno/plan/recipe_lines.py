"""Finds the line of a key in a TOML text, because Python's TOML parser reports no positions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dbdyno.model.errors import RecipeError

Path = tuple[str, ...]
MOST_TOML_BYTES = 1 << 20
"""Maximum size of a recipe, a job list or a configuration, all of which people write by hand."""
_DEEPEST = 20  # keys within keys: TOML's reader takes the square of their number
# Possessive: what fails fails at once, however long the line.
_PART = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_KEYS = rf"{_PART}(?:\s*+\.\s*+{_PART})*+"
_HEADER = re.compile(rf"\s*+\[\[?\s*+({_KEYS})\s*+\]")
_KEY = re.compile(rf"\s*+({_KEYS})\s*+=\s*+(.*)")
_ESCAPED_PATH = re.compile(
    r"""[^"'#]*+"((?:[A-Za-z]:(?=\\)|(?=[\w.\\ -]*\.\w+"))[\w.\\ -]*\\[btnfreuxU][\w.\\ -]*)\""""
)
"""Matches a text in double quotes that is a path, because it has a drive letter or a file extension."""
_INLINE = re.compile(rf"[{{,]\s*+({_KEYS})\s*+=")
_DEEP = re.compile(rf"(?:^|[{{,\[])[ \t]*+{_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{_DEEPEST}}}", re.MULTILINE)
MOST_FAULTS = 20
"""Maximum number of errors that are listed for a recipe."""
_LONG = re.compile(r"\"\"\"|'''")


class Fault(NamedTuple):
    """An error at a line. ``line`` is 0 if unknown."""

    line: int
    message: str
    cure: str | None


def read_toml(text: str) -> dict[str, Any]:
    """Returns the document. Raises :class:`ValueError` (TOMLDecodeError or another) if the text is not TOML,
    or is larger or deeper than anything that a person writes."""
    if len(text) > MOST_TOML_BYTES:
        raise ValueError(f"it has {len(text):,} characters; at most {MOST_TOML_BYTES:,} are read")
    if _DEEP.search(text):
        raise ValueError(f"it is nested more than {_DEEPEST} levels deep")
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    _refuse_escaped_paths(text)
    return data


class EscapedPathError(ValueError):
    """A path whose backslashes were taken as escapes. ``line`` is its line."""

    def __init__(self, line: int, written: str) -> None:
        super().__init__(
            f'"{written}": in double quotes a backslash begins an escape, as \\t, which is a tab'
        )
        self.line = line
        self.cure = f"write the path in single quotes: '{written}'"


def _refuse_escaped_paths(text: str) -> None:
    """Raises :class:`EscapedPathError` for texts such as ``script = "C:\\temp\\bench.sql"``, which are valid
    TOML but contain a tab and a backspace."""
    for number, line in enumerate(text.splitlines(), 1):
        match = None if _LONG.search(line) else _ESCAPED_PATH.match(line)
        if match is not None and "\\\\" not in match[1]:
            raise EscapedPathError(number, match[1])


def key_lines(text: str) -> dict[Path, int]:
    """Returns the line (from 1) of every table and key of a valid TOML text."""
    lines: dict[Path, int] = {}
    table: Path = ()
    count: dict[Path, int] = {}
    end: str | None = None  # of a string of several lines
    for number, line in enumerate(re.split(r"\r?\n", text), start=1):
        if end is not None:
            end = None if end in line else end
        elif header := _HEADER.match(line):
            table = _path(header[1])
            lines.setdefault(table, number)
            if line.lstrip().startswith("[["):  # an array of tables: each by its place
                count[table] = count.get(table, -1) + 1
                table = (*table, str(count[table]))
                lines[table] = number
        elif key := _KEY.match(line):
            path = (*table, *_path(key[1]))
            for end_of in range(len(table) + 1, len(path) + 1):  # a dotted key makes the tables above it
                lines.setdefault(path[:end_of], number)
            if key[2].startswith("{"):
                for m in _INLINE.finditer(key[2]):
                    lines.setdefault((*path, *_path(m[1])), number)
            quotes = _LONG.findall(key[2])
            end = quotes[0] if len(quotes) == 1 else None
    return lines


def line_of(lines: Mapping[Path, int], path: Sequence[int | str]) -> int:
    """Returns the line of the key or of the nearest table around it; 0 if there is none."""
    names = tuple(map(str, path))
    return next((lines[names[:n]] for n in range(len(names), 0, -1) if names[:n] in lines), 0)


def syntax_error(text: str, error: Exception) -> tuple[int, str]:
    """Returns line and message of a TOMLDecodeError. An unexpected end counts as an error on the last
    line."""
    if isinstance(error, EscapedPathError):
        return error.line, str(error)
    if not isinstance(error, tomllib.TOMLDecodeError):  # it concerns the whole
        return 1, str(error)
    place = re.search(r" ?\((?:at line (\d+), column \d+|at end of document)\)", str(error))
    line = int(place[1]) if place and place[1] else text.count("\n") + 1
    return line, str(error).replace(place[0] if place else "", "")


def recipe_error(name: str, faults: Iterable[Fault]) -> RecipeError:
    """Returns an error such as ``mine.toml:3: unknown key mesure`` with its remedy. Several faults become a
    list."""
    distinct = sorted(set(faults))
    if len(distinct) == 1:
        return RecipeError(f"{_place(name, distinct[0].line)}: {distinct[0].message}", distinct[0].cure)
    listed = [
        f"{_place(name, f.line)}: {f.message}" + (f"; {f.cure}" if f.cure else "")
        for f in distinct[:MOST_FAULTS]
    ]
    listed += [f"and {len(distinct) - MOST_FAULTS} more"] if len(distinct) > MOST_FAULTS else []
    return RecipeError(f"{name}: {len(distinct)} errors", "\n  ".join(listed))


def _place(name: str, line: int) -> str:
    return f"{name}:{line}" if line else name


def _path(keys: str) -> Path:
    return tuple(part.strip("\"'") for part in re.findall(_PART, keys))
