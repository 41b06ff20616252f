"""Displays foreign text safely: characters that would control or mislead the reader become visible, and very
long text is cut.

All media use this module: terminal, HTML page, Markdown, workbook, CSV and folded stacks. Letters of all
scripts, combining marks and emoji pass.
"""

from __future__ import annotations

import json
import re
from typing import Any

_STEERING = (
    "\x00-\x08\x0b-\x1f\x7f\x80-\x9f"  # C0 except tab and line feed, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction of writing (Unicode TR9)
    "\u2028\u2029"  # line and paragraph separators
    "\ud800-\udfff"  # surrogates, from bytes that are not UTF-8: no encoding accepts them
)
_UNSEEN = (  # without width: two texts would look the same, or one would conceal another
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
_NO_CHARACTERS = "\ufdd0-\ufdef" + "".join(
    f"{chr(0xFFFE + (n << 16))}{chr(0xFFFF + (n << 16))}" for n in range(17)
)
_BASE = f"[^\x00-\u02ff\u2000-\u206f{_UNSEEN}]"
"""Characters that a joiner may be next to: emoji sequences need it, and so do Persian and Indian letters."""
_IDEOGRAPH = "[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
"""Characters that may precede a variation selector of the supplement."""
_MISPLACED = rf"(?<!{_BASE})[\u200c\u200d]|[\u200c\u200d](?!{_BASE})|(?<!{_IDEOGRAPH})[\U000e0100-\U000e01ef]"
_HIDDEN = f"{_STEERING}{_UNSEEN}{_NO_CHARACTERS}"
_STEERS = re.compile(rf"[{_HIDDEN}]|{_MISPLACED}")
_STEERS_OR_BREAKS = re.compile(rf"[{_HIDDEN}\t\n]|{_MISPLACED}")
_SUSPECT = re.compile(rf"[{_HIDDEN}\u200c\u200d\U000e0100-\U000e01ef]")
"""Characters that :data:`_STEERS` may match, wherever they stand."""
_ESCAPED = re.compile(r"\\(?:u00|[bfr])")
"""The escapes that JSON writes for control characters that do not pass."""
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_LONGEST, _MOST_LINES = 4_000, 60


def visible(text: str) -> str:
    """Returns ``text`` with a picture (``␛``) or ``\\ufffd`` in place of each character that would control a
    terminal or be invisible.

    Each character is replaced by one, so positions stay the same. Tabs and line feeds pass.
    """
    # Most texts are printable ASCII, and this test is much faster than the substitution.
    return text if text.isascii() and text.isprintable() else _STEERS.sub(_picture, text)


def one_line(text: str) -> str:
    """Returns the text of a table cell, like :func:`visible`, but with tabs and line feeds shown, too."""
    return text if text.isascii() and text.isprintable() else _STEERS_OR_BREAKS.sub(_picture, text)


def with_stop(text: str) -> str:
    """Returns the text as a sentence, with a full stop unless it ends with a mark of its own, as messages of
    other programs do: a question mark, an exclamation mark or a full stop."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


def lines(text: str) -> list[str]:
    """Splits text at line feeds only. Other characters that some programs take for line ends stay in place,
    visible."""
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []


def visible_json(value: Any) -> str:
    """Returns ``value`` as JSON with all texts made visible first, because an escape in JSON would become
    the character again."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    # The characters that occur are few, and a search through them is much faster than one through the text.
    if _ESCAPED.search(text) or (_SUSPECT.search("".join(set(text))) and _STEERS.search(text)):
        text = json.dumps(_all_visible(value), separators=(",", ":"), allow_nan=False)
    return text


def _all_visible(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {_all_visible(k): _all_visible(v) for k, v in value.items()}
    return [_all_visible(v) for v in value] if isinstance(value, list | tuple) else value


def shortened(text: str, longest: int = _LONGEST, most_lines: int = _MOST_LINES) -> str:
    """Returns ``text`` cut to a number of characters and lines, followed by the number of characters left
    out."""
    lines = text.split("\n", most_lines)
    kept = "\n".join(lines[:most_lines])[:longest]
    left = len(text) - len(kept)
    return text if left <= 0 else f"{kept} ... ({left:,} more characters)"


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\N{SYMBOL FOR DELETE}" if code == 0x7F else _REPLACEMENT
