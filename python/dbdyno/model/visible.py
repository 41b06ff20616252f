"""Text from outside, made fit for a terminal: what would steer it becomes visible, what is endless is cut."""

from __future__ import annotations

import re

_STEERING = (
    "\x00-\x08\x0b-\x1f\x7f\x80-\x9f"  # C0 (but tab and line feed), DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # order of writing (Unicode TR9)
    "\u2028\u2029"  # line and paragraph separators
    "\ud800-\udfff"  # halves of a pair, from bytes that are no UTF-8: no encoding takes them
)
_STEERS = re.compile(f"[{_STEERING}]")
_STEERS_OR_BREAKS = re.compile(f"[{_STEERING}\t\n]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_LONGEST, _MOST_LINES = 4_000, 60


def visible(text: str) -> str:
    """``text`` with a picture (``␛``) or ``\ufffd`` for each character that a terminal would obey.

    Character for character, so that positions stay. Tabs and line feeds pass.
    """
    return _STEERS.sub(_picture, text)


def one_line(text: str) -> str:
    """As :func:`visible`, for a cell of a table: tabs and line feeds are shown, too."""
    return _STEERS_OR_BREAKS.sub(_picture, text)


def shortened(text: str, longest: int = _LONGEST, most_lines: int = _MOST_LINES) -> str:
    """``text`` up to a length in characters and in lines, and how much was left out."""
    lines = text.split("\n", most_lines)
    kept = "\n".join(lines[:most_lines])[:longest]
    left = len(text) - len(kept)
    return text if left <= 0 else f"{kept} ... ({left:,} more characters)"


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\N{SYMBOL FOR DELETE}" if code == 0x7F else _REPLACEMENT
