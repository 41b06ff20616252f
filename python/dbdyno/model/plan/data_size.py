"""The size of a measurement's data: the workload's parameter ``scale``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dbdyno.model.plan.plan import Workload

SIZE = "scale"


def size_of(workload: Workload, params: Mapping[str, object]) -> int | None:
    """Returns the scale of a measurement with these parameters; ``None`` if its workload has no such
    parameter."""
    known = workload.parameters.get(SIZE)
    value = params.get(SIZE, None if known is None else known.default)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def size_words(workload: Workload, size: int) -> str:
    """Returns the size in words: ``25,000 orders``, or ``scale 4`` if the unit of the scale is unknown."""
    known = workload.parameters.get(SIZE)
    if known is None or known.counts is None:
        return f"{SIZE} {size:,}"
    each, what = known.counts
    return f"{each * size:,} {what}"


class FewRows(NamedTuple):
    """A number of rows that is smaller than the number of sessions that change them."""

    rows: str  # "4 warehouses"
    what: str  # "warehouses"
    cure: str


def few_rows(workload: Workload, params: Mapping[str, object], sessions: int) -> FewRows | None:
    """Returns the rows that a workload's calls change, if there are fewer of them than sessions, so that
    sessions wait for each other; None otherwise."""
    for name, parameter in workload.parameters.items():
        value = params.get(name, parameter.default)
        if parameter.rows is None or not isinstance(value, int) or value >= sessions:
            continue
        others = {p: params.get(p, workload.parameters[p].default) for p in parameter.rows.having}
        if others == parameter.rows.having:
            one, many = parameter.rows.one, parameter.rows.many
            cure = parameter.rows.cure.format(n=sessions)
            return FewRows(f"{value:,} {one if value == 1 else many}", many, cure)
    return None
