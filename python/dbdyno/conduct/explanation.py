"""Explains a word of the output, with what the default engine knows of its wait events."""

from __future__ import annotations

from dbdyno import engines
from dbdyno.conclude import words


def explanation(term: str) -> str:
    """Returns the explanation of a column head, an account, a term, a wait event, or a claim. Raises
    :class:`UsageError` if there is none."""
    if "/" not in term:
        return words.explanation(term)
    engine = engines.DEFAULT  # a wait event is CLASS/NAME
    families, advice = engines.wait_families(engine), engines.wait_advice(engine)
    return words.explanation(term, families, advice, engines.wait_event_names(engine))
