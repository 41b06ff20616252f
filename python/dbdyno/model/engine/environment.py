"""What stood around a run: machine, limits, kernel, server. Stored as environment.json."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from dbdyno.model.engine.condition import Condition
from dbdyno.model.engine.machine import Reached
from dbdyno.model.sources.source import Source
from dbdyno.model.sources.wait_families import Helper


class Cpu(BaseModel):
    model_config = ConfigDict(frozen=True)

    model: str | None
    logical: int  # online
    cores: int | None
    sockets: int | None
    numa_nodes: int | None
    threads_per_core: int | None
    max_mhz: float | None = None


class Limits(BaseModel):
    """What the process may really use: affinity and the tightest cgroup quota above it."""

    model_config = ConfigDict(frozen=True)

    affinity: tuple[int, ...]
    quota_cpus: float | None  # None: no quota
    quota_where: str | None  # the group's directory
    cgroup_version: int | None
    usable_cpus: float  # min(affinity, quota)
    memory_bytes: int | None
    open_files: int


class Host(BaseModel):
    model_config = ConfigDict(frozen=True)

    kernel: str
    distribution: str | None
    virtualisation: str | None
    clock_ticks_per_s: int
    cpu: Cpu
    limits: Limits
    memory_bytes: int | None
    clocksource: str | None = None  # that the kernel reads the time from
    siblings: tuple[tuple[int, ...], ...] | None = None  # CPUs of each core; None: unknown, or an older run
    notes: tuple[str, ...] = ()


class ServerFacts(BaseModel):
    """What the control connection learnt. No credentials."""

    model_config = ConfigDict(frozen=True)

    engine: str
    version: str  # "18.4"
    version_num: int  # 180004
    description: str  # version() or the like
    where: str  # host and port or socket directory, database, user: no password
    embedded: bool
    standby: bool | None = None  # replays what a primary sends; None: unknown, or an older run
    tls: str | None
    here: bool  # its processes are seen: on this host or the one reached, in a pid namespace that is seen
    here_detail: str  # how that was found out
    main_pid: int | None  # the server's main process, where here
    reached: Reached | None = None  # how its host was reached, where that is not the one dbdyno runs on
    settings: dict[str, str]  # name -> value with unit, those that matter and those not at their default
    product: str = ""  # the system's own name
    helpers: dict[str, Helper] = {}  # what its own processes are for, by their names
    own_cpus: float | None = None  # CPUs of its machine, where that is not this host
    clock: dict[str, str] = {}  # what reading the clock costs it; asked where a variant concerns timing calls

    @property
    def local(self) -> bool:
        """Whether its processes are on the very host that dbdyno runs on."""
        return self.here and self.reached is None

    @property
    def why_not_local(self) -> str:
        """Why nothing can be done to its processes."""
        if not self.here or self.reached is None:
            return self.here_detail
        return f"they are on {self.reached.host}, which is only read, over {self.reached.by}"


class Environment(BaseModel):
    model_config = ConfigDict(frozen=True)

    dbdyno: str
    host: Host  # the server's, where it was reached; else the one dbdyno runs on
    server: ServerFacts
    client: Host | None = None  # the one dbdyno runs on, where that is another
    sources: tuple[Source, ...]
    conditions: tuple[Condition, ...] = ()  # checks that ask for a look; none of an older run

    def with_conditions(self, more: Sequence[Condition]) -> Environment:
        """Those that came out otherwise than all before."""
        known = {(c.id, c.value) for c in self.conditions}
        new = tuple(c for c in more if (c.id, c.value) not in known)
        return self.model_copy(update={"conditions": (*self.conditions, *new)}) if new else self
