"""The surroundings of a run: machine, server, store, listener."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dbdyno.conduct.measure.crew import Crew
from dbdyno.drive import Interrupt
from dbdyno.kernel.turns import Turn
from dbdyno.model.engine.environment import Host
from dbdyno.model.engine.protocols import Target
from dbdyno.store import RunStore

if TYPE_CHECKING:
    from dbdyno.conduct.metrics.exporter import Exporter

Listener = TypeVar("Listener")


@dataclass(frozen=True)
class RunContext(Generic[Listener]):
    """All that a run needs besides its plan.

    ``host``: the machine that is described. ``interrupt``: ends the run early. ``labels``: fields of
    :class:`dbdyno.model.results.results.Labels`. ``crew``: hosts that drive in place of this one. ``turn``:
    names this run to other runs on this machine. ``metrics``: where figures of windows are served.
    """

    host: Host
    target: Target
    store: RunStore
    listener: Listener
    interrupt: Interrupt
    labels: Mapping[str, Any] = field(default_factory=dict)
    crew: Crew | None = None
    turn: Turn | None = None
    metrics: Exporter | None = None
