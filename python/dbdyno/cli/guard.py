"""The way to the terminal: all that is printed passes here, so that nothing from a server, a store or a file
steers the terminal. What rich draws passes :mod:`dbdyno.cli.console` instead, which lets its styles through.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from dbdyno.model.visible import visible

_PLAIN = {"…": "~", "±": "~", "²": "2", "∞": "*", "µ": "u", "×": "x"}  # one for one: columns stay in line


class Guarded:
    """A text stream that makes visible what it is given: ``print``, ``click.echo``, tracebacks, warnings."""

    buffer = None  # nobody writes past it (click would, where the encoding is ASCII)

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(visible(text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def guard() -> None:
    """Puts the guard before standard output and standard error; a closed one takes and forgets everything."""
    codecs.register_error("dbdyno", _encodable)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  until the end
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="dbdyno")
        setattr(sys, name, Guarded(stream))


def _encodable(error: UnicodeError) -> tuple[str, int]:
    """In an encoding that lacks a character: a plain one for it, else its number."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    part = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c, f"\\u{ord(c):04x}") for c in part), error.end
