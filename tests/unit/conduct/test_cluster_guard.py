"""Guards of clusters and of nodes' answers, as far as they need no Ray."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.elsewhere import needs_root, test_user

from dbdyno.conduct import end_own_cluster
from dbdyno.model.errors import NotAvailable, StoreError, Unreachable
from dbdyno.model.journal import Undo
from dbdyno.model.plan.cluster import has_tokens, open_to_all
from dbdyno.remote.cluster import Cluster, address, answers, environment, folder, wire

NODE = "ab" * 28
FACTS = {
    "python": "3.11.7",
    "hostname": "load1",
    "arch": "x86_64",
    "cpus": 8,
    "uid": 1000,
    "pid": 17,
    "boot_id": "8f4c-11",
    "since_1970_ns": 1,
    "nice": 0,
}


# The folder.


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "dyno-ray-0123456789ab"
    folder.make(path)
    return path


def test_a_folder_is_made_once_and_removed(place: Path) -> None:
    assert (place.stat().st_mode & 0o777, folder.token(place).stat().st_mode & 0o777) == (0o700, 0o600)
    assert len(folder.token(place).read_text()) == 64
    with pytest.raises(NotAvailable, match="File exists"):
        folder.make(place)
    assert folder.remove(place)
    assert not place.exists()
    assert not folder.remove(place)


def test_a_folder_that_others_can_enter_is_left_alone(place: Path) -> None:
    place.chmod(0o755)
    with pytest.raises(StoreError, match="left alone"):
        folder.remove(place)
    assert folder.token(place).exists()


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path, place: Path) -> None:
    link = tmp_path / "dyno-ray-ba9876543210"
    link.symlink_to(place)
    with pytest.raises(StoreError, match="left alone"):
        folder.remove(link)
    assert folder.token(place).exists()


@needs_root
def test_a_folder_of_another_user_is_left_alone(place: Path) -> None:
    os.chown(place, *test_user())
    with pytest.raises(StoreError, match="left alone"):
        folder.remove(place)
    assert folder.token(place).exists()


@pytest.mark.parametrize("name", ["/etc", "/tmp/dyno-ray-x", "dyno-ray-0123456789ab", "/tmp/dyno-ray-012/.."])
def test_a_journal_names_no_other_folder(name: str) -> None:
    with pytest.raises(ValueError, match="no folder of a cluster"):
        end_own_cluster(Undo(kind="cluster", key="x", what="x", data={"place": name}))


def test_a_long_temporary_directory_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr(folder.tempfile, "gettempdir", lambda: str(long))
    assert folder.choose().parent == Path("/tmp")


def test_a_directory_where_others_can_put_something_else_in_its_place_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "_MOST_BYTES", 500)
    monkeypatch.setattr(folder.tempfile, "gettempdir", lambda: str(tmp_path))
    tmp_path.chmod(0o777)
    assert folder.choose().parent == Path("/tmp")
    tmp_path.chmod(0o1777)
    assert folder.choose().parent == tmp_path


# The environment.


def test_the_gateway_gets_no_secret_of_the_environment_but_the_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: Path
) -> None:
    secret = "kept-between-us-1"
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PGPASSWORD", "PGSERVICE", "AWS_SECRET_ACCESS_KEY", "http_proxy", "RAY_REDIS_PASSWORD"):
        monkeypatch.setenv(name, secret)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    assert secret not in environment.gateway_environment(None).values()
    assert "RAY_AUTH_MODE" not in environment.gateway_environment(None)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a-token")
    others = environment.gateway_environment(None)
    assert (others["RAY_AUTH_MODE"], others["RAY_AUTH_TOKEN"]) == ("token", "a-token")
    own = environment.gateway_environment(place)
    assert not {"a-token", secret} & {*own.values()}
    assert own["RAY_AUTH_TOKEN_PATH"] == str(folder.token(place))


def test_a_token_in_its_usual_file_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("a-token")
    assert environment.gateway_environment(None)["RAY_AUTH_MODE"] == "token"
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert environment.gateway_environment(None)["RAY_AUTH_MODE"] == "disabled"


# The cluster that this machine is part of.


@pytest.fixture
def note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    address_file = tmp_path / "ray" / "ray_current_cluster"
    address_file.parent.mkdir(mode=0o777)
    address_file.write_text("10.0.0.1:6379\n")
    address_file.chmod(0o644)
    return address_file


def test_the_address_auto_is_the_one_noted_by_this_user_or_root(
    note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert address.resolved("auto") == "10.0.0.1:6379"
    assert address.resolved("ray://head:10001") == "ray://head:10001"
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    assert address.resolved("auto") == "ray://head:10001"
    monkeypatch.delenv("RAY_ADDRESS")
    note.unlink()
    with pytest.raises(Unreachable, match="this machine is part of none"):
        address.resolved("auto")


@pytest.mark.parametrize("forge", ["another user's", "writable", "a link", "a second name"])
def test_an_address_that_another_user_may_have_written_is_not_used(note: Path, forge: str) -> None:
    if forge == "another user's":
        if os.geteuid() != 0:
            pytest.skip("gives a file away: run the tests as root")
        os.chown(note, *test_user())
    elif forge == "writable":
        note.chmod(0o666)
    elif forge == "a second name":
        (note.parent / "other").hardlink_to(note)
    else:
        note.rename(note.parent / "other")
        note.symlink_to(note.parent / "other")
    with pytest.raises(Unreachable, match="cluster auto: "):
        address.resolved("auto")


@pytest.mark.parametrize(
    ("ray", "has"),
    [("2.40.0", False), ("2.51.1", False), ("2.52.0", True), ("2.60.0", True), ("3.0.0", True)],
)
def test_versions_without_tokens_are_known(ray: str, has: bool) -> None:
    assert has_tokens(ray) is has
    warning = open_to_all("ray://head:10001", ray, False)
    assert warning is not None
    assert ("install Ray 2.52" in warning) is not has
    assert "RAY_AUTH_MODE=token" in warning
    assert open_to_all("ray://head:10001", ray, True) is None
    assert "does not say" in str(open_to_all("ray://head:10001", ray, None))


# Answers.


def test_answers_of_nodes_are_taken_with_control_characters_made_visible() -> None:
    assert answers.by_node({NODE: {"ok": FACTS}}, [NODE], "facts") == {NODE: {"ok": FACTS}}
    assert answers.by_node({NODE: {"error": "x\x1by\nz"}}, [NODE], "facts") == {NODE: {"error": "x␛y␊z"}}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(
            ("arch", "../../../etc/shadow"),
            ("arch", ""),
            ("arch", 7),
            ("cpus", 0),
            ("cpus", "8"),
            ("cpus", 1e9),
        ),
        *(("boot_id", "x" * 65), ("hostname", "x" * 256), ("hostname", ["a"]), ("nice", 99), ("pid", -1)),
        *(("since_1970_ns", 1 << 70), ("uid", True), ("more", 1)),
    ],
)
def test_facts_of_another_form_are_an_error(key: str, value: Any) -> None:
    (answer,) = answers.by_node({NODE: {"ok": FACTS | {key: value}}}, [NODE], "facts").values()
    assert answer == {"error": "the node's answer is not understood"}


@pytest.mark.parametrize("value", [None, [], {}, {"x": {"ok": FACTS}}, {NODE: {"ok": FACTS}, "y": {}}])
def test_answers_of_other_nodes_are_refused(value: Any) -> None:
    with pytest.raises(answers.NotUnderstood):
        answers.by_node(value, [NODE], "facts")


def answer_to(send: Callable[[socket.socket], None]) -> Any:
    """Returns the answer of a gateway that sends this."""
    cluster = Cluster.__new__(Cluster)
    cluster._socket, theirs = socket.socketpair()
    cluster.address, cluster._one_at_a_time = "auto", threading.Lock()
    with cluster._socket, theirs:
        send(theirs)
        return cluster._ask("nodes", 20.0)


def sends(text: bytes) -> Callable[[socket.socket], None]:
    return lambda at: at.sendall(len(text).to_bytes(4, "little") + text)


@pytest.mark.parametrize(
    "text",
    [
        b"no JSON",
        b"[]",
        b"7",
        b"null",
        b"{}",
        b'{"ok": 1, "error": ["a", "b"]}',
        b'{"error": 7}',
        b"[" * 100_000,
    ],
)
def test_a_gateway_that_is_not_understood_is_an_error_in_words(text: bytes) -> None:
    with pytest.raises(Unreachable, match="its answer is not understood"):
        answer_to(sends(text))


def test_a_message_without_bounds_is_not_read() -> None:
    with pytest.raises(Unreachable, match="its answer is not understood"):
        answer_to(lambda at: at.sendall(b"\xff\xff\xff\xff"))


def test_errors_of_the_gateway_have_no_control_characters_and_are_short() -> None:
    with pytest.raises(Unreachable) as e:
        answer_to(sends(json.dumps({"error": ["X", "\x1b[2Jgone" + "x" * 9000]}).encode()))
    assert "\x1b" not in str(e.value)
    assert len(str(e.value)) < 2000


def test_the_gateway_hands_over_no_open_files() -> None:
    def send(at: socket.socket) -> None:
        wire.send(at, {"ok": 1}, [0, 1, 2])

    before = len(list(Path("/proc/self/fd").iterdir()))
    assert answer_to(send) == 1
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# Pickles.

LOADS = """
import io, os, pickle, sys
from dbdyno.remote.cluster.unpickling import refuse_code
refuse_code()
class Run:
    def __reduce__(self): return os.{what}, ({argument!r},)
class Sub(pickle.Unpickler): pass
def tried(load, data):
    try: return repr(load(data))
    except pickle.UnpicklingError as e: return "refused"
for protocol in range(6):
    bad = pickle.dumps(Run(), protocol)
    for load in (pickle.loads, pickle._loads, lambda d: Sub(io.BytesIO(d)).load(),
                 lambda d: pickle._Unpickler(io.BytesIO(d)).load()):
        assert tried(load, bad) == "refused", (protocol, load)
        assert tried(load, pickle.dumps({{"a": [1, None]}}, protocol)) == "{{'a': [1, None]}}"
for module, name in (
    *(("builtins", "exec"), ("builtins", "SystemExit"), ("builtins", "object"), ("os", "error")),
    *(("builtins", "ValueError.__init__"), ("ray.exceptions", "pickle"), ("exceptions", "OSError")),
):
    named = [bytes([0x8c, len(text)]) + text.encode() for text in (module, name)]
    for data in (f"c{{module}}\\n{{name}}\\n.".encode(), b"\\x80\\x04" + b"".join(named) + b"\\x93."):
        assert tried(pickle.loads, data) == "refused", data
assert tried(pickle.loads, pickle.dumps(ValueError("x"))) == "ValueError('x')"
print("all refused")
"""


def test_pickles_of_anything_but_data_and_exceptions_are_refused(tmp_path: Path) -> None:
    code = LOADS.format(what="mkdir", argument=str(tmp_path / "sprung"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "all refused\n", done.stderr
    assert not (tmp_path / "sprung").exists()
