"""Nodes of a Ray cluster for tests, in processes that end with who asked for them.

``python -m tests.ray_nodes cluster PLACE PID``: a head and three nodes, as PLACE/cluster.json says once they
are up; until PLACE is gone, or process PID. Each node has a network namespace of its own where those can be
made, otherwise an address on loopback.
``python -m tests.ray_nodes join ADDRESS IP TEMP PORT``: one more node, whose agents have the ports from that
one on, until standard input is closed.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.networks import Network, can_make, shifted, without_rights
from tests.waiting import eventually

WORKERS = (2, 3, 4)
"""Last numbers of the nodes' addresses; the head has an address of this host."""
SHIFTED_S = 2500
AGENTS = (
    "metrics_agent_port",
    "metrics_export_port",
    "runtime_env_agent_port",
    "dashboard_agent_listen_port",
    "ray_client_server_port",
)
"""Ports that a node must know before it starts. Its other processes bind ports that the kernel chooses, above
all of these."""
_BLOCKS = range(10_500, 15_000, len(AGENTS))
"""Where the block of a node begins: below the ports of all other servers of tests. A node that draws one port
after the other may draw one twice, which Ray refuses."""
_random = random.SystemRandom()
_drawn: set[int] = set()
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_worker_niceness": "0",  # 15 by default: beside other tests nothing would be left
}
_COMMON = {
    "num_cpus": 1,
    "object_store_memory": 80 << 20,
    "include_dashboard": False,
    "include_log_monitor": False,
}


class RayCluster(NamedTuple):
    address: str
    """For those on this machine."""
    client: str
    """``ray://``."""
    host: str
    """This host's address, as the nodes reach it."""
    nodes: list[str]
    """Addresses of the others."""
    network: str | None
    """Ends of their links on this host are named so, with their number behind; None: they have none."""
    temp: str
    """Where Ray has its logs."""
    shifted_s: int
    """The last node's monotonic clock is ahead by so much."""
    bare: bool
    """The second node has no capabilities."""

    def end_of(self, node: str) -> str:
        return f"{self.network}{node.rsplit('.', 1)[1]}"


def shared_cluster(place: Path, controller_pid: int) -> RayCluster:
    """Returns the cluster at ``place``, which the first caller starts."""
    place.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (place / "asked").mkdir()
        words = [sys.executable, "-m", "tests.ray_nodes", "cluster", str(place), str(controller_pid)]
        with (place / "log").open("wb") as log:
            subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    ready, failed = place / "cluster.json", place / "failed"
    eventually(lambda: ready.exists() or failed.exists(), 300)
    assert not failed.exists(), (place / "log").read_text()
    return RayCluster(**json.loads(ready.read_text()))


class JoinedNode:
    """One more node at ``ip``, whose processes are children of this one's; :meth:`ready` waits for it."""

    def __init__(self, address: str, ip: str, temp: str, within: Sequence[str] = ()) -> None:
        arguments = ["join", address, ip, temp, str(_free_block())]
        words = [*within, sys.executable, "-m", "tests.ray_nodes", *arguments]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.raylet = 0

    def ready(self) -> JoinedNode:
        assert self._process.stdout is not None
        self.raylet = int(self._process.stdout.readline())
        return self

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def _cluster(place: Path, controller_pid: int) -> None:
    from ray.cluster_utils import Cluster

    with contextlib.ExitStack() as stack:
        temp = stack.enter_context(tempfile.TemporaryDirectory(prefix="dt-ray-", dir="/tmp"))
        (Path(temp) / "ray").mkdir()
        os.environ["RAY_TMPDIR"] = temp
        network = stack.enter_context(contextlib.closing(Network())) if can_make() else None
        host = "127.0.0.2" if network is None else network.address
        ports, cluster = _ports(_free_block()), Cluster()
        stack.callback(cluster.shutdown)
        cluster.add_node(
            node_ip_address=host,
            temp_dir=temp,
            no_monitor=True,
            **_COMMON,
            **ports,
        )
        nodes = {n: f"127.0.0.{n + 1}" if network is None else network.host(n) for n in WORKERS}
        within = {n: [] if network is None else network.within(n) for n in WORKERS}
        shift = [] if network is None else shifted(SHIFTED_S)
        bare = without_rights()
        within[WORKERS[0]] += ["env", "RAY_worker_niceness=15"]  # as Ray does by itself
        within[WORKERS[1]] += bare
        within[WORKERS[-1]] += shift
        joined = [JoinedNode(str(cluster.address), ip, temp, within[n]) for n, ip in nodes.items()]
        for node in joined:
            stack.callback(node.close)
        for node in joined:
            node.ready()
        name = None if network is None else network.name
        client = f"ray://{host}:{ports['ray_client_server_port']}"
        places = (str(cluster.address), client, host, [*nodes.values()])
        ready = RayCluster(*places, name, temp, SHIFTED_S if shift else 0, bool(bare))
        (place / "making").write_text(json.dumps(ready._asdict()))
        (place / "making").rename(place / "cluster.json")
        while place.exists() and Path(f"/proc/{controller_pid}").exists():
            time.sleep(0.5)


def _join(address: str, ip: str, temp: str, first_port: str) -> None:
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    common = _COMMON | _ports(int(first_port))
    del common["ray_client_server_port"]  # of the head only
    params = RayParams(gcs_address=address, redis_address=address, node_ip_address=ip, num_gpus=0, **common)
    params.update_if_absent(raylet_socket_name=f"{temp}/r-{ip}", plasma_store_socket_name=f"{temp}/p-{ip}")
    params.update_if_absent(min_worker_port=0, max_worker_port=0, node_manager_port=0)
    node = Node(params, head=False, shutdown_at_exit=True, spawn_reaper=False)
    (raylet,) = node.all_processes["raylet"]
    print(raylet.process.pid, flush=True)
    sys.stdin.read()
    node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)


def _ports(first: int) -> dict[str, int]:
    """Returns the ports of a node's agents: neighbours, so that no two are the same."""
    return {name: first + n for n, name in enumerate(AGENTS)}


def _free_block() -> int:
    """Returns the first port of a block that is free on all addresses of this host; each only once."""
    while True:
        first = _random.choice(_BLOCKS)
        if first not in _drawn and all(map(_is_free, range(first, first + len(AGENTS)))):
            _drawn.add(first)
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _patiently() -> None:
    """Lets a node wait longer for itself and for its agents' ports, which it does for 30 s only, however
    busy the machine.

    The port of the dashboard, which the nodes lack, is written before the agent writes it.
    """
    from ray._private import services

    ask, start = services.get_node, services.start_raylet

    def answered(*arguments: Any) -> Any:
        until_s = time.monotonic() + 240
        while True:
            try:
                return ask(*arguments)
            except RuntimeError:
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.2)

    def started(*arguments: Any, **named: Any) -> Any:
        given = inspect.signature(start).bind(*arguments, **named).arguments
        port_file = Path(given["session_dir"], f"dashboard_agent_listen_port_{given['node_id']}")
        port_file.write_text("-1")
        return start(*arguments, **named)

    services.get_node, services.start_raylet = answered, started


def main() -> None:
    what, *arguments = sys.argv[1:]
    os.environ.update(QUIET | os.environ)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    _patiently()
    if what == "join":
        return _join(*arguments)
    place = Path(arguments[0])
    try:
        return _cluster(place, int(arguments[1]))
    except BaseException:
        (place / "failed").touch()
        raise


if __name__ == "__main__":
    main()
