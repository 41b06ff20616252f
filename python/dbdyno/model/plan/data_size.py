"""How large the data of a measurement are: the workload's parameter ``scale``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dbdyno.model.plan.plan import Workload

SIZE = "scale"


def size_of(workload: Workload, params: Mapping[str, object]) -> int | None:
    """The scale of a measurement with these parameters; ``None``: its workload has no such parameter."""
    known = workload.parameters.get(SIZE)
    value = params.get(SIZE, None if known is None else known.default)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def size_words(workload: Workload, size: int) -> str:
    """``25,000 orders``; ``scale 4`` where what it counts is not known."""
    known = workload.parameters.get(SIZE)
    if known is None or known.counts is None:
        return f"{SIZE} {size:,}"
    each, what = known.counts
    return f"{each * size:,} {what}"


class FewRows(NamedTuple):
    """Fewer rows than sessions that change them."""

    rows: str  # "4 warehouses"
    what: str  # "warehouses"
    cure: str


def few_rows(workload: Workload, params: Mapping[str, object], sessions: int) -> FewRows | None:
    """The rows of a workload whose calls change one of so few that sessions wait for each other."""
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
