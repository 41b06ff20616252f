"""Which part of a program a function belongs to: by its source file, else by its name, as data.

The text of such data: a line ``[part]`` and below it names of functions; ``name*`` stands for all names that
begin so, and of several beginnings the longest holds. Part ``?``: unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

UNKNOWN_PART = "?"
_LONGEST = 200  # of a beginning of names: a program's own may be of any length
_CLONE = re.compile(
    r"(?:\.(?:isra|part|constprop|cold|lto_priv|llvm|localalias)(?:\.\d+)?)*+(?:@.*)?$", re.DOTALL
)


class CodeAreas(NamedTuple):
    """``program``: basename of the executable that the names are of."""

    program: str = ""
    names: Mapping[str, str] = {}
    beginnings: Mapping[str, str] = {}
    roots: tuple[str, ...] = ()
    """Folders of the source tree whose folders, at most two deep, are parts; the first that is met holds."""

    def of(self, function: str | None, source: str | None = None) -> str | None:
        """``None``: unknown."""
        found = self._of_source(source) if source else None
        found = found or (self._of_name(function) if function else None)
        return None if found == UNKNOWN_PART else found

    def _of_source(self, source: str) -> str | None:
        for root in self.roots:
            _, there, below = source.rpartition(f"/{root}/")
            if there:
                return "/".join(below.split("/")[:-1][:2]) or root.rpartition("/")[2]
        return None

    def _of_name(self, function: str) -> str | None:
        if (whole := self.names.get(function)) is not None:
            return whole
        lengths = range(min(len(function), _LONGEST), 0, -1)
        return next((self.beginnings[b] for n in lengths if (b := function[:n]) in self.beginnings), None)


def parsed(text: str, program: str = "", roots: tuple[str, ...] = ()) -> CodeAreas:
    """Lines that begin with ``#`` are comments."""
    names: dict[str, str] = {}
    beginnings: dict[str, str] = {}
    part = UNKNOWN_PART
    for line in text.splitlines():
        if line.startswith("["):
            part = line.strip("[]")
        elif not line.startswith("#"):
            for name in line.split():
                (beginnings if name.endswith("*") else names)[name.removesuffix("*")] = part
    return CodeAreas(program, names, beginnings, roots)


def plain_name(function: str) -> str:
    """Without what compilers and linkers add: ``s_lock.part.0`` and ``memcpy@GLIBC_2.14``."""
    return _CLONE.sub("", function)
