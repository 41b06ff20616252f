"""Drivers on the nodes of a cluster: what is asked for, and what was found there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dbdyno.model.pacing import Strict
from dbdyno.model.spread import Spread


class ClusterSpec(Strict):
    """Drive from the nodes of a Ray cluster; its address alone may stand for the table."""

    address: str
    """ray://HOST:10001; auto: the cluster that this machine is part of; local:3: one of 3 nodes here."""
    drivers: int | None = Field(default=None, ge=1, le=10_000)
    """Nodes that drive; left out: all with the resource driver, or all but the server's."""
    per_driver: int | None = Field(default=None, ge=1, le=1_000_000)
    """The most sessions of a driver."""
    spread: Spread = "even"
    """Sessions of each driver: even, cpus (in proportion to its CPUs), pack (each full before the next)."""
    server_node: str | None = None
    """The server's node, by its address or host name; left out: found by the connection's address."""
    degrade: bool = False
    """Go on with the drivers that are left when one is lost."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"address": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _full(self) -> ClusterSpec:
        if self.spread == "pack" and self.per_driver is None:
            raise ValueError("pack needs the number of sessions that fill a driver: per_driver")
        return self


class HostKeys(Strict):
    """Keys of a recipe: hosts other than this one."""

    server_ssh: str | None = None
    """The server's host as ``ssh`` takes it ([user@]host), where it is another: it is observed there."""

    cluster: ClusterSpec | None = None
    """[cluster]: drive from the nodes of a Ray cluster; its address alone will do."""


class NodeStatus(BaseModel):
    """A node of a cluster as dbdyno finds it. Times in ns; None: unknown, and ``problem`` says why."""

    model_config = ConfigDict(frozen=True)

    address: str
    hostname: str
    roles: tuple[str, ...]  # driver, server
    head: bool
    cpus: float  # that Ray may give away there
    free_cpus: float | None  # of them, not taken by others
    python: str | None = None
    agent: str | None = None  # version of dbdyno there
    kernel: str | None = None
    uid: int | None = None
    nice: int | None = None  # at which agents run there; above 0 they give way to other programs
    clock_offset_ns: int | None = None  # its time of day less ours
    clock_bound_ns: int | None = None  # what times there may be off by on our clock
    round_trip_ns: int | None = None  # from here to the agent there and back
    server_ns: int | None = None  # from there to the server and back
    problem: str | None = None


class ClusterStatus(BaseModel):
    """What ``dbdyno cluster status`` shows."""

    model_config = ConfigDict(frozen=True)

    address: str
    ray: str
    server: str | None  # host:port that nodes were asked to reach
    nodes: tuple[NodeStatus, ...]


def yielding(niceness: Sequence[tuple[str, int]]) -> str | None:
    """What it means that programs on these hosts have these nice values, with the cure; None: nothing."""
    niced = {host: nice for host, nice in niceness if nice > 0}
    if not niced:
        return None
    names = ", ".join([*niced][:8]) + (" ..." if len(niced) > 8 else "")
    return (
        f"Ray runs programs at nice {max(niced.values())} on {names}: they give way to others there. "
        "Set RAY_worker_niceness=0 in the environment of ray start"
    )
