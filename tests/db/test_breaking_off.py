"""Loads and loaders that are dropped or broken off: their sessions and children end, and files of others
and Python go on."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dbdyno import _core
from tests.contract.driving import SECOND_NS, until_done
from tests.contract.plain_server import PlainServer, plain_server
from tests.waiting import eventually

pytestmark = pytest.mark.db

NAME = "dbdyno breaking off"
LONG = "select pg_sleep(3600)"
SHELL_S = "1000.4711"
"""How long children of these tests sleep, by which they are told from others."""
BYSTANDERS = 200


@pytest.fixture(scope="module")
def plain(servers: Any) -> Iterator[PlainServer]:
    with plain_server(servers.bin_dir(18), hba=["host all boss 127.0.0.1/32 trust"]) as plain:
        yield plain


def _load(
    target: dict[str, Any], script: str, *, seconds: float = 600, grace_ms: int = 600_000, **scripts: Any
) -> _core.Load:
    files = [{"name": "s.sql", "text": script}]
    spec = {"target": target, "scripts": {"files": files} | scripts, "sessions": [{"count": 2}]}
    load = _core.Load("postgres", json.dumps(spec | {"grace_ms": grace_ms}))
    load.connect()
    until_done(load)
    now = _core.now_ns()
    load.start(now, now, now + int(seconds * SECOND_NS))
    return load


def _loader(target: dict[str, Any]) -> _core.Loader:
    steps = [{"name": "s", "statements": [[LONG], [LONG]]}]
    return _core.Loader("postgres", json.dumps({"target": target, "workers": 2, "seed": 1, "steps": steps}))


MAKERS: list[Callable[[dict[str, Any]], Any]] = [lambda target: _load(target, LONG + ";"), _loader]


def _at_work(plain: PlainServer) -> int:
    sql = f"select pid from pg_stat_activity where application_name = '{NAME}' and wait_event = 'PgSleep'"
    return len(plain.ask(sql))


@pytest.mark.parametrize("make", MAKERS, ids=["load", "loader"])
def test_sessions_end_with_what_is_dropped(plain: PlainServer, make: Callable[[dict[str, Any]], Any]) -> None:
    load = make(plain.target(application_name=NAME))
    eventually(lambda: _at_work(plain) == 2)
    del load
    gc.collect()
    eventually(lambda: _at_work(plain) == 0)


@pytest.mark.parametrize("make", MAKERS, ids=["load", "loader"])
def test_python_runs_while_what_is_dropped_waits(
    plain: PlainServer, make: Callable[[dict[str, Any]], Any]
) -> None:
    """Requests to cancel do not arrive, so the drop takes until its patience is over."""
    with _full(plain.port) as (port, fill):
        load = make(plain.target(application_name=NAME, host="127.0.0.1", port=port))
        eventually(lambda: _at_work(plain) == 2)
        fill()
        ticks, over = [0], threading.Event()
        ticker = threading.Thread(target=_tick, args=(ticks, over))
        ticker.start()
        before, began = ticks[0], time.monotonic()
        del load
        took_s, counted = time.monotonic() - began, ticks[0] - before
        over.set()
        ticker.join()
    plain.ask(f"select pg_terminate_backend(pid) from pg_stat_activity where application_name = '{NAME}'")
    assert took_s > 0.5, "the drop did not wait: nothing is shown"
    assert counted >= 5, f"{counted} ticks in {took_s:.1f} s"


@contextlib.contextmanager
def _full(port: int) -> Iterator[tuple[int, Callable[[], None]]]:
    """Yields a port that passes two connections on, and a function that lets all further ones wait to be
    accepted."""
    with contextlib.ExitStack() as stack, socket.create_server(("127.0.0.1", 0), backlog=0) as listener:

        def serve() -> None:
            for _ in range(2):
                near = stack.enter_context(listener.accept()[0])
                far = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=_pass, args=(one, other), daemon=True).start()

        def fill() -> None:
            for _ in range(4):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    waiting.connect(listener.getsockname())

        threading.Thread(target=serve, daemon=True).start()
        yield int(listener.getsockname()[1]), fill


def _pass(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)


def _tick(ticks: list[int], over: threading.Event) -> None:
    while not over.is_set():
        ticks[0] += 1
        time.sleep(0.005)


# -- children -----------------------------------------------------------------------------------------


def _sleepers() -> list[int]:
    """Returns children of this test, wherever they stand."""
    pids = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if place.read_bytes().split(b"\0")[:2] == [b"sleep", SHELL_S.encode()]:
                pids.append(int(place.parent.name))
    return pids


def _shell(plain: PlainServer) -> _core.Load:
    load = _load(plain.target(), f"\\shell sleep {SHELL_S}", allow_shell=True)
    eventually(lambda: len(_sleepers()) == 2)
    return load


def test_a_script_in_the_shell_is_aborted_with_its_child(plain: PlainServer) -> None:
    load = _shell(plain)
    load.abort()
    until_done(load)
    load.finish()
    until_done(load)
    eventually(lambda: not _sleepers())


def test_an_interrupt_ends_scripts_that_are_in_the_shell(plain: PlainServer) -> None:
    load = _shell(plain)
    threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        load.wait(math.inf)
    del load
    gc.collect()
    eventually(lambda: not _sleepers())


# -- descriptors of others ----------------------------------------------------------------------------


class Bystanders:
    """Sockets and files of the process, always some new ones, with numbers that sessions had before."""

    def __init__(self) -> None:
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.files: list[Any] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.0005):
            if len(self.pairs) < BYSTANDERS:
                self.pairs.append(socket.socketpair())
                self.files.append(tempfile.TemporaryFile())  # noqa: SIM115

    def close(self) -> int:
        """Checks that all of them work and returns their number."""
        self._over.set()
        self._thread.join()
        for near, far in self.pairs:
            for one, other in ((near, far), (far, near)):
                one.settimeout(60)
                one.sendall(b"x")
                assert other.recv(1) == b"x", "a socket of somebody else was shut down"
            near.close()
            far.close()
        for file in self.files:
            file.write(b"x")
            file.seek(0)
            assert file.read() == b"x"
            file.close()
        return len(self.pairs)


@pytest.mark.parametrize("end", ["abort", "cut", "drop"])
def test_a_connection_a_call_breaks_off_nobody_else(plain: PlainServer, end: str) -> None:
    for number in range(10):
        seconds = 3600 if end == "cut" and number % 2 else 0
        call = f"select pg_sleep({seconds});"
        measured_s = 0.2 if end == "cut" else 600
        load = _load(plain.target(), call, seconds=measured_s, grace_ms=50, reconnect=True)
        others = Bystanders()
        eventually(lambda others=others: len(others.pairs) > 20)
        if end == "abort":
            load.abort()
        if end == "drop":
            del load
            gc.collect()
        else:
            until_done(load)
        assert others.close() > 20
