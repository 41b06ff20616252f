"""Text from outside, to be shown: what would steer or mislead becomes visible, what is endless is cut.

It is decided here alone, for all media: terminal, HTML page, Markdown, workbook, CSV and folded stacks.
Letters of all scripts, combining marks and emoji pass.
"""

from __future__ import annotations

import json
import re
from typing import Any

_STEERING = (
    "\x00-\x08\x0b-\x1f\x7f\x80-\x9f"  # C0 (but tab and line feed), DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # order of writing (Unicode TR9)
    "\u2028\u2029"  # line and paragraph separators
    "\ud800-\udfff"  # halves of a pair, from bytes that are no UTF-8: no encoding takes them
)
_UNSEEN = (  # takes no room: two texts look the same, or one holds another
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
_NO_CHARACTERS = "\ufdd0-\ufdef" + "".join(
    f"{chr(0xFFFE + (n << 16))}{chr(0xFFFF + (n << 16))}" for n in range(17)
)
_BASE = f"[^\x00-\u02ff\u2000-\u206f{_UNSEEN}]"
"""What a joiner may stand beside: emoji are joined, and Persian and Indian letters joined or parted."""
_IDEOGRAPH = "[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
"""What a variation selector of the supplement may stand behind."""
_MISPLACED = rf"(?<!{_BASE})[\u200c\u200d]|[\u200c\u200d](?!{_BASE})|(?<!{_IDEOGRAPH})[\U000e0100-\U000e01ef]"
_HIDDEN = f"{_STEERING}{_UNSEEN}{_NO_CHARACTERS}"
_STEERS = re.compile(rf"[{_HIDDEN}]|{_MISPLACED}")
_STEERS_OR_BREAKS = re.compile(rf"[{_HIDDEN}\t\n]|{_MISPLACED}")
_ESCAPED = re.compile(r"\\(?:u00|[bfr])")
"""What JSON writes for control characters that do not pass."""
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_LONGEST, _MOST_LINES = 4_000, 60


def visible(text: str) -> str:
    """``text`` with a picture (``␛``) or ``\ufffd`` for each character that a reader would obey, or not see.

    Character for character, so that positions stay. Tabs and line feeds pass.
    """
    return text if text.isascii() and text.isprintable() else _STEERS.sub(_picture, text)


def one_line(text: str) -> str:
    """As :func:`visible`, for a cell of a table: tabs and line feeds are shown, too."""
    return text if text.isascii() and text.isprintable() else _STEERS_OR_BREAKS.sub(_picture, text)


def lines(text: str) -> list[str]:
    """Parted at the ends of lines alone: other characters that part lines are shown where they stand."""
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []


def visible_json(value: Any) -> str:
    """``value`` as JSON whose texts are all visible: escapes would come to what they stand for."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    if _ESCAPED.search(text) or _STEERS.search(text):
        text = json.dumps(_all_visible(value), separators=(",", ":"), allow_nan=False)
    return text


def _all_visible(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {_all_visible(k): _all_visible(v) for k, v in value.items()}
    return [_all_visible(v) for v in value] if isinstance(value, list | tuple) else value


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
