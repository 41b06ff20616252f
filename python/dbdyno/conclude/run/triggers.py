"""Reports the triggers of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, Row
from dbdyno.model.results.claim import Claim
from dbdyno.model.schema.tables import empty
from dbdyno.model.units import NS_PER_S, format_ns

_NAMED = 6
OVER_BUDGET = "over budget"


@check("trigger-fired", "trigger-never-fired", "trigger-action-failed", "trigger-budget-used", of="whole")
def fired(case: Case) -> Iterator[Claim]:
    """Yields one claim per trigger (when it fired and what was captured, or that it never did) and claims
    about failures."""
    rows = case.tables.get("triggers_fired", empty("triggers_fired")).sort("number").to_dicts()
    for number, spec in enumerate(case.plan.experiment.triggers, 1):
        firings = [r for r in rows if r["trigger"] == number]
        values: dict[str, Any] = {"trigger": number, "condition": spec.when}
        if not firings:
            yield claim("trigger-never-fired", values)
            continue
        times = len({r["at_ns"] for r in firings})
        done = [r for r in firings if r["status"] in ("ok", "short")]
        firing_values = values | {
            "times": times,
            "when": _listed(_when(case, firings)),
            "captured": _listed(_counted([r["action"] for r in done])) or "nothing",
            "bytes": float(sum(r["size_bytes"] for r in firings)),
            "late_s": max((r["noticed_ns"] - r["at_ns"]) / NS_PER_S for r in firings),
        }
        cells = list(dict.fromkeys(r["cell"] for r in firings if r["cell"]))
        yield claim("trigger-fired", firing_values, float(times), cells=cells)
    yield from _failed(rows)


def _failed(rows: Sequence[Row]) -> Iterator[Claim]:
    """Yields one claim per reason of failure."""
    failed = [r for r in rows if r["status"] in ("failed", "under way")]
    for action, why in dict.fromkeys((r["action"], r["detail"]) for r in failed):
        same = [r for r in failed if (r["action"], r["detail"]) == (action, why)]
        values = {"action": action, "times": len(same), "why": why, "trigger": same[0]["trigger"]}
        case = "exec" if action.startswith("exec ") else "other"
        yield claim("trigger-action-failed", values, float(len(same)), case=case)
    if over_budget := [r for r in rows if r["status"] == OVER_BUDGET]:
        values = {"count": len(over_budget), "why": over_budget[0]["detail"]}
        yield claim("trigger-budget-used", values, float(len(over_budget)))


def _when(case: Case, rows: Sequence[Row]) -> list[str]:
    """Describes each firing once: ``sessions = 10 after 12.3 s``."""
    first_ns = min((w["t0_ns"] for w in case.tables["windows"].to_dicts()), default=rows[0]["at_ns"])
    once = {r["at_ns"]: r for r in reversed(rows)}
    texts = []
    for at_ns in sorted(once):
        row = once[at_ns]
        condition = row["matched"] if row["matched"] != row["condition"] else row["measured"]
        texts.append(f"{condition} after {format_ns(max(0, at_ns - first_ns))}")
    return texts


def _counted(names: Sequence[str]) -> list[str]:
    """Describes names with their count: ``profile 10s (3 times)``."""
    return [n if (c := names.count(n)) == 1 else f"{n} ({c} times)" for n in dict.fromkeys(names)]


def _listed(words: Sequence[str]) -> str:
    more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return ", ".join(words[:_NAMED]) + more
