"""``--cluster local:N`` serves its user alone, needs no rights, and leaves nothing."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from dbdyno.kernel import processes
from dbdyno.remote.cluster import Cluster, folder
from tests.elsewhere import Elsewhere, Program, as_user, needs_root, test_user
from tests.waiting import eventually

SECRET = "kept-between-us-7245"
LISTENS = "0A"  # linux/net/tcp_states.h

pytestmark = pytest.mark.skipif(
    find_spec("ray") is None, reason="Ray is not installed: it has no wheel for this platform"
)


def members(place: Path) -> set[int]:
    return processes.with_variable(folder.VARIABLE, str(place))


def listeners(pids: set[int]) -> list[tuple[str, int]]:
    """Returns addresses and ports at which these processes listen for TCP."""
    inodes = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENS:
                inodes[f"socket:[{fields[9]}]"] = fields[1]
    return sorted({_address(inodes[link]) for pid in pids for link in links(pid) if link in inodes})


def links(pid: int) -> list[str]:
    links = []
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                links.append(str(entry.readlink()))
    return links


def _address(text: str) -> tuple[str, int]:
    host, port = text.split(":")
    words = [int(host[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(host), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address), int(port, 16)


@dataclass(frozen=True)
class Own:
    """A cluster of this process's user, with an agent on each node."""

    cluster: Cluster
    place: Path
    pids: set[int]

    @property
    def token(self) -> str:
        return folder.token(self.place).read_text()


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Own]:
    place = folder.choose()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("PGPASSWORD", "PGHOST", "APP_API_KEY", "RAY_AUTH_TOKEN"):
                patch.setenv(name, SECRET)
            started = Cluster("local:2", "own", place)
        with contextlib.closing(started) as cluster:
            facts = {n: answer["ok"] for n, answer in cluster.open(cluster.nodes).items()}
            channels = cluster.start(facts)
            yield Own(cluster, place, members(place))
            for channel in channels.values():
                channel.close()
    finally:
        folder.remove(place)


def test_each_process_is_known_by_the_folder(own_cluster: Own) -> None:
    assert processes.tree(own_cluster.cluster.gateway_pid) - own_cluster.pids == set()
    programs = [Path(f"/proc/{pid}/exe").readlink().name for pid in own_cluster.pids]
    assert programs.count("dbdyno-agent (deleted)") == len(own_cluster.cluster.nodes) == 2


def test_all_listeners_are_on_loopback(own_cluster: Own) -> None:
    sockets = listeners(own_cluster.pids)
    assert len(sockets) >= 7  # of the head; of each node two; of each actor and the gateway
    assert {address for address, _ in sockets} == {"127.0.0.1"}


def test_no_secret_is_in_an_environment_or_a_command_line(own_cluster: Own) -> None:
    for pid in own_cluster.pids:
        for what in ("environ", "cmdline"):
            text = Path(f"/proc/{pid}/{what}").read_bytes()
            assert SECRET.encode() not in text
            assert own_cluster.token.encode() not in text
        assert not re.search(rb"(^|\0)PG\w+=", Path(f"/proc/{pid}/environ").read_bytes())


def test_all_files_lie_in_a_folder_that_others_cannot_enter(own_cluster: Own) -> None:
    assert own_cluster.place.stat().st_mode & 0o777 == 0o700
    assert folder.token(own_cluster.place).stat().st_mode & 0o777 == 0o600
    for pid in own_cluster.pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                path, status = str(entry.readlink()), entry.stat()
                if path.startswith(("/dev/shm/", "/memfd:")):
                    assert status.st_mode & 0o077 == 0, path
                elif path.startswith("/tmp/") and not path.endswith(" (deleted)"):
                    assert Path(path).is_relative_to(own_cluster.place)
    for line in Path("/proc/net/unix").read_text().splitlines():
        if str(own_cluster.place) in line:
            assert line.split()[-1].startswith(f"{own_cluster.place}/")  # none in the namespace without files


ATTACK = r"""
import http.client, json, os, socket, sys
from pathlib import Path
import grpc
place, ports, sockets = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
got = []

def refused(what, act):
    try:
        act()
    except PermissionError:
        return
    got.append(what)

refused("listing", lambda: list(place.iterdir()))
refused("token", lambda: (place / "token").read_text())
refused("address", lambda: (place / "ray" / "ray_current_cluster").read_text())
for path in sockets:
    refused(path, lambda: socket.socket(socket.AF_UNIX).connect(path))
METHODS = (
    "InternalKVGcsService/InternalKVPut", "InternalKVGcsService/InternalKVKeys",
    "InternalKVGcsService/InternalKVGet", "NodeInfoGcsService/GetClusterId",
    "NodeInfoGcsService/GetAllNodeInfo", "NodeInfoGcsService/RegisterNode", "JobInfoGcsService/AddJob",
    "ActorInfoGcsService/CreateActor", "ActorInfoGcsService/ListNamedActors",
    "NodeManagerService/RequestWorkerLease", "NodeManagerService/GetWorkerPIDs", "ObjectManagerService/Push",
    "ObjectManagerService/Pull", "CoreWorkerService/PushTask", "CoreWorkerService/GetCoreWorkerStats",
)
seen = 0
for port in ports:
    channel, asked = grpc.insecure_channel(f"127.0.0.1:{port}"), 0
    for method in METHODS:
        for header in ((), (("authorization", "Bearer " + "a" * 64),)):
            try:
                channel.unary_unary(f"/ray.rpc.{method}")(b"", timeout=60, metadata=header)
                got.append(f"{method} at {port}")
            except grpc.RpcError as e:
                asked += e.code() == grpc.StatusCode.UNAUTHENTICATED
                if e.code() == grpc.StatusCode.UNAVAILABLE:  # it talks HTTP
                    break
                if e.code() not in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED):
                    got.append(f"{method} at {port}: {e.code()}")
    if not asked:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/get_or_create_runtime_env", b"")
        asked = connection.getresponse().status == 401
        if not asked:
            got.append(f"http at {port}")
    seen += bool(asked)
print(json.dumps({"got": got, "seen": seen, "uid": os.getuid()}))
"""
ENTRY = """
import sys, ray
from ray._raylet import GcsClient
try:
    if sys.argv[2] == "driver":
        ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
    else:
        GcsClient(address=sys.argv[1]).internal_kv_put(b"key", b"value", True, b"fun")
except BaseException as e:
    print("refused", type(e).__name__)
else:
    print("let in")
"""


def _other_users(program: Program, code: str, *words: str) -> list[str]:
    return [*program.outside, *as_user(), *program.python, "-c", code, *words]


def _their_environment(program: Program, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": program.path, "HOME": "/nonexistent", **more}


@needs_root
def test_another_user_gets_no_answer_at_any_port_and_no_file(own_cluster: Own, program: Program) -> None:
    ports = [port for _, port in listeners(own_cluster.pids)]
    sockets = [str(path) for path in own_cluster.place.rglob("sockets/*")]
    assert len(sockets) >= 4
    words = _other_users(program, ATTACK, str(own_cluster.place), json.dumps(ports), json.dumps(sockets))
    done = subprocess.run(
        words, env=_their_environment(program), capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report == {"got": [], "seen": len(ports), "uid": test_user()[0]}
    assert (own_cluster.place / "ray" / "ray_current_cluster").exists()  # it would have been there to be read


@needs_root
def test_rays_own_ways_in_are_closed_to_another_user(own_cluster: Own, program: Program) -> None:
    """All are tried at the same time, because Ray tries for long."""
    (port,) = {int(path.read_text()) for path in own_cluster.place.rglob("gcs_server_port_*")}
    brief = {"RAY_gcs_rpc_server_connect_timeout_s": "1", "RAY_gcs_server_request_timeout_seconds": "2"}
    brief |= {"RAY_nums_py_gcs_reconnect_retry": "1", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    wrong = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    begun = [
        subprocess.Popen(
            _other_users(program, ENTRY, f"127.0.0.1:{port}", way),
            env=_their_environment(program, **brief, **token),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd="/",
        )
        for way in ("driver", "store")
        for token in ({}, wrong)
    ]
    for process in begun:
        out, _ = process.communicate(timeout=300)
        assert "refused" in out
        assert "let in" not in out


# Tokens of others.


def client_server(own_cluster: Own, port: int) -> subprocess.Popen[bytes]:
    """Starts in that cluster what ``ray start`` starts for ray://."""
    (gcs,) = {int(path.read_text()) for path in own_cluster.place.rglob("gcs_server_port_*")}
    env = dict(
        entry.split("=", 1)
        for entry in Path(f"/proc/{own_cluster.cluster.gateway_pid}/environ").read_text().split("\0")
        if "=" in entry
    )
    words = [sys.executable, "-m", "ray.util.client.server", f"--address=127.0.0.1:{gcs}"]
    words += ["--host=127.0.0.1", f"--port={port}", "--mode=proxy"]
    return subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def client(own_cluster: Own) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = client_server(own_cluster, port)

    def answers() -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 5).close()
            return True
        return False

    eventually(answers)
    yield f"ray://127.0.0.1:{port}"
    process.terminate()
    process.wait()


def test_the_token_of_a_cluster_lets_its_holder_in(
    own_cluster: Own, client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(f"{own_cluster.token}\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("PGPASSWORD", SECRET)
    with contextlib.closing(Cluster(client, "token")) as cluster:
        assert (cluster.authenticated, cluster.warning) == (True, None)
        assert [n.name for n in cluster.nodes] == ["node1", "node2"]
        assert SECRET not in Path(f"/proc/{cluster.gateway_pid}/environ").read_text()


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({}, "it asks for a token, and none is set here"),
        ({"RAY_AUTH_TOKEN": "a" * 64}, "it does not take the token that is set here"),
        ({"RAY_AUTH_MODE": "token"}, "the token cannot be read: ~/.ray/auth_token"),
    ],
)
def test_a_missing_or_wrong_token_is_named_in_the_error(
    roots: Elsewhere, client: str, env: dict[str, str], message: str
) -> None:
    done = roots.dbdyno("cluster", "status", client, **env)
    assert done.returncode == 3
    assert f"cluster {client}: {message}" in done.stderr
    assert "RAY_AUTH_TOKEN" in done.stderr
    assert "Traceback" not in done.stderr


# How it ends.


def test_a_cluster_of_ones_own_needs_no_rights(theirs: Elsewhere) -> None:
    done = theirs.dbdyno("cluster", "status", "local:2", "--json", world=as_user(), timeout_s=300)
    assert done.returncode == 0, done.stderr + done.stdout
    document = json.loads(done.stdout)
    assert (document["authenticated"], document["warning"]) == (True, None)
    nodes = document["nodes"]
    assert [(n["uid"], n["problem"], n["nice"]) for n in nodes] == [(test_user()[0], None, 0)] * 2
    assert [n["name"] for n in nodes] == ["node1", "node2"]
    assert journals(theirs) == []


def journals(elsewhere: Elsewhere) -> list[Path]:
    return list((elsewhere.home / ".local" / "state" / "dbdyno" / "undo").glob("*.json"))


@contextlib.contextmanager
def begun(elsewhere: Elsewhere, **env: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Yields the program with a cluster that begins, and the folder that its journal names."""
    process = subprocess.Popen(
        elsewhere.words("cluster", "status", "local:2"),
        env=elsewhere.env(**env),
        cwd=elsewhere.home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        (path,) = eventually(lambda: journals(elsewhere))
        place = Path(json.loads(path.read_text())["undos"][0]["data"]["place"])
        yield process, place
    finally:
        process.kill()
        process.wait()
        folder.remove(place)


def is_running(place: Path, name: str) -> bool:
    def title(pid: int) -> bytes:
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_bytes()
        return b""

    return any(name.encode() in title(pid) for pid in members(place))


@pytest.mark.parametrize(
    ("sign", "phase"),
    [(signal.SIGINT, "gateway"), (signal.SIGINT, "gcs_server"), (signal.SIGTERM, "raylet/raylet")],
)
def test_nothing_stays_where_it_is_ended_while_it_begins(
    roots: Elsewhere, sign: signal.Signals, phase: str
) -> None:
    with begun(roots) as (process, place):
        eventually(lambda: is_running(place, phase))
        process.send_signal(sign)
        assert process.wait(120) != 0
        assert (members(place), place.exists(), journals(roots)) == (set(), False, [])


def test_nothing_runs_on_where_dbdyno_is_killed(roots: Elsewhere) -> None:
    with begun(roots) as (process, place):
        eventually(lambda: is_running(place, "raylet/raylet"))
        assert f"is under way (process {process.pid}): left alone" in roots.dbdyno("clean").stdout
        process.kill()
        eventually(lambda: not place.exists() and not members(place))
    done = roots.dbdyno("clean")
    assert f"the cluster in {place} was gone already" in done.stdout
    assert journals(roots) == []


def test_clean_removes_what_is_left_where_the_gateway_is_killed_too(roots: Elsewhere) -> None:
    with begun(roots) as (process, place):
        eventually(lambda: is_running(place, "raylet/raylet"))
        (gateway,) = {pid for pid in members(place) if processes.parent(pid) == process.pid}
        os.kill(gateway, signal.SIGSTOP)  # so that it does not end by itself
        process.kill()
        process.wait()
        assert members(place) > {gateway}
        done = roots.dbdyno("clean")
        assert f"ended the cluster in {place}" in done.stdout, done.stdout + done.stderr
        assert (members(place), place.exists(), journals(roots)) == (set(), False, [])


@needs_root
def test_a_process_of_another_user_is_not_ended() -> None:
    place = folder.choose()
    folder.make(place)
    words = [*as_user(), "sleep", "600"]
    theirs = subprocess.Popen(words, env={"PATH": os.environ["PATH"], folder.VARIABLE: str(place)})
    try:
        eventually(lambda: not processes.is_ours(theirs.pid) and members(place))
        assert folder.remove(place)
        assert theirs.poll() is None
        assert not place.exists()
    finally:
        theirs.kill()
        theirs.wait()
        shutil.rmtree(place, ignore_errors=True)
