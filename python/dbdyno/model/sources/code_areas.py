"""Maps a function to its part of a program, by its source file or else by its name, as data.

The data are text: a line ``[part]``, followed by names of functions. ``name*`` matches all names with this
prefix, and the longest matching prefix applies. Part ``?`` means unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

UNKNOWN_PART = "?"
_LONGEST = 200  # limits the search for a prefix, since function names may be of any length
# Suffixes of clones: GCC adds isra, part, constprop, cold and lto_priv, LLVM adds llvm, and linkers a symbol
# version.
_CLONE = re.compile(
    r"(?:\.(?:isra|part|constprop|cold|lto_priv|llvm|localalias)(?:\.\d+)?)*+(?:@.*)?$", re.DOTALL
)


class CodeAreas(NamedTuple):
    """The parts of a program. ``program`` is the basename of the executable that has these functions."""

    program: str = ""
    names: Mapping[str, str] = {}
    beginnings: Mapping[str, str] = {}
    roots: tuple[str, ...] = ()
    """Folders of the source tree whose subfolders, at most two levels deep, are parts. The first match
    applies."""

    def of(self, function: str | None, source: str | None = None) -> str | None:
        """Returns the part of a function; ``None`` if unknown."""
        part = self._of_source(source) if source else None
        part = part or (self._of_name(function) if function else None)
        return None if part == UNKNOWN_PART else part

    def by_source(self) -> CodeAreas:
        """Returns the areas without names of functions."""
        return self._replace(names={}, beginnings={})

    def _of_source(self, source: str) -> str | None:
        for root in self.roots:
            _, separator, below = source.rpartition(f"/{root}/")
            if separator:
                return "/".join(below.split("/")[:-1][:2]) or root.rpartition("/")[2]
        return None

    def _of_name(self, function: str) -> str | None:
        if (whole := self.names.get(function)) is not None:
            return whole
        lengths = range(min(len(function), _LONGEST), 0, -1)
        return next((self.beginnings[b] for n in lengths if (b := function[:n]) in self.beginnings), None)


def parsed(text: str, program: str = "", roots: tuple[str, ...] = ()) -> CodeAreas:
    """Returns the areas that a text defines. Lines that begin with ``#`` are comments."""
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
    """Returns the name without the suffixes of compilers and linkers, as in ``s_lock.part.0`` and
    ``memcpy@GLIBC_2.14``."""
    return _CLONE.sub("", function)
