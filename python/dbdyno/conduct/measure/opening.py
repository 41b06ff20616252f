"""The files and conditions around a run or an observation when it begins."""

from __future__ import annotations

from dbdyno import __version__, observe
from dbdyno.conduct.hosts.hosts import check_reached, other_client
from dbdyno.conduct.measure.conditions import before_run
from dbdyno.conduct.measure.prepare import server_facts
from dbdyno.model.engine.environment import Environment, Host, ServerFacts
from dbdyno.model.engine.protocols import Server
from dbdyno.model.plan.plan import Plan


def facts_now(server: Server, plan: Plan) -> ServerFacts:
    """Returns the server's facts with the CPUs that it may use, where they can be read."""
    facts = server_facts(server, plan)
    if server.world is None and facts.here and facts.own_cpus is None and facts.main_pid is not None:
        return facts.model_copy(update=observe.server_limits(facts.main_pid, server.machine.root))
    return facts


def environment_now(server: Server, plan: Plan, host: Host, window_ns: int | None) -> Environment:
    """Returns the environment of a run whose shortest window is ``window_ns``. Raises :class:`TargetError`,
    :class:`NotAvailable` if the server's host is not what it was named as, or its clock is not known well
    enough."""
    facts = facts_now(server, plan)
    check_reached(server, facts, window_ns)
    return Environment(
        dbdyno=__version__,
        host=host,
        server=facts,
        client=other_client(server.machine),
        sources=tuple(server.sources()),
        conditions=before_run(server, facts),
    )
