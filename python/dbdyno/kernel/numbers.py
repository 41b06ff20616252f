"""Numbers in texts that others wrote, such as the kernel of another host: they may hold anything, and
``str.isdigit`` takes more than ``int`` does."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"-?[0-9]{1,20}")


def number(text: str) -> int | None:
    """A whole number of at most 64 bits' digits; None for any other text."""
    return int(text) if _NUMBER.fullmatch(text) else None


def first_number(text: str) -> int | None:
    """The number before a unit: of ``24684096 kB``."""
    words = text.split()
    return number(words[0]) if words else None
