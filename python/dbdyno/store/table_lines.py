"""Splits a table written by a program or a person into lines, without comments, rules and prose around it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from dbdyno.model.errors import UsageError

_RULE = re.compile(r"(?=[-+|:=\s]++\Z).*?[-=]{2}", re.DOTALL)  # ----+---- under a header
_FOOT = re.compile(
    r"\|?\s*(\(?\d+ rows?\)?\s*((in set|affected|selected|\(\d+ shown\)|\d+ columns?)[^|]*)?"
    r"|empty set.*|query ok.*|time: [\d.,]+ ms.*|shape: \(\d+, ?\d+\))\|?\Z",
    re.IGNORECASE,
)
"""Lines that clients of databases and libraries add below a table."""
_COMMENT = re.compile(r"\s#(?![,;\t])(?=[^|]*\Z)")
_MOST_JOINED = 20  # lines of one heading
_PGBENCH_LOG = re.compile(r"\d+ \d+ \d+ \d+ 1\d{9} \d{1,6}( .*)?\Z", re.ASCII)


def _box() -> dict[int, str]:
    translations = {}
    for code in range(0x2500, 0x2580):
        name = unicodedata.name(chr(code)).removeprefix("BOX DRAWINGS ")
        if re.fullmatch(r"\w+ (\w+ DASH )?VERTICAL", name):
            translations[code] = "|"
        else:
            translations[code] = "-" if re.fullmatch(r"\w+ (\w+ DASH )?HORIZONTAL", name) else "+"
    return translations


_BOX = _box()


def lines_of(text: str) -> list[tuple[int, str]]:
    """Returns lines with their numbers from 1; a quoted field over several lines is joined into one line."""
    lines = re.split(r"\r\n|\r|\n", text)
    joined, n = [], 0
    while n < len(lines):
        end = _end(lines, n)
        joined.append((n + 1, " ".join(lines[n : end + 1])))
        n = end + 1
    return joined


def _end(lines: Sequence[str], first: int) -> int:
    """Returns the index of the line that closes a quoted field opened in ``first``; ``first`` if none
    does."""
    if not _is_open(lines[first]):
        return first
    for n in range(first + 1, min(first + _MOST_JOINED, len(lines))):
        if lines[n].count('"') % 2:
            return n if re.search(r'"\s*([,;\t|]|\Z)', lines[n]) else first
    return first


def _is_open(line: str) -> bool:
    """Returns whether a quote at the beginning of a field is not closed, as in ``"Users","Throughput``."""
    if line.count('"') % 2 == 0 or line.lstrip().startswith("#"):
        return False
    return re.search(r'(?:\A|[,;\t|])\s*"(?:[^"]|"")*\Z', line) is not None


def content(text: str) -> tuple[list[tuple[int, str]], str | None, list[int]]:
    """Returns the numbered lines of the table, the comment before them, and the numbers of lines of prose.

    Comments, rules and blank lines are left out. Prose is text around a table drawn with ``|``.
    """
    kept: list[tuple[int, str]] = []
    comment = None
    for n, raw in lines_of(text):
        line = raw.translate(_BOX).strip(" \f\u00a0").rstrip()
        if line.startswith("#"):
            comment = line.lstrip("# ") if not kept else comment
            continue
        line = _uncommented(line)
        if line.strip() and not (_RULE.match(line) or _FOOT.match(line) or line.lower().startswith("sep=")):
            kept.append((n, line))
    if 2 * sum("|" in line for _, line in kept) <= len(kept):
        return kept, comment, []
    return (
        [(n, line) for n, line in kept if "|" in line],
        comment,
        [n for n, line in kept if "|" not in line],
    )


def _uncommented(line: str) -> str:
    match = _COMMENT.search(line)
    if match is None or line[: match.start()].count('"') % 2:
        return line
    return line[: match.start()].rstrip()


def refuse_log(lines: Sequence[str], source: str) -> None:
    """Raises UsageError if the lines are a log of transactions by pgbench."""
    if lines and all(_PGBENCH_LOG.match(line.strip()) for line in lines[:20]):
        raise UsageError(
            f"{source} is a log of pgbench (--log), one line per transaction",
            "the third column is the time of each in us, which compare reads: awk '{print $3}' LOG > us.txt; "
            "analyze needs one line per load: sessions,throughput",
        )
