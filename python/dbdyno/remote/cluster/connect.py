"""A Ray cluster: its nodes, and the agents on them."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dbdyno.kernel.extras import check_extra
from dbdyno.model.errors import AuthenticationFailed, DbdynoError, HostLost, NotAvailable, Unreachable
from dbdyno.model.plan.cluster import TOKENS_SINCE, has_tokens, open_to_all
from dbdyno.remote.cluster import answers, folder, wire
from dbdyno.remote.cluster.address import CURE, check_address, check_reached, resolved
from dbdyno.remote.cluster.environment import gateway_environment
from dbdyno.remote.program import program

_GATEWAY = "dbdyno.remote.cluster.gateway"
_CONNECT_S = 150.0
_ANSWER_S = 120.0
_END_S = 15.0
_PIECE_BYTES = 1 << 20
DRIVER, SERVER = "driver", "server"
"""Resources that mark the roles of a cluster's nodes."""


@dataclass(frozen=True)
class Node:
    """A live node. ``cpus``: CPUs that Ray manages there."""

    id: str
    address: str
    hostname: str
    cpus: float
    head: bool
    roles: tuple[str, ...]  # driver, server
    name: str = ""
    """Name in Ray: the address unless the node was started with a name."""

    @staticmethod
    def of(node: answers.FoundNode) -> Node:
        resources = node.resources
        return Node(
            id=node.id,
            address=node.address,
            hostname=node.hostname,
            name=node.name,
            cpus=resources.get("CPU", 0.0),
            head="node:__internal_head__" in resources,
            roles=tuple(r for r in (DRIVER, SERVER) if resources.get(r, 0) > 0),
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
    """A connection to a cluster, ended by :meth:`close`. ``run`` is part of its actors' names.

    ``place``: the folder for a cluster of dbdyno's own, from :func:`folder.choose`; it is created here and
    removed by the caller. Raises :class:`NotAvailable` without Ray, :class:`Unreachable` if no cluster
    answers, :class:`AuthenticationFailed` if it requires another token than the one configured here.
    """

    def __init__(self, address: str, run: str, place: Path | None = None) -> None:
        check_address(address)
        check_extra("cluster", "a cluster", "ray")
        self.address, self._run = address, run
        at = resolved(address)
        if place is None:
            check_reached(at)
        else:
            _check_version()
            folder.make(place)
        self._one_at_a_time = threading.Lock()
        ours, theirs = socket.socketpair()
        self._socket, self._output = ours, tempfile.TemporaryFile()  # noqa: SIM115 - closed by close
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _GATEWAY, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                start_new_session=True,  # Ctrl-C is for this process only
                env=gateway_environment(place),
            )
        try:
            arguments: dict[str, Any] = {"address": at, "place": place and str(place)}
            connected = answers.connected(self._ask("connect", _CONNECT_S, **arguments))
            self.ray, self.authenticated = connected.ray, connected.authenticated
            nodes = [Node.of(n) for n in answers.nodes(self._ask("nodes"))]
            self.nodes = sorted(nodes, key=lambda n: (not n.head, n.address, n.name, n.id))
        except answers.NotUnderstood:
            self.close()
            raise self._not_understood() from None
        except BaseException:
            self.close()
            raise

    @property
    def warning(self) -> str | None:
        """A security warning with its cure, before the cluster is used."""
        return open_to_all(self.address, self.ray, self.authenticated)

    @property
    def gateway_pid(self) -> int:
        """The process in which Ray runs."""
        return self._process.pid

    def open(self, nodes: Sequence[Node]) -> dict[str, dict[str, Any]]:
        """Starts an actor on each node. Returns, by id, ``{"ok": facts}`` or ``{"error": message}``."""
        return self._of_nodes("open", nodes, "facts", name=f"dbdyno-{self._run}")

    def add_actor(self, node: Node) -> Node:
        """Adds a place for one more actor, with an agent of its own, on ``node``. It is still to be
        opened."""
        number = sum(n.id.partition(wire.AGAIN)[0] == node.id for n in self.nodes)
        place = replace(node, id=f"{node.id}{wire.AGAIN}{number}")
        self.nodes.append(place)
        return place

    def start(self, facts: Mapping[str, Mapping[str, Any]]) -> dict[str, SocketChannel]:
        """Starts an agent on each node of these facts (of :meth:`open`). Returns channels by id. Raises
        :class:`HostLost`."""
        channels: dict[str, SocketChannel] = {}
        for arch in sorted({f["arch"] for f in facts.values()}):
            nodes = [n for n in self.nodes if n.id in facts and facts[n.id]["arch"] == arch]
            path = program(arch)
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            for at in range(0, len(nodes), wire.MOST_FILES):
                channels |= self._start(nodes[at : at + wire.MOST_FILES], str(path), sha256)
        return channels

    def _start(self, nodes: Sequence[Node], path: str, sha256: str) -> dict[str, SocketChannel]:
        pairs = [socket.socketpair() for _ in nodes]
        try:
            arguments: dict[str, Any] = {"program": path, "sha256": sha256, "arguments": []}
            files = [theirs.fileno() for _, theirs in pairs]
            self._values_of_all(nodes, self._of_nodes("start", nodes, "start", files=files, **arguments))
        finally:
            for _, theirs in pairs:
                theirs.close()
        return {n.id: SocketChannel(ours) for n, (ours, _) in zip(nodes, pairs, strict=True)}

    def ask(self, nodes: Sequence[Node], method: str, *arguments: Any) -> dict[str, dict[str, Any]]:
        """Calls a method of these nodes' actors. Returns, by id, ``{"ok": value}`` or ``{"error":
        message}``."""
        return self._of_nodes("ask", nodes, method, method=method, arguments=arguments)

    def why(self, node: Node) -> str | None:
        """Returns the reason why its agent is gone; None if it is not, or the reason is unknown."""
        with suppress(DbdynoError):
            why = self._ask("why", node=node.id)
            return None if why is None else answers.words(why)
        return "the connection to the cluster is lost"

    def end(self, nodes: Sequence[Node]) -> None:
        """Ends the actors of these nodes."""
        self._ask("close", nodes=[n.id for n in nodes])

    def clean(self) -> dict[str, bool]:
        """Ends the actors that killed runs left. Returns by name whether it was ended; False: its run is in
        progress."""
        try:
            return answers.cleaned(self._ask("clean"))
        except answers.NotUnderstood:
            raise self._not_understood() from None

    def close(self) -> None:
        """Ends the actors, and a cluster of dbdyno's own."""
        self._socket.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()

    def _of_nodes(
        self, op: str, nodes: Sequence[Node], returned_by: str, files: Sequence[int] = (), **arguments: Any
    ) -> dict[str, dict[str, Any]]:
        """Returns the result of a method on each of the nodes, or the message of its error."""
        ids = [n.id for n in nodes]
        try:
            return answers.by_node(self._ask(op, files=files, nodes=ids, **arguments), ids, returned_by)
        except answers.NotUnderstood:
            raise self._not_understood() from None

    def _not_understood(self) -> Unreachable:
        return Unreachable(f"cluster {self.address}: its answer is not understood", CURE)

    def _ask(self, op: str, answer_s: float = _ANSWER_S, files: Sequence[int] = (), **arguments: Any) -> Any:
        try:
            with self._one_at_a_time:
                self._socket.settimeout(answer_s)
                wire.send(self._socket, {"op": op, **arguments}, files)
                answer, _ = wire.receive(self._socket)
            if isinstance(answer, dict) and answer.keys() == {"ok"}:
                return answer["ok"]
            kind, lines = answers.error(answer)
        except TimeoutError:
            raise Unreachable(f"cluster {self.address}: no answer within {answer_s:.0f} s", CURE) from None
        except (EOFError, OSError):
            raise Unreachable(f"cluster {self.address}: {self._last_words()}", CURE) from None
        except (answers.NotUnderstood, ValueError):
            raise self._not_understood() from None
        if kind == "Refused":
            raise AuthenticationFailed(f"cluster {self.address}: {lines[0]}", _TOKEN_CURE)
        raise Unreachable(f"cluster {self.address}: {_in_words(kind, lines)}", CURE)

    def _last_words(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        return f"Ray ended: {answers.words(lines[-1])}" if lines else "Ray ended"

    def _values_of_all(self, nodes: Sequence[Node], results: Mapping[str, Any]) -> dict[str, Any]:
        for node in nodes:
            if "error" in results[node.id]:
                raise HostLost(node.address, results[node.id]["error"])
        return {n: f["ok"] for n, f in results.items()}


_TOKEN_CURE = (
    "set what the cluster was started with: RAY_AUTH_MODE=token, and its token in RAY_AUTH_TOKEN, in the "
    "file that RAY_AUTH_TOKEN_PATH names, or in ~/.ray/auth_token (dbdyno help cluster security)"
)


def _check_version() -> None:
    """Raises :class:`NotAvailable` if a cluster of dbdyno's own would be open to everybody."""
    ray = version("ray")
    if not has_tokens(ray):
        raise NotAvailable(
            f"Ray {ray} has no tokens: every user of this machine could use the cluster",
            f"pip install 'ray[client]>={TOKENS_SINCE}'",
        )


def _in_words(kind: str, lines: Sequence[str]) -> str:
    """Returns the first line of Ray's error, with the last line if the first only announces it."""
    lines = [line.strip() for line in lines] or [kind]
    first = lines[0].removesuffix(".")
    return f"{first} {lines[-1].removesuffix('.')}" if first.endswith(":") and len(lines) > 1 else first
