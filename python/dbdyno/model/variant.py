"""Variants: what a recipe may vary over an experiment, and what a variant comes to once it is resolved."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Value = str | int | float | bool
Protocol = Literal["prepared", "extended", "simple"]
PoolMode = Literal["transaction", "session"]
Bind = Literal["spread", "pack", "off"]


class Strict(BaseModel):
    """Unknown keys are errors; nothing changes after it was made."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LimitSpec(Strict):
    """Limits on the server's processes. ``None``: not limited (in a variant: as the experiment says)."""

    cpus: str | None = None  # "0-5,8": affinity, and a cpuset control group where one may be made
    mems: str | None = None  # "0": NUMA nodes its memory comes from (cpuset.mems)
    quota: float | None = Field(default=None, gt=0)  # CPUs: CFS bandwidth (cpu.cfs_quota_us, cpu.max)
    period: str | None = None  # "100ms": of the quota
    weight: int | None = Field(default=None, ge=1, le=10_000)  # cpu.weight; 100 is everybody's
    pool: int | None = Field(default=None, ge=1)  # at most so many sessions active at once: a pooler in front
    pool_mode: PoolMode | None = None  # None: transaction
    bind: Bind | None = None  # one session, one CPU

    @property
    def of_system(self) -> bool:
        """Whether anything is asked of the operating system before a session is there."""
        return any(v is not None for v in (self.cpus, self.mems, self.quota, self.weight))


class DriverSpec(Strict):
    """How the driver sends calls. ``None``: the default (in a variant: as the experiment says)."""

    protocol: Protocol | None = None  # None: prepared
    pipeline: bool | None = None  # all statements of a call in one go: one round trip
    validation: str | None = None  # a statement sent before each statement of the call; "" is none
    think: str | None = None  # "10ms": from the end of a call to the start of the session's next
    threads: int | None = Field(default=None, ge=1, le=256)  # None: min(sessions, CPUs)


class VariantSpec(Strict):
    """A named set of limits, settings or parameters; what it leaves out it inherits from the experiment."""

    doc: str = ""
    params: dict[str, Value] = Field(default_factory=dict)
    settings: dict[str, Value] = Field(default_factory=dict)  # of the server
    driver: DriverSpec = DriverSpec()
    limits: LimitSpec = LimitSpec()


class DriverSetup(Strict):
    """How the driver sends the calls of a cell, resolved."""

    protocol: Protocol = "prepared"
    pipeline: bool = False
    validation: str | None = None
    threads: int | None = None


class Variant(Strict):
    """A variant, resolved: nothing is inherited any more."""

    name: str
    doc: str = ""
    params: dict[str, Value] = Field(default_factory=dict)
    settings: dict[str, str] = Field(default_factory=dict)
    driver: DriverSetup = DriverSetup()
    limits: LimitSpec = LimitSpec()
