"""The CPUs of the server, which may be on another host than the driver."""

from __future__ import annotations

from dbdyno.model.engine.environment import Environment
from dbdyno.model.plan.plan import Plan, cpus_under


def server_cpus(plan: Plan, variant: str, environment: Environment) -> float | None:
    """Returns how many CPUs the server may use under a variant's limits; None if it is on a host whose CPUs
    are not known."""
    if not environment.server.here:
        return None
    own = environment.server.own_cpus
    return cpus_under(plan.variant(variant).limits, plan.cpus if own is None else own)
