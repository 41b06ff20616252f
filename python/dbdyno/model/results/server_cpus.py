"""The CPUs of the server, which may be on another host than the driver, and the limit that leaves it fewer
than its machine has."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dbdyno.model.engine.environment import Environment
from dbdyno.model.plan.plan import Plan, cpus_under


class ServerCpus(NamedTuple):
    """How many CPUs the server may use, and why no more."""

    cpus: float
    of: int | None = None
    """The CPUs of its machine, if they are more."""
    limit: str = ""
    """The limit in words; empty without one."""
    quota: bool = False
    """Whether the limit is of CPU time, on whichever CPUs it is used."""
    cure: str = ""
    """How to raise the quota."""


def server_cpus(plan: Plan, variant: str, environment: Environment) -> ServerCpus | None:
    """Returns how many CPUs the server may use under a variant's limits; None if it is on a host whose CPUs
    are not known."""
    server, limits, here = (
        environment.server_of(variant),
        plan.variant(variant).limits,
        environment.host.limits,
    )
    if not server.here:
        return None
    own = next(n for n in (server.own_cpus, server.allowed_cpus, plan.cpus) if n is not None)
    before = min(own, own if server.quota_cpus is None else server.quota_cpus)
    cpus = cpus_under(limits, before)
    logical = environment.host.cpu.logical
    of = logical if server.own_cpus is None and cpus < logical else None
    if limits.quota is not None and limits.quota == cpus:
        option = _option(plan, variant, "quota")
        return ServerCpus(cpus, of, f"limit by dbdyno: {option}", quota=True, cure=f"raise or drop {option}")
    if cpus < before:
        return ServerCpus(cpus, of, f"limit by dbdyno: {_option(plan, variant, 'cpus')}")
    quotas = ((server.quota_cpus, server.quota_where), (here.quota_cpus, here.quota_where))
    where = next((place for quota, place in quotas if quota == cpus and place is not None), None)
    if where is not None:
        return ServerCpus(cpus, of, f"quota of {where}", quota=True, cure=f"raise the quota of {where}")
    return ServerCpus(cpus, of, "" if of is None else "affinity of the server")


def _option(plan: Plan, variant: str, name: Literal["cpus", "quota"]) -> str:
    """Returns a limit of CPUs as it was given."""
    value = getattr(plan.variant(variant).limits, name)
    text = f"{name}={value}" if name == "cpus" else f"{name}={value:g}"
    given = getattr(plan.experiment.limits, name) == value
    return f"--limit {text}" if given else f"{text} of variant {variant}"
