"""What a ladder was climbed on: the CPUs and cores that the server might use."""

from __future__ import annotations

from dbdyno.conclude.catalogue import sentence
from dbdyno.model.cpu_lists import parse
from dbdyno.model.results import Results
from dbdyno.model.scaling import Machine
from dbdyno.model.variant import cpus_under


def machine_of(results: Results, variant: str) -> tuple[Machine, tuple[str, ...]]:
    """The machine under a variant's limits, and notes on what is not known of it and why."""
    host, server = results.environment.host, results.environment.server
    if not server.here:
        return Machine(), (sentence("ladder-note", case="elsewhere"),)
    limits = results.plan.variant(variant).limits
    if server.own_cpus is not None:
        return Machine(cpus=cpus_under(limits, server.own_cpus)), ()
    cpus = cpus_under(limits, results.plan.cpus)
    cores = cores_for(results, variant)
    if cores is None and host.cpu.cores is not None and cpus == host.cpu.logical:
        return Machine(cpus, host.cpu.cores, host.cpu.threads_per_core, host.cpu.model), ()
    if cores is None:
        return Machine(cpus=cpus, model=host.cpu.model), (sentence("ladder-note", case="no-cores"),)
    return Machine(
        cpus=cpus,
        cores=min(float(len(cores)), cpus),
        threads_per_core=max(len(core) for core in cores),
        model=host.cpu.model,
    ), ()


def cores_for(results: Results, variant: str) -> tuple[tuple[int, ...], ...] | None:
    """The CPUs of each core that the server may use under a variant; ``None``: not known, or not our host."""
    host, server = results.environment.host, results.environment.server
    if host.siblings is None or not server.here or server.own_cpus is not None:
        return None
    limits = results.plan.variant(variant).limits
    allowed = set(parse(limits.cpus, "cpus")) if limits.cpus is not None else set(host.limits.affinity)
    shared = (tuple(cpu for cpu in core if cpu in allowed) for core in host.siblings)
    return tuple(core for core in shared if core) or None
