"""What is not the same on both sides: machine, server, settings, how the load was made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dbdyno.model.comparison import Difference
from dbdyno.model.plan import Plan
from dbdyno.model.results import Results
from dbdyno.model.variant import Variant

NONE = "-"
_RUN = ("measure", "settle", "cool_down", "think", "order", "observe", "waits", "sample_hz", "log_calls")
_CHANGING = (
    "server.main_pid",
    "server.where",
    "server.helpers",
    "host.limits.affinity",
    "host.notes",
    "sources",
)
"""They differ from run to run and decide nothing, or are told elsewhere."""


def of_variants(plan: Plan, baseline: str) -> Iterator[Difference]:
    """Each other variant against the baseline, as the plan resolved them; the name is in front."""
    variants = {v.name: v for v in plan.variants}
    first = variants.get(baseline)
    for name, variant in variants.items():
        if first is not None and name != baseline:
            for d in _differences(_flat(_said(first)), _flat(_said(variant))):
                yield d.model_copy(update={"what": f"{name}: {d.what}"})


def of_runs(a: Results, b: Results) -> Iterator[Difference]:
    """Environment, plan and size of a call."""
    left, right = ({**_environment(r), **_plan(r)} for r in (a, b))
    yield from _differences(left, right)


def _environment(results: Results) -> dict[str, str]:
    flat = _flat(results.environment.model_dump(mode="json"))
    return {k: v for k, v in flat.items() if not any(k == c or k.startswith(f"{c}.") for c in _CHANGING)}


def _plan(results: Results) -> dict[str, str]:
    experiment = results.plan.experiment.model_dump(mode="json")
    found = {name: _text(experiment[name]) for name in _RUN}
    for variant in results.plan.variants:
        found |= {f"{variant.name}: {k}": v for k, v in _flat(_said(variant)).items()}
    for name, c in results.info.calibrations.items():
        found[f"size of a call ({name})"] = f"{c.size} {c.size_unit}"
    return found


def _said(variant: Variant) -> dict[str, Any]:
    return variant.model_dump(mode="json", exclude={"name", "doc"})


def _flat(value: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """``{"limits": {"pool": 6}}`` as ``{"limits.pool": "6"}``; what is not said is left out."""
    found: dict[str, str] = {}
    for key, v in value.items():
        name = f"{before}{key}"
        if isinstance(v, Mapping):
            found |= _flat(v, f"{name}.")
        elif v is not None:
            found[name] = _text(v)
    return found


def _text(value: Any) -> str:
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)


def _differences(left: Mapping[str, str], right: Mapping[str, str]) -> Iterator[Difference]:
    for name in dict.fromkeys([*left, *right]):
        a, b = left.get(name, NONE), right.get(name, NONE)
        if a != b:
            yield Difference(what=name, baseline=a, variant=b)
