"""Drivers on the nodes of a cluster: the request, and the state of the nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from dbdyno.model.plan.flagged import flagged
from dbdyno.model.plan.literals import Spread
from dbdyno.model.plan.pacing import Strict


class ClusterSpec(Strict):
    """Drive from the nodes of a Ray cluster; its address alone may stand for the table."""

    address: str
    """ray://HOST:10001; auto: the cluster that this machine is part of; local:3: one of 3 nodes here."""
    drivers: int | None = flagged("cluster.drivers")
    """Nodes that drive; left out: all with the resource driver, or all but the server's."""
    per_driver: int | None = flagged("cluster.per_driver")
    spread: Spread = flagged("cluster.spread")
    """Sessions of each driver: even, cpus (in proportion to its CPUs), pack (each full before the next)."""
    server_node: str | None = flagged("cluster.server_node")
    """The server's node, by its address or host name; left out: found by the connection's address."""
    degrade: bool = flagged("cluster.degrade")

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
    """Keys of a recipe for hosts other than this one."""

    server_ssh: str | None = None
    """The server's host as ``ssh`` takes it ([user@]host), where it is another: it is observed there."""

    cluster: ClusterSpec | None = None
    """[cluster]: drive from the nodes of a Ray cluster; its address alone will do."""


class NodeStatus(BaseModel):
    """The state of a node of a cluster. Times are in ns. A value is None if it is unknown; ``problem`` gives
    the reason."""

    model_config = ConfigDict(frozen=True)

    address: str
    name: str  # which no other node has: host name, address, or name in Ray
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
    """The content of ``dbdyno cluster status``."""

    model_config = ConfigDict(frozen=True)

    address: str
    ray: str
    authenticated: bool | None  # whether it asks everybody for a token; None: not known
    warning: str | None  # what is wrong with that, and the cure
    server: str | None  # host:port that nodes were asked to reach
    nodes: tuple[NodeStatus, ...]


TOKENS_SINCE = "2.52"
"""The first version of Ray that can require tokens (docs.ray.io, "Ray token authentication")."""


def has_tokens(ray: str) -> bool:
    """Returns whether this version of Ray can require tokens."""
    numbers = [int(part) for part in re.findall(r"\d+", ray)[:2]]
    return numbers >= [int(part) for part in TOKENS_SINCE.split(".")]


def open_to_all(address: str, ray: str, authenticated: bool | None) -> str | None:
    """Returns a warning, with the remedy, that a cluster requires no token; None if it requires one."""
    if authenticated:
        return None
    asks = "asks for no token" if authenticated is False else "does not say whether it asks for a token"
    cure = "" if has_tokens(ray) else f"install Ray {TOKENS_SINCE} or newer on all nodes and here, then "
    return (
        f"the cluster at {address} {asks}: whoever reaches its ports can run programs on its nodes and read "
        f"what passes through them, passwords too. {cure}set RAY_AUTH_MODE=token with a token on all nodes "
        "and here (dbdyno help cluster security)"
    )


def yielding(niceness: Sequence[tuple[str, int]]) -> str | None:
    """Returns a warning, with the remedy, that programs on these hosts have a raised nice value; None if no
    host has one."""
    niced = {host: nice for host, nice in niceness if nice > 0}
    if not niced:
        return None
    names = ", ".join([*niced][:8]) + (" ..." if len(niced) > 8 else "")
    return (
        f"Ray runs programs at nice {max(niced.values())} on {names}: they give way to others there. "
        "Set RAY_worker_niceness=0 in the environment of ray start"
    )
