"""The nearest name, for errors that say the cure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name most like ``word``, or None if none is near."""
    found = difflib.get_close_matches(word, list(names), n=1, cutoff=0.5)
    return found[0] if found else None


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """A sentence with the nearest name, or with all of them."""
    known = sorted(names)
    near = nearest(word, known)
    if near is not None:
        return f"did you mean {near!r}?"
    return f"known: {', '.join(known)}" if known else "there are none"
