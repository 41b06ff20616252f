"""What is asked of an embedded server, and what one was started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dbdyno.model.errors import ServerBusy, TooFewConnections

LEAST_CONNECTIONS = 100
OWN_CONNECTIONS = 3  # control, activity, calibration
SPARE_CONNECTIONS = 10  # these, psql, and what PostgreSQL keeps for superusers


@dataclass(frozen=True)
class Wish:
    """What is to run. ``sessions``: it needs room for so many besides our own connections."""

    settings: Mapping[str, str] = field(default_factory=dict)
    sessions: int = 1
    max_connections: int | None = None
    fresh: bool = False
    stay: bool = False  # until it is stopped by name, not with its owner

    @property
    def connections(self) -> int:
        needed = self.max_connections or self.sessions + SPARE_CONNECTIONS
        return needed if self.max_connections else max(LEAST_CONNECTIONS, needed)


@dataclass(frozen=True)
class Started:
    """``instance.json``."""

    pid: int
    start_ticks: int
    stay: bool
    owner_pid: int
    started: float  # seconds since 1970
    max_connections: int
    settings: dict[str, str]
    bin_dir: str
    version: str
    base: dict[str, str] = field(default_factory=dict)  # all settings of its file, ours too
    locked: bool = False  # holds ``server.lock`` as long as it lives


def check_fits(last: Started, wish: Wish) -> None:
    """Whether the server that runs already will do."""
    whose = "was started to stay" if last.stay else f"belongs to the run of process {last.owner_pid}"
    cure = "stop it first: dbdyno server stop" if last.stay else "wait until that has ended"
    if wish.fresh:
        raise ServerBusy(f"the embedded server is running: it {whose}", cure)
    if last.max_connections < (wish.max_connections or wish.sessions + OWN_CONNECTIONS):
        raise TooFewConnections(
            f"the embedded server {whose} with max_connections = {last.max_connections}, "
            f"too few for {wish.sessions} sessions"
            if wish.max_connections is None
            else "not as asked for",
            f"dbdyno server stop, then dbdyno server start --max-connections {wish.connections}"
            if last.stay
            else cure,
        )
    wrong = {k: v for k, v in wish.settings.items() if last.settings.get(k) != v}
    if wrong:
        said = ", ".join(f"{k}={v}" for k, v in wrong.items())
        raise ServerBusy(f"the embedded server {whose}, without the settings {said}", cure)
