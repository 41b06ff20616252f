"""Parses numbers as people write them in tables: groups, decimal signs, emphasis, units."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from dbdyno.model.units import FACTORS_NS

_MISSING = frozenset(
    {"", "na", "n/a", "n.a.", "n/d", "nd", "null", "(null)", "none", "nil", "-", "--", "---", "—", "–", "−"}
    | {"?", ".", "…", "...", "\\n", "∅"}
)
_NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)\Z", re.IGNORECASE)
_GROUPS = " '’_\u00a0\u202f\u2009"  # what parts thousands besides a comma or a dot
EITHER = re.compile(r"[-+]?[1-9]\d{0,2}([.,])\d{3}\Z", re.ASCII)
"""An ambiguous number such as 1,234: thousands, or a decimal sign."""
UNKNOWN = "?"
"""Decimal sign of a table whose numbers do not show it."""
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3}|_{1,3}|~~|`{1,2})(?=\S)([^*`]*?\S)\1(?![\w*])")
_MARKS = "*†‡§¹²³⁴⁵⁶⁷⁸⁹↑↓→←\ufe0f\u200d\u200b"  # of footnotes and trends, and parts of emoji
_WITH_UNIT = re.compile(r"(.*\d[.]?)\s*([^\W\d_]\S*(?: per \w+|(?: ?/ ?)\w+| [^\W\d_]\S*)?|%)\Z")
_BRACKETED = re.compile(r"(.*\d[.]?)\s*[(\[]([^)\]]*)[)\]]\Z")
_OF_ERROR = re.compile(r"(.*\d[.]?)\s*(?:±|\+/-|\+-)\s*[\d.,]+\s*(\D*)\Z")
_PLAIN = re.compile(r"\d+(\.\d+)?\Z", re.ASCII)
SPREAD = 100.0
"""Factor by which a wrong reading of the decimal sign widens the range of a column."""


def is_missing(text: str) -> bool:
    return text.strip().lower() in _MISSING


def is_number(text: str) -> bool:
    return any(number(text, sign) is not None for sign in ".,")


def number(text: str, decimal: str) -> float | None:
    """Parses ``1 234,5`` with a decimal comma as 1234.5; also ``nan`` and ``inf``. None if it is no
    number."""
    word = text.strip()
    if _NOT_FINITE.match(word):
        return float(word.lower().replace("infinity", "inf"))
    other = "," if decimal == "." else "."
    whole = rf"(?:[1-9]\d{{0,2}}(?:[{re.escape(other)}{_GROUPS}]\d{{3}})+|\d+)"
    if decimal == ".":
        whole = rf"(?:[1-9]\d?(?:,\d\d)+,\d{{3}}|{whole})"  # 1,12,500: the groups of India
    if not re.fullmatch(
        rf"[-+]?(?:{whole}(?:[{decimal}]\d+)?|[{decimal}]\d+)(?:[eE][-+]?\d+)?", word, re.ASCII
    ):
        # Fortran and R write whole numbers with a trailing dot.
        return float(word) if decimal == "." and re.fullmatch(r"[-+]?\d+\.", word, re.ASCII) else None
    plain = re.sub(rf"[{re.escape(other)}{_GROUPS}]", "", word).replace(decimal, ".")
    return float(plain)


def plain(text: str) -> str:
    """Strips Markdown, emoji, footnote marks, ``~`` and brackets from a number; words lose emphasis only.

    ``**32** ⭐`` -> 32, ``~4.5`` -> 4.5, ``12,345 (+5 %)`` -> 12,345.
    """
    word = _EMPHASIS.sub(r"\2", re.sub(r"</?(b|i|strong|em|code)>", "", text)).strip()
    if word.isascii() and is_number(word):
        return word
    bare = "".join(c for c in word if unicodedata.category(c) not in ("So", "Sk") and c not in _MARKS)
    bare = re.sub(r"\A\s*(~|≈|≃|ca\.)\s*", "", bare.replace("−", "-")).strip()
    if match := _OF_ERROR.match(bare):
        bare = f"{match[1]} {match[2]}".strip()
    if (match := _BRACKETED.match(bare)) and is_number(match[1]):
        bare = match[1].strip()
    return bare if is_number(bare) or with_unit(bare) or (is_missing(bare) and bare) else word


def with_unit(text: str) -> tuple[str, str] | None:
    """Splits ``100 ms`` into 100 and ms, also ``1.2k``, ``45 %``, ``100 tx/s``; None without a unit."""
    match = None if is_number(text) else _WITH_UNIT.match(text)
    return (match[1].strip(), match[2]) if match and is_number(match[1]) else None


def parted(column: Sequence[str]) -> tuple[list[str], str]:
    """Splits a column into numbers and unit, if all cells share a unit or have units of time.

    Otherwise returns the column unchanged with an empty unit.
    """
    pairs = [None if is_missing(c) else with_unit(c) or ("", "") for c in column]
    units = {p[1] for p in pairs if p is not None}
    if len(units) > 1 and all(p is None or (p[1] in FACTORS_NS and _PLAIN.match(p[0])) for p in pairs):
        pairs = [p and (f"{float(p[0]) * FACTORS_NS[p[1]] / FACTORS_NS['us']:.12g}", "us") for p in pairs]
        units = {"us"}
    if len(units) != 1 or units == {""}:
        return list(column), ""
    return [c if p is None else p[0] for c, p in zip(column, pairs, strict=True)], units.pop()


def decimal_sign(columns: Sequence[Sequence[str]], separator: str) -> tuple[str, tuple[str, ...]]:
    """Returns the decimal sign of the numbers, and notes on how it was determined.

    One number such as 0,5 or 12.34 or 1.234,5 or 1,234,567 is enough. Without one it is a dot, or
    :data:`UNKNOWN` if a number like 1,234 is ambiguous. The ambiguity is resolved, with a note, in two
    cases: fields are separated by commas and all numbers have three digits after a dot; or the other
    reading widens the range of each column too much.
    """
    written = [f for c in columns for f in map(str.strip, c) if ("," in f or "." in f) and is_number(f)]
    either = [f for f in written if EITHER.match(f)]
    shown = {_shown(f) for f in written if not EITHER.match(f)}
    if shown or not either:
        return ("," if "," in shown else "."), ()
    ambiguous = [c for c in columns if any(EITHER.match(f.strip()) for f in c)]
    same = all(EITHER.match(f.strip()) for c in ambiguous for f in c if is_number(f))
    sign = {f[-4] for f in either}
    note = (
        f"{either[0]} was read as {number(either[0], either[0][-4]):g}; if that is wrong: --decimal "
        f"'{'.' if either[0][-4] == ',' else ','}'",
    )
    if len(sign) == 1 and all(_torn(c, either[0][-4]) for c in ambiguous):
        return sign.pop(), note
    if separator == "," and same and sign == {"."}:
        return ".", note
    return UNKNOWN, ()


def _torn(column: Sequence[str], sign: str) -> bool:
    """Returns whether reading ``sign`` as thousands widens the range of a column too much (402.644 beside
    202)."""
    spreads = []
    for decimal in (sign, "." if sign == "," else ","):
        values = [v for f in column if (v := number(f, decimal)) is not None and 0 < v < float("inf")]
        spreads.append(max(values) / min(values))
    return spreads[1] > SPREAD * spreads[0]


def _shown(text: str) -> str:
    """Returns the decimal sign of an unambiguous number that has a comma or a dot."""
    last = "," if text.rfind(",") > text.rfind(".") else "."
    other = "." if last == "," else ","
    return other if text.count(last) > 1 else last


def in_two_ways(text: str, place: str) -> tuple[str, str]:
    """Returns problem and cure of a number like 1,234 if nothing shows the decimal sign."""
    decimal = text[-4]
    other = "." if decimal == "," else ","
    small, large = number(text, decimal), number(text, other)
    return (
        f"{place}: {text} is either {large:,.0f} or {small:g}",
        f"--decimal '{other}' reads {large:.0f}, --decimal '{decimal}' reads {small:g}",
    )
