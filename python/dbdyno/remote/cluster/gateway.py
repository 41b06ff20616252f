"""A child process of dbdyno that runs Ray: ``python -m dbdyno.remote.cluster.gateway FD``.

Ray brings threads and signal handlers, and ends its process when the node below it dies. None of that may
happen to the process that measures. So dbdyno talks to this process over a socket (:mod:`wire`) with
requests, and over one more socket for each node, whose bytes are passed to the agent there and back. When
dbdyno ends, however that happens, the socket of the requests is closed; then the actors and this process
end, and a cluster of dbdyno's own with its folder. Only this process reads what nodes answer, and it
unpickles plain data only (:mod:`unpickling`).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dbdyno.remote.cluster import access, actor, folder, wire
from dbdyno.remote.cluster.own import own_cluster
from dbdyno.remote.cluster.unpickling import refuse_code

NAMESPACE = "dbdyno"
_CHUNK_BYTES = 1 << 20
_AT_ONCE = 3  # read and write wait at the same time; one more for other methods
_START_S = 60.0
_TRIES = 3
_END_S = 8.0
_SILENT_S = 6.0
"""An actor that was not called for so long has lost its conductor, which calls read every 2 s."""
_LEAVE_S = 12.0
"""Time to end in order; shorter than the time that dbdyno waits for it."""
_MOST_ANSWER_BYTES = 1 << 20


class _Node:
    """An agent on a node, and the threads that pass bytes between it and its socket."""

    def __init__(self, node: str, handle: Any, lost: Callable[[str, Exception], str]) -> None:
        self.node, self.handle = node, handle
        self.why: str | None = None
        self._error_text = lost
        self._socket: socket.socket | None = None

    def pump(self, at: socket.socket) -> None:
        self._socket = at
        for body in (self._up, self._down):
            threading.Thread(target=self._until_lost, args=(body, at), daemon=True).start()

    def _until_lost(self, body: Callable[[socket.socket], None], at: socket.socket) -> None:
        try:
            body(at)
        except Exception as e:  # also for a refused answer of the node
            self.why = self.why or self._error_text(self.node, e)
        finally:
            with contextlib.suppress(OSError):
                at.shutdown(socket.SHUT_RDWR)

    def _up(self, at: socket.socket) -> None:
        while data := at.recv(_CHUNK_BYTES):
            _value(_answer(ray.get(self.ask("write", data))))

    def _down(self, at: socket.socket) -> None:
        while (data := ray.get(self.handle.read.remote())) != b"":
            if isinstance(data, bytes):
                at.sendall(data)
            elif data is not None:
                raise ValueError(_NOT_UNDERSTOOD)
        self.why = self.why or self._last_words()

    def _last_words(self) -> str:
        text = str(_value(_answer(ray.get(self.ask("last_words"), timeout=_END_S))))
        return "the agent ended" + (f": {text.splitlines()[-1]}" if text else "")

    def ask(self, method: str, *arguments: Any) -> Any:
        """Returns a reference to the answer."""
        return self.handle.answer.remote(method, *arguments)

    def begin_end(self) -> Any:
        self.why = self.why or "the agent was ended"
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        return self.ask("close")


_NOT_UNDERSTOOD = "the node's answer is not understood"


def _answer(data: object) -> dict[str, Any]:
    """Returns ``{"ok": value}`` or ``{"error": message}``. Raises :class:`ValueError` for anything else."""
    if isinstance(data, bytes) and len(data) <= _MOST_ANSWER_BYTES:
        with contextlib.suppress(ValueError, RecursionError):
            answer = json.loads(data)
            if isinstance(answer, dict) and answer.keys() in ({"ok"}, {"error"}):
                return answer
    raise ValueError(_NOT_UNDERSTOOD)


def _value(answer: Mapping[str, Any]) -> Any:
    """Raises :class:`OSError` with the message of an error."""
    if "error" in answer:
        raise OSError(str(answer["error"]))
    return answer["ok"]


def _has_conductor(handle: Any) -> bool:
    """Returns whether the actor still has a conductor."""
    try:
        return bool(_value(_answer(ray.get(handle.answer.remote("silent_s"), timeout=_END_S))) < _SILENT_S)
    except AttributeError:
        return True  # an actor of another version; it ends by itself
    except (ray.exceptions.GetTimeoutError, OSError, TypeError, ValueError):
        return False


def _init(address: str) -> None:
    ray.init(
        address=address,
        namespace=NAMESPACE,
        log_to_driver=False,
        logging_level="error",
        configure_logging=False,
    )


def _id(node: str) -> str:
    """Returns Ray's own id of a node on which there may be several actors."""
    return node.partition(wire.AGAIN)[0]


class Gateway:
    """The public methods are the requests; each returns a value that JSON can hold."""

    def __init__(self) -> None:
        self._own: Any = None
        self._place: Path | None = None
        self.connected = False
        self._nodes: dict[str, _Node] = {}
        ray.cloudpickle.register_pickle_by_value(actor)
        self._actor = ray.remote(actor.AgentProcess)

    def connect(self, address: str, place: str | None) -> Mapping[str, Any]:
        """``address``: an address of Ray, or ``local:N`` with its files below ``place``."""
        if place is not None:
            self._place = Path(place)
            self._own = own_cluster(int(address.removeprefix("local:")))
            address = str(self._own.address)
        authenticated = access.check(address)
        if place is not None and not authenticated:
            raise PermissionError(f"it is not used: this Ray ({ray.__version__}) keeps nobody out of it")
        for tries_left in reversed(range(_TRIES)):
            try:
                _init(address)
                break
            except ConnectionAbortedError:  # Ray's server fails if a process that it inspects ends meanwhile
                if not tries_left:
                    raise
        self.connected = True
        return {"ray": ray.__version__, "authenticated": authenticated}

    def nodes(self) -> list[Mapping[str, Any]]:
        return [
            {
                "id": n["NodeID"],
                "address": n["NodeManagerAddress"],
                "hostname": n["NodeManagerHostname"],
                "name": n.get("NodeName") or n["NodeManagerAddress"],
                "resources": n["Resources"],
            }
            for n in ray.nodes()
            if n["Alive"]
        ]

    def open(self, nodes: Sequence[str], name: str) -> Mapping[str, Any]:
        """Starts an actor on each node. Returns the facts of each, or an error."""
        for node in nodes:
            where = NodeAffinitySchedulingStrategy(_id(node), soft=False)
            options = {"num_cpus": 0, "max_restarts": 0, "max_concurrency": _AT_ONCE}
            handle = self._actor.options(
                name=f"{name}-{node[:12]}{node[len(_id(node)) :]}", scheduling_strategy=where, **options
            ).remote()
            self._nodes[node] = _Node(node, handle, self._error_text)
        return self.ask(nodes, "facts", [])

    def start(
        self, files: Sequence[int], nodes: Sequence[str], program: str, sha256: str, arguments: list[str]
    ) -> Mapping[str, Any]:
        """Starts an agent on each node and connects it to its socket in ``files``. Returns errors of the
        others."""
        sockets = [socket.socket(fileno=file) for file in files]
        answers = self.ask(nodes, "start", [ray.put(Path(program).read_bytes()), sha256, arguments])
        for node, at in zip(nodes, sockets, strict=True):
            if "ok" in answers[node]:
                self._nodes[node].pump(at)
            else:
                at.close()
        return answers

    def ask(self, nodes: Sequence[str], method: str, arguments: list[Any]) -> Mapping[str, Any]:
        """Returns the value of an actor's method, or its error, for each node."""
        return self._each({n: self._nodes[n].ask(method, *arguments) for n in nodes})

    def why(self, node: str) -> str | None:
        """Returns the reason why the agent has ended."""
        return self._nodes[node].why

    def close(self, nodes: Sequence[str] | None = None) -> None:
        """Ends agents and actors of these nodes, or of all."""
        ending = [self._nodes.pop(n) for n in (list(self._nodes) if nodes is None else nodes)]
        with contextlib.suppress(ray.exceptions.RayError):
            if ending:
                ray.wait([n.begin_end() for n in ending], num_returns=len(ending), timeout=_END_S)
        for node in ending:
            with contextlib.suppress(Exception):
                ray.kill(node.handle, no_restart=True)

    def clean(self) -> dict[str, bool]:
        """Ends the actors that have lost their conductor. Returns by name whether it was ended."""
        actors = [
            a["name"] for a in ray.util.list_named_actors(all_namespaces=True) if a["namespace"] == NAMESPACE
        ]
        return {name: self._end_actor(name) for name in actors}

    def _end_actor(self, name: str) -> bool:
        with contextlib.suppress(ValueError, ray.exceptions.RayError):
            handle = ray.get_actor(name, NAMESPACE)
            if _has_conductor(handle):
                return False
            ray.kill(handle, no_restart=True)
        return True

    def end(self) -> None:
        with contextlib.suppress(Exception):
            self.close()
        with contextlib.suppress(Exception):
            ray.shutdown()
        with contextlib.suppress(Exception):
            if self._own is not None:
                self._own.shutdown()
        self.leave()

    def leave(self) -> NoReturn:
        """Ends this process, and a cluster of dbdyno's own with its folder.

        It executes the program that removes the folder, so that none of Ray's threads can write there or
        start processes meanwhile.
        """
        if self._place is not None:
            with contextlib.suppress(OSError):
                os.execv(sys.executable, [sys.executable, "-m", folder.__name__, str(self._place)])
        os._exit(0)

    def _each(self, references: Mapping[str, Any]) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        ready, _ = ray.wait(list(references.values()), num_returns=len(references), timeout=_START_S)
        for node, ref in references.items():
            try:
                if ref not in ready:
                    raise TimeoutError(f"no answer within {_START_S:.0f} s")
                answers[node] = _answer(ray.get(ref))
            except Exception as e:
                answers[node] = {"error": self._error_text(node, e)}
        return answers

    def _error_text(self, node: str, error: Exception) -> str:
        """Returns the message of an actor's error."""
        if isinstance(error, ray.exceptions.RayTaskError):
            return str(error.cause)
        if isinstance(error, ray.exceptions.RayActorError | ray.exceptions.TaskUnschedulableError):
            with contextlib.suppress(Exception):
                if not any(n["NodeID"] == _id(node) and n["Alive"] for n in ray.nodes()):
                    return "the node left the cluster"
            if isinstance(error, ray.exceptions.ActorUnavailableError):
                return "the node does not answer"
            return "the actor's process ended"
        return str(error).strip() or type(error).__name__


def serve(at: socket.socket) -> None:
    """Answers requests until the other side ends."""
    gateway = Gateway()
    threading.Thread(target=_leave, args=(gateway, at), daemon=True).start()
    try:
        while True:
            request, files = wire.receive(at, wire.MOST_FILES)
            try:
                passed = {"files": files} if files else {}
                value = getattr(gateway, request.pop("op"))(**request, **passed)
                answer = {"ok": value}
            except Exception as e:
                answer = {"error": [type(e).__name__, str(e)]}
            wire.send(at, answer)
    except (EOFError, OSError):
        pass
    finally:
        gateway.end()


def _leave(gateway: Gateway, at: socket.socket) -> None:
    """Ends this process once the other side is gone, also if the main thread is busy.

    Ends at once while not yet connected, else after the time for an end in order.
    """
    closed = select.poll()
    closed.register(at, 0)  # poll always reports POLLHUP
    closed.poll()
    if gateway.connected:
        time.sleep(_LEAVE_S)
    gateway.leave()


if __name__ == "__main__":
    refuse_code()
    requests = socket.socket(fileno=int(sys.argv[1]))
    requests.set_inheritable(False)  # else processes that Ray starts would keep it open
    serve(requests)
