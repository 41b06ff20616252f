"""Represents jobs as a workload."""

from __future__ import annotations

from collections.abc import Sequence

from dbdyno.model.errors import UsageError
from dbdyno.model.plan.jobs import PlannedJob
from dbdyno.model.plan.plan import Workload
from dbdyno.model.plan.script_workload import slugged


def workload_of_jobs(jobs: Sequence[PlannedJob], name: str = "") -> Workload:
    """Returns a workload whose calls are executions of these jobs. ``name`` replaces the name derived from
    them. Raises :class:`UsageError` if their units of work differ, because such work has no sum."""
    named = list(dict.fromkeys(j.name for j in jobs))
    units = sorted({j.work_unit for j in jobs})
    if len(units) > 1:
        raise UsageError(
            f"the jobs' work is of several kinds: {', '.join(units)}",
            "give all of them the same --work-bytes or --work-regex with --work-unit, or none",
        )
    return Workload(
        name=name or slugged(named, "command"),
        title=f"command{'' if len(named) == 1 else 's'} {', '.join(named)}",
        doc="\n".join(dict.fromkeys(j.shown.strip() for j in jobs))[:400],
        work_unit=units[0],
        work_short=units[0],
        work_constant=False,
        calibrated=False,
    )
