"""Claims about executions of commands, in their words: :mod:`dbdyno.model.text.command_words`."""

from __future__ import annotations

from collections.abc import Iterable

from dbdyno.model.results.claim import Claim
from dbdyno.model.text.command_words import in_words

_THEIR_OWN = ("detail", "job", "variant", "fast", "slow")
"""Values of claims that users and their commands have written."""


def of_commands(found: Claim, names: Iterable[str] = ()) -> Claim:
    """``names``: what users call things, and is not in the claim's own values: it stays as it is."""
    own = (found.said.get(name) for name in _THEIR_OWN)
    kept = [v for v in (*own, *names) if isinstance(v, str) and v]
    said = {name: in_words(getattr(found, name), *kept) for name in ("text", "evidence", "advice")}
    return found.model_copy(update=said)
