"""A Ray cluster as this process sees it: its nodes, and an agent on each that is asked for."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from dbdyno.model.errors import DbdynoError, HostLost, NotAvailable, Unreachable, UsageError
from dbdyno.remote.cluster import wire
from dbdyno.remote.program import program

EXTRA = "pip install 'dbdyno[cluster]'"
_CONNECT_S = 150.0
_ANSWER_S = 120.0
_END_S = 15.0
_REACH_S = 10.0
_PIECE_BYTES = 1 << 20
DRIVER, SERVER = "driver", "server"
"""Resources by which a cluster says what its nodes are for."""


@dataclass(frozen=True)
class Node:
    """A node that is up. ``cpus``: those that Ray may give away there."""

    id: str
    address: str
    hostname: str
    cpus: float
    head: bool
    roles: tuple[str, ...]  # of driver and server

    @staticmethod
    def of(said: Mapping[str, Any]) -> Node:
        has = said["resources"]
        return Node(
            id=said["id"],
            address=said["address"],
            hostname=said["hostname"],
            cpus=float(has.get("CPU", 0.0)),
            head="node:__internal_head__" in has,
            roles=tuple(r for r in (DRIVER, SERVER) if has.get(r, 0) > 0),
        )


class SocketChannel:
    """A :class:`dbdyno.remote.Channel` over a socket."""

    def __init__(self, at: socket.socket) -> None:
        self._socket = at

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        return self._socket.recv(_PIECE_BYTES)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Cluster:
    """Connected by making it, left by :meth:`close`. ``run``: what its actors are named after.

    Raises :class:`NotAvailable` without Ray, :class:`Unreachable` where no cluster answers.
    """

    def __init__(self, address: str, run: str) -> None:
        check_address(address)
        if find_spec("ray") is None:
            raise NotAvailable("a cluster needs Ray, which is not installed", EXTRA)
        if not address.startswith("local:"):
            _check_reached(address)
        self.address, self._run = address, run
        self._one_at_a_time = threading.Lock()
        ours, theirs = socket.socketpair()
        self._socket, self._said = ours, tempfile.TemporaryFile()  # noqa: SIM115 - closed by close
        own = address.startswith("local:")
        self._place = tempfile.mkdtemp(prefix="dyno-ray-", dir="/tmp") if own else None
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dbdyno.remote.cluster.gateway", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                start_new_session=True,  # a Ctrl-C is ours to hear
                env=_environment(),
            )
        try:
            self.ray: str = self._ask("connect", _CONNECT_S, address=address, place=self._place)["ray"]
            self.nodes = sorted(
                (Node.of(n) for n in self._ask("nodes")), key=lambda n: (not n.head, n.address, n.id)
            )
        except BaseException:
            self.close()
            raise

    @property
    def gateway_pid(self) -> int:
        """The process in which Ray lives."""
        return self._process.pid

    def open(self, nodes: Sequence[Node]) -> dict[str, Mapping[str, Any]]:
        """An actor on each of the nodes, by id: ``{"ok": facts}`` or ``{"error": words}``."""
        found: dict[str, Mapping[str, Any]] = self._ask(
            "open", nodes=[n.id for n in nodes], name=f"dbdyno-{self._run}"
        )
        return found

    def again(self, node: Node) -> Node:
        """One more actor's place on ``node``, for an agent of its own: to be opened."""
        number = sum(n.id.partition(wire.AGAIN)[0] == node.id for n in self.nodes)
        made = replace(node, id=f"{node.id}{wire.AGAIN}{number}")
        self.nodes.append(made)
        return made

    def start(self, facts: Mapping[str, Mapping[str, Any]]) -> dict[str, SocketChannel]:
        """An agent on each of the nodes of these facts (of :meth:`open`), by id. Raises :class:`HostLost`."""
        made: dict[str, SocketChannel] = {}
        for arch in sorted({f["arch"] for f in facts.values()}):
            nodes = [n for n in self.nodes if n.id in facts and facts[n.id]["arch"] == arch]
            path = program(arch)
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            for at in range(0, len(nodes), wire.MOST_FILES):
                made |= self._start(nodes[at : at + wire.MOST_FILES], str(path), sha256)
        return made

    def _start(self, nodes: Sequence[Node], path: str, sha256: str) -> dict[str, SocketChannel]:
        pairs = [socket.socketpair() for _ in nodes]
        try:
            asked: dict[str, Any] = {"nodes": [n.id for n in nodes], "program": path, "sha256": sha256}
            files = [theirs.fileno() for _, theirs in pairs]
            self._whole(nodes, self._ask("start", files=files, arguments=[], **asked))
        finally:
            for _, theirs in pairs:
                theirs.close()
        return {n.id: SocketChannel(ours) for n, (ours, _) in zip(nodes, pairs, strict=True)}

    def ask(self, nodes: Sequence[Node], method: str, *arguments: Any) -> dict[str, Any]:
        """What the actors of these nodes answer, by id: ``{"ok": value}`` or ``{"error": words}``."""
        found: dict[str, Any] = self._ask(
            "ask", nodes=[n.id for n in nodes], method=method, arguments=arguments
        )
        return found

    def why(self, node: Node) -> str | None:
        """Why its agent is gone; None: it is not, or nobody knows."""
        with suppress(DbdynoError):
            found: str | None = self._ask("why", node=node.id)
            return found
        return "the connection to the cluster is lost"

    def end(self, nodes: Sequence[Node]) -> None:
        """Ends the actors of these nodes."""
        self._ask("close", nodes=[n.id for n in nodes])

    def clean(self) -> dict[str, bool]:
        """Ends the actors that killed runs have left; by name, whether it was, or its run is under way."""
        found: dict[str, bool] = self._ask("clean")
        return found

    def close(self) -> None:
        """Ends the actors, and a cluster of our own."""
        self._socket.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)

    def _ask(self, op: str, answer_s: float = _ANSWER_S, files: Sequence[int] = (), **arguments: Any) -> Any:
        try:
            with self._one_at_a_time:
                self._socket.settimeout(answer_s)
                wire.send(self._socket, {"op": op, **arguments}, files)
                answer, _ = wire.receive(self._socket)
        except TimeoutError:
            raise Unreachable(f"cluster {self.address}: no answer within {answer_s:.0f} s", _CURE) from None
        except (EOFError, OSError):
            raise Unreachable(f"cluster {self.address}: {self._last_words()}", _CURE) from None
        if "error" in answer:
            kind, message = answer["error"]
            raise Unreachable(f"cluster {self.address}: {_in_words(kind, message)}", _CURE)
        return answer["ok"]

    def _last_words(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return f"Ray ended: {lines[-1]}" if lines else "Ray ended"

    def _whole(self, nodes: Sequence[Node], found: Mapping[str, Any]) -> dict[str, Any]:
        for node in nodes:
            if "error" in found[node.id]:
                raise HostLost(node.address, found[node.id]["error"])
        return {n: f["ok"] for n, f in found.items()}


_CURE = (
    "ray status, run on the head, says whether the cluster is up; ray://HOST:10001 reaches it from "
    "elsewhere, auto is the one that this machine is part of; both need the same versions of Ray and Python, "
    "and RAY_USE_TLS with its certificates where the cluster has them"
)


def check_address(address: str) -> None:
    """Raises :class:`UsageError`."""
    kind, _, rest = address.partition(":")
    if kind == "local" and not (rest.isdigit() and 1 <= int(rest) <= 64):
        raise UsageError(f"cluster {address!r} is none", "local:3 is a cluster of 3 nodes on this machine")
    if not address:
        raise UsageError("the address of the cluster is empty", "ray://HOST:10001, auto, or local:3")


def _check_reached(address: str) -> None:
    """At once, where Ray would try for minutes. Raises :class:`Unreachable`."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        return  # auto, or a name that Ray knows better
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
    except OSError as e:
        raise Unreachable(f"cluster {address}: {e.strerror or e}", _CURE) from e


def _environment() -> Mapping[str, str]:
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "PYTHONUNBUFFERED": "1"}
    return quiet | os.environ


def _in_words(kind: str, message: str) -> str:
    """The first line of what Ray says, with the last one where that alone is no answer."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()] or [kind]
    first = lines[0].removesuffix(".")
    return f"{first} {lines[-1].removesuffix('.')}" if first.endswith(":") and len(lines) > 1 else first
