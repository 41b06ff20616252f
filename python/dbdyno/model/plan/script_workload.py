"""Represents scripts as a workload."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from dbdyno.model.plan.plan import PlannedScript, Workload

_LONGEST_NAME = 40


def workload_of(scripts: Sequence[PlannedScript], name: str = "") -> Workload:
    """Returns a workload whose calls are transactions of these scripts. ``name`` replaces the name derived
    from them."""
    stems = [PurePath(s.name).stem for s in scripts]
    own = "" if all(s.builtin for s in scripts) else "own "
    return Workload(
        name=name or slugged(stems, "script"),
        title=f"{own}script{'' if len(stems) == 1 else 's'} {', '.join(stems)}",
        doc="\n".join(s.text.strip() for s in scripts)[:400],
        work_unit="logical reads",
        work_short="LIO",
        work_constant=False,
        calibrated=False,
    )


def slugged(names: Sequence[str], otherwise: str) -> str:
    """Returns one name for several, made of lower-case letters, digits and hyphens."""
    joined = "-".join("".join(c if c.isalnum() else "-" for c in n.lower()).strip("-") for n in names)
    return joined[:_LONGEST_NAME].strip("-") or otherwise
