"""Splits an SQL statement into tokens, as far as needed to find its parameters.

PostgreSQL, "Lexical Structure" (4.1) and scan.l. Supports quoted strings and names, E strings, strings that
continue on the next line, dollar quotes, nested comments, parentheses and brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n\r]*)
      | (?P<block>/\*)
      | (?P<escaped>[eE]')
      | (?P<plain>(?:[uU]&|[bBxXnN])?')
      | (?P<name>(?:[uU]&)?")
      | (?P<dollar>\$(?:[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*)?\$)
      | (?P<word>[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]*)
      | (?P<number>[0-9][A-Za-z0-9_.\u0080-\U0010ffff]*|\$[0-9]+)
      | (?P<cast>::)
      | (?P<variable>:[A-Za-z_][A-Za-z0-9_]*)
      | (?P<open>[(\[])
      | (?P<close>[)\]])
      | (?P<end>;)
      | (?P<backslash>\\)
      | (?P<space>[ \t\n\r\f\v]+)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_BLOCK = re.compile(r"/\*|\*/")
_QUOTE = re.compile(r"'")
_ESCAPED = re.compile(r"\\.|'", re.DOTALL)
_NAME = re.compile(r'"')
_CONTINUED = re.compile(r"[ \t\f\v]*+(?:--[^\n\r]*+)?+[\n\r](?:[ \t\n\r\f\v]++|--[^\n\r]*+[\n\r])*+'")
"""Possessive quantifiers: otherwise white space without a following quote would be split in all ways."""


@dataclass(frozen=True)
class Token:
    """A token. ``kind`` is a group of the pattern above; ``start`` and ``end`` count characters of the
    script."""

    kind: str
    start: int
    end: int


class Unterminated(ValueError):
    """A quote or comment without an end. ``args`` = (what, its start)."""


def tokens(text: str, *, standard_strings: bool = True) -> Iterator[Token]:
    """Yields the tokens of ``text``, without gaps. ``standard_strings``: whether standard_conforming_strings
    is on.

    Raises :class:`Unterminated`.
    """
    at = 0
    while (match := _TOKEN.match(text, at)) is not None:
        kind, end = str(match.lastgroup), match.end()
        if kind == "block":
            end = _block_end(text, at)
        elif kind == "dollar":
            closing = text.find(match[0], end)
            if closing < 0:
                raise Unterminated(f"the string quoted with {match[0]}", at)
            end = closing + len(match[0])
        elif kind == "name":
            end = _quoted_end(text, at, end, _NAME, "the quoted name")
        elif kind in ("plain", "escaped"):
            escapes = kind == "escaped" or not (standard_strings or match[0][:1] in "uU")
            end = _string_end(text, at, end, _ESCAPED if escapes else _QUOTE)
        yield Token(kind, at, end)
        at = end


def _block_end(text: str, start: int) -> int:
    """Returns the end of a comment, which may contain nested ones."""
    depth = 0
    for match in _BLOCK.finditer(text, start):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    raise Unterminated("the comment", start)


def _string_end(text: str, start: int, inside: int, pattern: re.Pattern[str]) -> int:
    end = _quoted_end(text, start, inside, pattern, "the string")
    while (more := _CONTINUED.match(text, end)) is not None:
        end = _quoted_end(text, start, more.end(), pattern, "the string")
    return end


def _quoted_end(text: str, start: int, inside: int, pattern: re.Pattern[str], what: str) -> int:
    """Returns the end of a quote whose content begins at ``inside``. A doubled quote does not end it."""
    at = inside
    while (match := pattern.search(text, at)) is not None:
        at = match.end()
        if match[0][0] == "\\":
            continue
        if text[at : at + 1] != match[0]:
            return at
        at += 1
    raise Unterminated(what, start)
