"""Removes hidden arguments of commands from parameters and plans before they are stored."""

from __future__ import annotations

from collections.abc import Mapping

from dbdyno.model.plan.plan import Plan, Value


def harmless(params: Mapping[str, Value], axes: Mapping[str, object]) -> dict[str, Value]:
    """Returns the parameters that are numbers on an axis, because variants are named by them. Texts and
    parameters common to all variants are removed."""
    return {n: v for n, v in params.items() if n in axes and not isinstance(v, str)}


def storable(plan: Plan) -> Plan:
    """Returns the plan without arguments, environments, files and text parameters of commands if
    ``hide_args`` is set."""
    e = plan.experiment
    if not e.hide_args:
        return plan
    bare = {
        n: v.model_copy(update={"jobs": (), "params": harmless(v.params, e.axes)})
        for n, v in e.variants.items()
    }
    axes = {n: values for n, values in e.axes.items() if not any(isinstance(v, str) for v in values)}
    gone: dict[str, object] = {"command": None, "jobs": (), "params": {}, "setup": None, "cleanup": None}
    variants = [
        v.model_copy(
            update={"jobs": tuple(j.hidden for j in v.jobs), "setup": v.setup[:1], "cleanup": v.cleanup[:1]}
        )
        for v in plan.variants
    ]
    bared = e.model_copy(update={**gone, "variants": bare, "axes": axes})
    return plan.model_copy(update={"experiment": bared, "variants": tuple(variants)}).sealed()
