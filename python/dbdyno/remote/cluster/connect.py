"""A Ray cluster as this process sees it: its nodes, and an agent on each that is asked for."""

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
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dbdyno.model.errors import AuthenticationFailed, DbdynoError, HostLost, NotAvailable, Unreachable
from dbdyno.model.plan.cluster import TOKENS_SINCE, has_tokens, open_to_all
from dbdyno.remote.cluster import answers, folder, wire
from dbdyno.remote.cluster.address import CURE, check_address, check_reached, resolved
from dbdyno.remote.cluster.environment import gateway_environment
from dbdyno.remote.program import program

_GATEWAY = "dbdyno.remote.cluster.gateway"
EXTRA = "pip install 'dbdyno[cluster]'"
_CONNECT_S = 150.0
_ANSWER_S = 120.0
_END_S = 15.0
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
    name: str = ""
    """In Ray: its address, unless it was given another one."""

    @staticmethod
    def of(found: answers.FoundNode) -> Node:
        has = found.resources
        return Node(
            id=found.id,
            address=found.address,
            hostname=found.hostname,
            name=found.name,
            cpus=has.get("CPU", 0.0),
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

    ``place``: the folder of a cluster of dbdyno's own, of :func:`folder.choose`; it is made here, and for the
    caller to remove. Raises :class:`NotAvailable` without Ray, :class:`Unreachable` where no cluster answers,
    :class:`AuthenticationFailed` where it asks for a token that is not the one here.
    """

    def __init__(self, address: str, run: str, place: Path | None = None) -> None:
        check_address(address)
        if find_spec("ray") is None:
            raise NotAvailable("a cluster needs Ray, which is not installed", EXTRA)
        self.address, self._run = address, run
        at = resolved(address)
        if place is None:
            check_reached(at)
        else:
            _check_version()
            folder.make(place)
        self._one_at_a_time = threading.Lock()
        ours, theirs = socket.socketpair()
        self._socket, self._said = ours, tempfile.TemporaryFile()  # noqa: SIM115 - closed by close
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _GATEWAY, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                start_new_session=True,  # a Ctrl-C is ours to hear
                env=gateway_environment(place),
            )
        try:
            asked: dict[str, Any] = {"address": at, "place": place and str(place)}
            found = answers.connected(self._ask("connect", _CONNECT_S, **asked))
            self.ray, self.authenticated = found.ray, found.authenticated
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
        """What is to be borne in mind before it is used, with the cure."""
        return open_to_all(self.address, self.ray, self.authenticated)

    @property
    def gateway_pid(self) -> int:
        """The process in which Ray lives."""
        return self._process.pid

    def open(self, nodes: Sequence[Node]) -> dict[str, dict[str, Any]]:
        """An actor on each of the nodes, by id: ``{"ok": facts}`` or ``{"error": words}``."""
        return self._of_nodes("open", nodes, "facts", name=f"dbdyno-{self._run}")

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
            asked: dict[str, Any] = {"program": path, "sha256": sha256, "arguments": []}
            files = [theirs.fileno() for _, theirs in pairs]
            self._whole(nodes, self._of_nodes("start", nodes, "start", files=files, **asked))
        finally:
            for _, theirs in pairs:
                theirs.close()
        return {n.id: SocketChannel(ours) for n, (ours, _) in zip(nodes, pairs, strict=True)}

    def ask(self, nodes: Sequence[Node], method: str, *arguments: Any) -> dict[str, dict[str, Any]]:
        """What the actors of these nodes answer, by id: ``{"ok": value}`` or ``{"error": words}``."""
        return self._of_nodes("ask", nodes, method, method=method, arguments=arguments)

    def why(self, node: Node) -> str | None:
        """Why its agent is gone; None: it is not, or nobody knows."""
        with suppress(DbdynoError):
            why = self._ask("why", node=node.id)
            return None if why is None else answers.words(why)
        return "the connection to the cluster is lost"

    def end(self, nodes: Sequence[Node]) -> None:
        """Ends the actors of these nodes."""
        self._ask("close", nodes=[n.id for n in nodes])

    def clean(self) -> dict[str, bool]:
        """Ends the actors that killed runs have left; by name, whether it was, or its run is under way."""
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
        self._said.close()

    def _of_nodes(
        self, op: str, nodes: Sequence[Node], returned_by: str, files: Sequence[int] = (), **arguments: Any
    ) -> dict[str, dict[str, Any]]:
        """Returns what a method returned on each of the nodes, or words of its error."""
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
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return f"Ray ended: {answers.words(lines[-1])}" if lines else "Ray ended"

    def _whole(self, nodes: Sequence[Node], found: Mapping[str, Any]) -> dict[str, Any]:
        for node in nodes:
            if "error" in found[node.id]:
                raise HostLost(node.address, found[node.id]["error"])
        return {n: f["ok"] for n, f in found.items()}


_TOKEN_CURE = (
    "set what the cluster was started with: RAY_AUTH_MODE=token, and its token in RAY_AUTH_TOKEN, in the "
    "file that RAY_AUTH_TOKEN_PATH names, or in ~/.ray/auth_token (docs/cluster.md, Security)"
)


def _check_version() -> None:
    """Raises :class:`NotAvailable` where a cluster of dbdyno's own would be anybody's."""
    ray = version("ray")
    if not has_tokens(ray):
        raise NotAvailable(
            f"Ray {ray} has no tokens: every user of this machine could use the cluster",
            f"pip install 'ray[client]>={TOKENS_SINCE}'",
        )


def _in_words(kind: str, lines: Sequence[str]) -> str:
    """The first line of what Ray says, with the last one where that alone is no answer."""
    lines = [line.strip() for line in lines] or [kind]
    first = lines[0].removesuffix(".")
    return f"{first} {lines[-1].removesuffix('.')}" if first.endswith(":") and len(lines) > 1 else first
