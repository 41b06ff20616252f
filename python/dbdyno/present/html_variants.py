"""The variants of a run: what each did otherwise, how it was put on, and what the server showed."""

from __future__ import annotations

from dbdyno.model.results import Applied, Results
from dbdyno.model.variant import Variant
from dbdyno.present.markup import Content, Html, el, table

_HEADS = ["variant", "what it did otherwise", "how it was put on", "in force"]


def variants(results: Results) -> Html | None:
    """None where nothing was varied, limited or set."""
    plan = results.plan
    if len(plan.variants) < 2 and not any(v.words() for v in plan.variants):
        return None
    named = {n for v in plan.experiment.variants.values() for n in v.params}
    rows = [_row(v, results.info.applied.get(v.name, Applied()), named) for v in plan.variants]
    return el("div", table("Variants", _HEADS, rows), style="margin-top:16px")


def _row(variant: Variant, applied: Applied, named: set[str]) -> list[Content]:
    params = ", ".join(f"{n}={variant.params[n]}" for n in sorted(named))
    said = ", ".join(filter(None, (variant.words(), params))) or "nothing"
    name = f"{variant.name}: {variant.doc}" if variant.doc else variant.name
    how = "; ".join([*applied.limits, *_restarts(applied)])
    force = ", ".join(f"{n} = {v}" for n, v in applied.settings.items())
    return [name, said, how, force]


def _restarts(applied: Applied) -> list[str]:
    return [f"server restarted for {', '.join(applied.restarts)}"] if applied.restarts else []
