"""Which ladder of one run belongs to which of the other."""

from __future__ import annotations

from collections.abc import Sequence

from dbdyno.model.errors import UsageError
from dbdyno.model.scaling import Ladder


def pairs(a: Sequence[Ladder], b: Sequence[Ladder]) -> tuple[tuple[Ladder, Ladder], ...]:
    """Those of one name; or the only one of each. Raises :class:`UsageError` where there are none."""
    others = {ladder.name: ladder for ladder in b}
    found = tuple((ladder, others[ladder.name]) for ladder in a if ladder.name in others)
    if found:
        return found
    if len(a) == len(b) == 1:
        return ((a[0], b[0]),)
    raise UsageError(
        f"no ladder in common: {_names(a)} against {_names(b)}",
        "measure the same workload and variant on both machines",
    )


def _names(ladders: Sequence[Ladder]) -> str:
    return ", ".join(ladder.name for ladder in ladders) or "none"
