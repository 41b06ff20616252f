"""Decides whether a workload's data are restored before measurements, and estimates the time for it."""

from __future__ import annotations

from collections.abc import Sequence

from dbdyno.model.errors import UsageError
from dbdyno.model.plan.plan import Choice, Plan, Workload
from dbdyno.model.plan.resetting import DataSet, PlannedReset, Reset, changes_rows
from dbdyno.plan.planner import estimated

_ROW_NS = 3_000
_ONE_NS = 500_000_000


def with_resets(plan: Plan, sets: Sequence[DataSet]) -> Plan:
    """Returns ``plan`` with the reset that its experiment requests, or else the default for its data, and
    with the time for it. ``sets`` are the data sets that the workload uses. Raises :class:`UsageError` if
    the reset is impossible."""
    reset, reason = _chosen(plan, sets)
    if reset == "never" and not reason:
        return plan
    changed = {
        "reset": PlannedReset(when=reset, each_ns=_ONE_NS + _ROW_NS * sum(s.rows for s in sets)),
        "choices": (*plan.choices, Choice(name="reset", value=reset, reason=reason)),
    }
    return estimated(plan.model_copy(update=changed))


def supposed(plan: Plan, workload: Workload) -> Plan:
    """Returns ``plan`` with the probable reset, for plans made without asking a server."""
    reset = _wanted(plan)
    if reset is None and all(s.builtin for s in plan.scripts) and _changes(plan, workload):
        reset = "each"
    if reset in (None, "never"):
        return plan
    reason = "where dbdyno prepared the tables; --dry-run does not look at the server"
    choice = Choice(name="reset", value=str(reset), reason=reason)
    return plan.model_copy(update={"choices": (*plan.choices, choice)})


def _changes(plan: Plan, workload: Workload) -> bool:
    """Returns whether calls change rows, by the scripts or by the workload's declaration for the parameters
    of any variant."""
    kinds = [v.params for v in plan.variants]
    of_rows = [p.rows.having for p in workload.parameters.values() if p.rows is not None]
    return any(changes_rows(s.text) for s in plan.scripts) or any(
        having.items() <= params.items() for having in of_rows for params in kinds
    )


def _chosen(plan: Plan, sets: Sequence[DataSet]) -> tuple[Reset, str]:
    """Returns the reset and its reason, which is empty if there is nothing to report."""
    asked, changing = _wanted(plan), [s for s in sets if s.written]
    if asked == "never":
        return "never", "--reset never: what calls change stays for later measurements" if changing else ""
    if asked is not None:
        return asked, _asked(plan, asked, sets)
    if any(not s.builtin for s in plan.scripts):
        return "never", _own(plan, changing)
    if not changing:
        return "never", ""
    if refused := next((s.refused for s in changing if s.refused), ""):
        return "never", f"data are not brought back between measurements: {refused}"
    return (
        "each",
        "calls change rows: each measurement begins with the same data; --reset never keeps the changes",
    )


def _wanted(plan: Plan) -> Reset | None:
    """Returns the requested reset; None if there is no request. Dropping the caches implies a reset, since
    caches are dropped when data are restored."""
    asked = plan.experiment.reset
    if plan.experiment.reset_cache != "dropped":
        return asked
    if asked == "never":
        raise UsageError('reset_cache = "dropped" with reset = "never"', 'reset = "each" or "block"')
    return asked or "each"


def _asked(plan: Plan, asked: Reset, sets: Sequence[DataSet]) -> str:
    cold = plan.experiment.reset_cache == "dropped"
    what = f"--reset {asked}" if plan.experiment.reset else 'reset_cache = "dropped"'
    cure = 'reset = "never" with reset_cache = "warm"' if cold else "--reset never"
    if not sets:
        raise UsageError(
            f"{what}: the workload uses no tables that dbdyno workload prepare made",
            f"{cure}; data of your own can be brought back between runs only",
        )
    if refused := next((s.refused for s in sets if s.refused), ""):
        raise UsageError(f"{what}: {refused}", cure)
    then = ", if calls changed them, and dropped from the caches" if cold else ""
    return f"{what}: the tables of {', '.join(s.name for s in sets)} are loaded again{then}"


def _own(plan: Plan, changing: Sequence[DataSet]) -> str:
    """Returns the reason for no reset if the user brings scripts; empty if there is nothing to report."""
    if ours := [s.name for s in changing if not s.refused]:
        return f"scripts of your own; --reset each brings back the tables of {', '.join(ours)}"
    if any(changes_rows(s.text) for s in plan.scripts):
        return "the scripts may change rows of tables that dbdyno did not make: those stay as they are"
    return ""
