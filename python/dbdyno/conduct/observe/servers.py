"""An observation of several servers: one observation for each, begun and cut together.

Each is a run of its own in a thread of its own. The loss of one server or host leaves the others alone; the
end that a user asks for ends all.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbdyno import present
from dbdyno.conduct.context import RunContext
from dbdyno.conduct.derive.rebuild import results_of
from dbdyno.conduct.hosts.hosts import host_of, observed_target
from dbdyno.conduct.measure.progress import ObservationListener
from dbdyno.conduct.observe.observation import Observed, observation_plan, observe_server
from dbdyno.conduct.observe.together import GivenUp, Together
from dbdyno.drive import Interrupt, Interrupted
from dbdyno.lazy import ready
from dbdyno.model.engine.machine import Machine
from dbdyno.model.errors import DbdynoError
from dbdyno.model.plan.plan import Experiment
from dbdyno.model.results.results import Results
from dbdyno.store import Run, RunStore, find_group

if TYPE_CHECKING:
    from dbdyno.conduct.metrics.exporter import Exporter

PAGE = "servers.html"
"""File name in the directory of the first run of a group."""
_LOOK_S = 0.1


@dataclass(frozen=True)
class ServerRequest:
    """A server to observe. ``listener`` is called from the thread that observes it."""

    name: str
    dsn: str | None
    machine: Machine
    experiment: Experiment
    listener: ObservationListener


@dataclass(frozen=True)
class ObservedServers:
    """The result, by name: ``stored`` has the servers with stored windows, ``failed`` the others."""

    group: str
    stored: Mapping[str, Observed]
    failed: Mapping[str, Exception]


def observe_servers(
    servers: Sequence[ServerRequest],
    store: RunStore,
    interrupt: Interrupt,
    labels: Mapping[str, Any],
    metrics: Exporter | None = None,
) -> ObservedServers:
    """Observes all servers as :func:`observe_server` does, until the time is over or the user ends it.

    Raises the error of a server that cannot be observed, if none is observed yet. Raises
    :class:`Interrupted` if the user ends it before the first window is saved.
    """
    ready()
    group = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-servers-{secrets.token_hex(2)}"
    together = Together(len(servers))
    stored: dict[str, Observed] = {}
    failed: dict[str, Exception] = {}

    def observe(request: ServerRequest) -> None:
        try:
            host = host_of(request.machine)
            stored[request.name] = observe_server(
                observation_plan(request.experiment, host),
                RunContext(
                    host,
                    observed_target(request.experiment.engine, request.dsn, request.machine),
                    store,
                    request.listener,
                    interrupt,
                    {**labels, "group": group},
                    metrics=metrics,
                ),
                together,
            )
        except Exception as e:
            failed[request.name] = e
            together.fail()
            if together.begun and isinstance(e, DbdynoError):
                request.listener.notice(e.message)

    threads = [threading.Thread(target=observe, args=(s,), name=s.name, daemon=True) for s in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(_LOOK_S)  # in between, a second signal ends this one
    _raise_of(failed, none_stored=not stored)
    return ObservedServers(group, {s.name: stored[s.name] for s in servers if s.name in stored}, failed)


def _raise_of(failed: Mapping[str, Exception], *, none_stored: bool) -> None:
    """Raises a defect of dbdyno or, if nothing is stored, the first error with its server's name."""
    for error in failed.values():
        if not isinstance(error, DbdynoError | Interrupted):
            raise error
    if not none_stored:
        return
    for name, error in failed.items():
        if isinstance(error, DbdynoError) and not isinstance(error, GivenUp | Interrupted):
            error.message = f"{name}: {error.message}"
            raise error
    raise next((e for e in failed.values() if isinstance(e, Interrupted)), Interrupted())


def results_of_group(store: RunStore, wanted: str) -> list[tuple[Run, Results]]:
    """Returns the runs that were observed together, with their results; empty if ``wanted`` is no group.

    See :func:`dbdyno.store.find_group`.
    """
    runs = [Run(path) for path in find_group(store.root, wanted)]
    return [(run, results_of(run)) for run in runs]


def report_group(runs: Sequence[tuple[Run, Results]], output: Path | None = None) -> Path:
    """Writes the page of all servers side by side and returns its path. ``output``: another path, or
    format."""
    path = runs[0][0].path / PAGE if output is None else output
    return present.write(present.servers([results for _, results in runs]), path)
