"""The environment of a run: machine, limits, kernel and server. Stored as environment.json."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pydantic import BaseModel, ConfigDict

from dbdyno.model.engine.condition import Condition
from dbdyno.model.engine.machine import Reached
from dbdyno.model.sources.source import Source
from dbdyno.model.sources.wait_families import Helper
from dbdyno.model.units import joined


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
    """The CPUs and memory that the process may use, by its affinity and the tightest cgroup quota above
    it."""

    model_config = ConfigDict(frozen=True)

    affinity: tuple[int, ...]
    quota_cpus: float | None  # None if there is no quota
    quota_where: str | None  # directory of the control group with the quota
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
    clocksource: str | None = None  # the clock source that the kernel uses
    # CPUs of each core; None if unknown, and in older runs
    siblings: tuple[tuple[int, ...], ...] | None = None
    notes: tuple[str, ...] = ()


class ServerFacts(BaseModel):
    """Facts read by the control connection. They contain no credentials."""

    model_config = ConfigDict(frozen=True)

    engine: str
    version: str  # "18.4"
    version_num: int  # 180004
    doubt: str = ""  # what is not done because no test has run on this version; empty if it is known
    description: str  # version() or the like
    where: str  # host and port or socket directory, database, user: no password
    embedded: bool
    service: str = ""  # the managed service that runs it, whose hosts cannot be entered; empty: none known
    standby: bool | None = None  # whether it replays from a primary; None if unknown, and in older runs
    tls: str | None
    here: bool  # its processes are visible, on this host or the one reached, in a visible pid namespace
    here_detail: str  # how this was determined
    main_pid: int | None  # the server's main process, if visible
    reached: Reached | None = None  # the connection to the server's host, if that is another one
    # value with unit by name: settings that matter and settings that differ from the default
    settings: dict[str, str]
    product: str = ""  # the system's own name
    helpers: dict[str, Helper] = {}  # the purpose of each background process, by name
    own_cpus: float | None = None  # CPUs of the server's machine, if that is another host
    # CPUs that its main process may run on, and the tightest quota of its control groups, before dbdyno
    # limits it; None if unknown or without a quota, and in older runs
    allowed_cpus: int | None = None
    quota_cpus: float | None = None
    quota_where: str | None = None
    # the cost of reading the clock on the server; filled only if variants differ in timing
    clock: dict[str, str] = {}

    @property
    def name(self) -> str:
        """Product and version."""
        return f"{self.product or self.engine} {self.version}".rstrip()

    @property
    def local(self) -> bool:
        """Whether the server's processes are on the host that dbdyno runs on."""
        return self.here and self.reached is None

    @property
    def why_not_local(self) -> str:
        """The reason why the server's processes cannot be changed."""
        if not self.here or self.reached is None:
            return self.here_detail
        return f"they are on {self.reached.host}, which is only read, over {self.reached.by}"


class SettingDifference(BaseModel):
    """A setting that is not the same on all servers of a run: its value and default, by variant; ``None``
    where the server does not have it."""

    model_config = ConfigDict(frozen=True)

    name: str
    values: dict[str, str | None]
    defaults: dict[str, str | None]


class Environment(BaseModel):
    model_config = ConfigDict(frozen=True)

    dbdyno: str
    host: Host  # the server's host if it was reached, else the host that dbdyno runs on
    server: ServerFacts
    client: Host | None = None  # the host that dbdyno runs on, if it is not the server's
    sources: tuple[Source, ...]
    conditions: tuple[Condition, ...] = ()  # checks that call for action; empty in older runs
    # by variant, if variants name servers; `server` is then the first of them
    servers: dict[str, ServerFacts] = {}
    programs: dict[str, str] = {}  # by variant: the directory of programs of a server that dbdyno starts
    differences: tuple[SettingDifference, ...] = ()  # between these servers

    def server_of(self, variant: str) -> ServerFacts:
        """Returns the server of a variant, which is the run's unless the variant names one."""
        return self.servers.get(variant, self.server)

    @property
    def all_servers(self) -> tuple[ServerFacts, ...]:
        """The servers of the run, each version and place once."""
        servers = self.servers.values() or (self.server,)
        return tuple({(s.version, s.where): s for s in servers}.values())

    def server_names(self, variants: Collection[str] = ()) -> str:
        """Returns the servers of these variants, or of all: ``SYSTEM 14.2, 17.6 and 18.1``."""
        of_variants = [s for v, s in self.servers.items() if not variants or v in variants]
        first, *others = dict.fromkeys(s.name for s in of_variants or (self.server,))
        product = self.server.product or self.server.engine
        return joined([first, *(name.removeprefix(product).strip() for name in others)])

    def with_conditions(self, more: Sequence[Condition]) -> Environment:
        """Returns the environment with those checks added whose result is new."""
        known = {(c.id, c.value) for c in self.conditions}
        new = tuple(c for c in more if (c.id, c.value) not in known)
        return self.model_copy(update={"conditions": (*self.conditions, *new)}) if new else self
