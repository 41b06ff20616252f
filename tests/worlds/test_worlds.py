"""dbdyno as an unprivileged user, with Docker's capabilities, and in namespaces."""

from __future__ import annotations

import json

import pytest

from tests.db.conftest import LIGHT_CALLS
from tests.elsewhere import (
    Elsewhere,
    World,
    as_user,
    in_namespaces,
    needs,
    needs_root,
    with_docker_capabilities,
)
from tests.elsewhere_server import Cluster

pytestmark = [pytest.mark.db, pytest.mark.root, needs_root]
LADDER = ("run", "cpu", "--sessions", "2", "--measure", "1s", "--settle", "100ms", *LIGHT_CALLS)


@pytest.mark.parametrize(
    ("owner", "world"),
    [
        pytest.param("theirs", as_user(), id="user"),
        pytest.param("theirs", in_namespaces(pid=True, net=True) + as_user(), id="pid-net"),
        pytest.param("theirs", in_namespaces(hidepid=2) + as_user(), id="hidepid"),
        pytest.param("roots", with_docker_capabilities(), id="docker"),
    ],
)
def test_a_ladder_on_the_embedded_server_has_the_cpu_time_of_its_processes(
    owner: str, world: World, request: pytest.FixtureRequest
) -> None:
    needs(world)
    home: Elsewhere = request.getfixturevalue(owner)
    done = home.dbdyno(*LADDER, "--json", world=world, timeout_s=120)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    document = json.loads(done.stdout)
    assert document["run"]["status"] == "complete"
    cpu = [r for r in document["ledger"] if (r["scope"], r["account"]) == ("rung", "run")]
    assert cpu and all(r["status"] == "ok" and r["aas"] > 0 for r in cpu), str(cpu)  # its own processes


@pytest.mark.parametrize("world", [as_user(), in_namespaces(hidepid=2) + as_user()], ids=["user", "hidepid"])
def test_a_server_that_stays_is_used_again_and_observed(world: World, theirs: Elsewhere) -> None:
    needs(world)
    started = theirs.dbdyno("server", "start", "--max-connections", "20", world=world)
    assert started.returncode == 0, started.stderr
    try:
        status = json.loads(theirs.dbdyno("server", "status", "--json", world=world).stdout)
        assert status["running"] is True, status
        seen = theirs.dbdyno("observe", "--for", "1s", "--json", "--dsn", status["dsn"], world=world)
        assert seen.returncode == 0, seen.stderr
        assert "Traceback" not in seen.stderr
        (tasks,) = [s for s in json.loads(seen.stdout)["sources"] if s["name"] == "os tasks"]
        assert tasks["status"] == "ok", tasks  # its own user's processes
    finally:
        stopped = theirs.dbdyno("server", "stop", world=world)
    assert stopped.returncode == 0, stopped.stderr


@pytest.mark.parametrize("world", [as_user(), in_namespaces(hidepid=2) + as_user()], ids=["user", "hidepid"])
def test_doctor_names_the_rights_for_a_server_of_another_user(
    world: World, theirs: Elsewhere, cluster: Cluster
) -> None:
    needs(world)
    with cluster.server() as server:
        done = theirs.dbdyno("doctor", "--json", "--dsn", server.unix, world=world)
    assert done.returncode == 0, done.stderr
    sources = {s["name"]: s for s in json.loads(done.stdout)["sources"]}
    for name in ("scheduler trace", "wait event word", "control groups"):
        assert sources[name]["state"] in ("not permitted", "remote"), sources[name]
        assert sources[name]["right"] and sources[name]["commands"], sources[name]
    assert sources["activity samples"]["state"] == "on"
    assert any("--trace-syscalls" in c["command"] for c in sources["system calls"]["commands"])


def test_doctor_as_text_keeps_80_columns_and_commands_whole(theirs: Elsewhere) -> None:
    done = theirs.dbdyno("doctor", world=as_user())
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    whole = " ".join(done.stdout.replace("\\\n", " ").split())
    document = json.loads(theirs.dbdyno("doctor", "--json", world=as_user()).stdout)
    for source in document["sources"]:
        assert all(c["command"] in whole for c in source["commands"]), source


def test_doctor_sends_to_the_host_of_a_server_elsewhere(theirs: Elsewhere, cluster: Cluster) -> None:
    world = in_namespaces(pid=True, net=True)
    needs(world)
    with cluster.server(world) as server:
        server.bridge()
        done = theirs.dbdyno("doctor", "--json", "--dsn", server.tcp, world=as_user())
    assert done.returncode == 0, done.stderr
    sources = {s["name"]: s for s in json.loads(done.stdout)["sources"]}
    assert {sources[n]["state"] for n in ("os tasks", "block I/O delay", "cgroup")} == {"remote"}
    assert sources["activity samples"]["state"] == "on"
    (way,) = [c["command"] for c in sources["os tasks"]["commands"]]
    assert "on its host" in way


def test_limits_that_are_not_permitted_are_left_out(theirs: Elsewhere) -> None:
    words = ("run", "--recipe", "limits", "--repeats", "1", "--sessions", "1", "--measure", "1s", "--json")
    done = theirs.dbdyno(*words, *LIGHT_CALLS, world=as_user(), timeout_s=240)
    assert done.returncode == 0, done.stderr[-3000:]
    document = json.loads(done.stdout)
    variants = {v["name"] for v in document["plan"]["variants"]}
    left_out = {c["name"] for c in document["plan"]["choices"] if c["value"] == "left out"}
    assert "none" in variants and "variant quota" in left_out, (variants, left_out)
