"""Variants: what a recipe may vary over an experiment, and what a variant comes to once it is resolved."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from dbdyno.model import cpu_lists

Value = str | int | float | bool
Protocol = Literal["prepared", "extended", "simple"]
PoolMode = Literal["transaction", "session"]
Bind = Literal["spread", "pack", "off"]


class Strict(BaseModel):
    """Unknown keys are errors; nothing changes after it was made. Texts below fields go to the schema."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LimitSpec(Strict):
    """Limits on the server's processes. Left out: not limited (in a variant: as the experiment says)."""

    cpus: str | None = None
    """CPUs the server may use: 0-5,8 or first:2; by a cpuset control group, else by affinity."""
    mems: str | None = None
    """NUMA nodes its memory comes from: 0 or 0-1 (cpuset.mems)."""
    quota: float | None = Field(default=None, gt=0)
    """So many CPUs' time: CFS bandwidth control (cpu.cfs_quota_us, cpu.max)."""
    period: str | None = None
    """Of the quota, 1ms to 1s; the kernel's own is 100ms."""
    weight: int | None = Field(default=None, ge=1, le=10_000)
    """Share under pressure, against 100 of everybody else (cpu.weight, cpu.shares)."""
    pool: int | None = Field(default=None, ge=1)
    """At most so many sessions active at once: a connection pooler in front."""
    pool_mode: PoolMode | None = None
    """When the pooler gives a connection to the next: after each transaction (the default), or session."""
    bind: Bind | None = None
    """Each session's process on one CPU: over sockets and cores first, or threads first."""

    @property
    def of_system(self) -> bool:
        """Whether anything is asked of the operating system before a session is there."""
        return any(v is not None for v in (self.cpus, self.mems, self.quota, self.weight))


class DriverSpec(Strict):
    """How the driver sends calls. Left out: the default (in a variant: as the experiment says)."""

    protocol: Protocol | None = None
    """prepared (once a session, the default), extended (parsed with each call), or simple queries."""
    pipeline: bool | None = None
    """All statements of a call in one go: one round trip."""
    validation: str | None = None
    """A statement sent before each statement of the call, such as SELECT 1; empty: none."""
    think: str | None = None
    """Pause from the end of a call to the start of the session's next: 10ms."""
    threads: int | None = Field(default=None, ge=1, le=256)
    """Threads of the driver; at most one a session is of use."""
    rounds: bool | None = None
    """All sessions begin a call together, and the next when all have ended. Each call is kept."""


class VariantSpec(Strict):
    """A named set of limits, settings or parameters; what it leaves out it inherits from the experiment."""

    doc: str = ""
    """What it stands for, in one line."""
    params: dict[str, Value] = Field(default_factory=dict)
    """Parameters of the workload."""
    settings: dict[str, Value] = Field(default_factory=dict)
    """Settings of the server, put back at the end."""
    driver: DriverSpec = DriverSpec()
    """How the driver sends calls."""
    limits: LimitSpec = LimitSpec()
    """Limits on the server's processes."""


class DriverSetup(Strict):
    """How the driver sends the calls of a cell, resolved."""

    protocol: Protocol = "prepared"
    pipeline: bool = False
    validation: str | None = None
    threads: int | None = None
    rounds: bool = False


class Variant(Strict):
    """A variant, resolved: nothing is inherited any more."""

    name: str
    doc: str = ""
    params: dict[str, Value] = Field(default_factory=dict)
    settings: dict[str, str] = Field(default_factory=dict)
    driver: DriverSetup = DriverSetup()
    limits: LimitSpec = LimitSpec()

    def words(self) -> str:
        """What it does otherwise, in a few words: ``quota 1.5, work_mem=64MB``; empty: nothing."""
        d = self.driver
        limits = [f"{k} {v}" for k, v in self.limits.model_dump(exclude_none=True).items() if v != "off"]
        driver = [str(d.protocol)] if d.protocol != "prepared" else []
        driver += ["pipelined"] if d.pipeline else []
        driver += [f"validated by {d.validation}"] if d.validation else []
        driver += [f"{d.threads} driver thread(s)"] if d.threads else []
        driver += ["in rounds"] if d.rounds else []
        return ", ".join([*limits, *(f"{k}={v}" for k, v in self.settings.items()), *driver])


def cpus_under(limits: LimitSpec, cpus: float) -> float:
    """How many of ``cpus`` CPUs the server may use under these limits."""
    listed = len(cpu_lists.parse(limits.cpus, "cpus")) if limits.cpus is not None else cpus
    return min(cpus, listed, limits.quota or cpus)
