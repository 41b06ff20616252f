"""Parses numbers in untrusted text, such as files of another host's kernel. ``str.isdigit`` accepts more
than ``int`` does."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"-?[0-9]{1,20}")


def number(text: str) -> int | None:
    """Returns a whole number of at most 20 digits; None for any other text."""
    return int(text) if _NUMBER.fullmatch(text) else None


def first_number(text: str) -> int | None:
    """Returns the number before a unit, as in ``24684096 kB``."""
    words = text.split()
    return number(words[0]) if words else None
