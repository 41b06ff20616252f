"""Calls of the core's functions, and of its launcher of commands, with hostile arguments."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.unit.core_arguments import ANY, CALL_S, HUGE, NUMBERS, TEXTS, attempt, each_argument
from tests.unit.core_specifications import JOB, commands, run_load

from dbdyno import _core
from dbdyno.engines.command.launching import Launcher

ENDS = (math.nan, -math.inf, -1.0, -0.0, 5e-324, 1e-300, 0.5, 1.0, 1.5, 1e15, 1e308, math.inf)
"""Ends of the domains of distribution functions, and numbers outside."""
ARRAYS = {"log_gamma": 1, "gamma_above": 2, "gamma_quantile": 2, "beta_below": 3, "students_below": 2}
NUMBERS_ALONE = {
    **dict.fromkeys(("students_tail", "students_quantile", "chi_square_quantile"), 2),
    **dict.fromkeys(("f_above", "f_quantile", "binomial_below", "binomial_count", "noncentral_t_above"), 3),
}
"""Functions by their number of arguments."""


@contextlib.contextmanager
def launcher() -> Iterator[int]:
    """A descriptor of the control socket of a launcher of commands."""
    launched = Launcher("hostile")
    try:
        yield launched.control.fileno()
    finally:
        launched.close()


def no_match(_pattern: str, _text: str) -> None:
    """Replaces the search for a number in a command's output."""


def launches() -> None:
    each_argument(_core.launch_commands, 10**6, no_match)
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        for message in (b"", b"\xff" * 1000, b"{}", b"x" * 60_000, b'{"keep": [' * 1000):
            ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
            with theirs:
                with ours:
                    ours.send(message)
                attempt(_core.launch_commands, theirs.fileno(), no_match)
    for descriptor in (0, 1, 2):
        attempt(_core.launch_commands, descriptor, None)


def launched_sessions() -> None:
    """Sends a launcher descriptors that are no session, and bytes that are no orders; it goes on."""
    with launcher() as control, socket.fromfd(control, socket.AF_UNIX, socket.SOCK_SEQPACKET) as sender:
        greeting = json.dumps({"session": 0, "run": "r", "keep_output": 1, "jobs": [JOB]}).encode()
        hello = len(greeting).to_bytes(4, "little") + greeting
        order = b"".join(n.to_bytes(8, "little", signed=True) for n in (HUGE, -1, -1))
        bodies = [b"", b"\xff" * 4, b"\0" * 4, b"\x05\0\0\0[[[[[", hello[:9], hello, hello + b"\xff" * 40]
        bodies += [hello + b"\0" * 4, hello + len(order).to_bytes(4, "little") + order, hello * 2]
        for body in bodies:
            ours, theirs = socket.socketpair()
            with ours:
                with theirs:
                    socket.send_fds(sender, [b"\0"], [theirs.fileno()])
                ours.settimeout(CALL_S)
                with contextlib.suppress(OSError):
                    ours.sendall(body)
                    ours.shutdown(socket.SHUT_WR)
                    while ours.recv(1000):
                        pass
        run_load("command", commands(control))


def scripts() -> None:
    texts = ["\\set x " + text for text in ("1 / 0", "-9223372036854775808 / -1", "random(5, 1)", "1 << 64")]
    texts += [
        "\\set x " + text
        for text in ("9223372036854775807 + 1", "random_zipfian(1, 9, 1e308)", "abs(-(2 ^ 63))")
    ]
    texts += ["\\sleep 9223372036854775807 s", "\\if", "\\gset", "\\shell \0", ":\0", "select :\ud7ff"]
    for text in texts:
        attempt(_core.read_script, "n", text, True)
        attempt(_core.evaluate_script, text, {"a": "1"}, 1)
    each_argument(_core.read_script, "n", "select :a;", False, "simple", ["a"])


FUNCTIONS = (
    "pow",
    "permute",
    "random",
    "random_gaussian",
    "random_exponential",
    "random_zipfian",
    "mod",
    "hash",
)


def evaluations() -> None:
    each_argument(_core.evaluate_script, "\\set x :a", {"a": "1"}, 1)
    numbers = [
        "0",
        "-1",
        "9223372036854775807",
        "(-9223372036854775807 - 1)",
        "1e308",
        "(0.0 / 0)",
        "1e-320",
        "null",
    ]
    for function in FUNCTIONS:
        for one in numbers:
            for two in numbers:
                for more in ("", ", 2", ", -1", ", 1e300", ", 1, 9223372036854775807"):
                    attempt(_core.evaluate_script, f"\\set x {function}({one}, {two}{more})", {}, 1)
    for value in TEXTS:
        if value.isprintable():
            attempt(
                _core.evaluate_script, f"\\set x :a{value[:10]}", {"a": value, value: "1", "b": ":a"}, 2**63
            )


def tasks() -> None:
    each_argument(_core.read_task, os.getpid(), os.getpid())
    for pid in NUMBERS:
        attempt(_core.read_task, pid, pid)
        attempt(_core.read_behind, pid, "python", "symbol", 0)


def memories() -> None:
    each_argument(_core.read_behind, os.getpid(), "python", "symbol", 0)
    for symbol in ("PyThreadState_Type", "_PyRuntime", "Py_NoneStruct", "environ"):
        for offset in (0, 1, HUGE, 2**64 - 1):
            attempt(_core.read_behind, os.getpid(), "python", symbol, offset)


def groups() -> None:
    each_argument(_core.find_cgroups, os.getpid(), "/", ["cpu"])
    with tempfile.TemporaryDirectory() as root:
        proc = Path(root, "proc", "self")
        proc.mkdir(parents=True)
        (proc / "cgroup").write_bytes(b"0::/\n")
        mounts = [
            b"",
            b"\xff\0" * 1000,
            b"1 2 0:3 / " + b"\\999" * 10 + b" - cgroup2 x rw\n",
            b"a b c d e - f\n",
        ]
        for text in mounts:
            (proc / "mountinfo").write_bytes(text)
            attempt(_core.find_cgroups, None, root)
        (proc / "mountinfo").unlink()
        os.mkfifo(proc / "mountinfo")
        attempt(_core.find_cgroups, None, root)
        (proc / "mountinfo").unlink()
        (proc / "mountinfo").symlink_to("/dev/zero")
        attempt(_core.find_cgroups, None, root)
        (proc / "mountinfo").unlink()
        (proc / "mountinfo").write_bytes(b"1 2 0:3 / /m - cgroup2 x rw\n")
        (proc / "cgroup").write_bytes(b"0::" + b"/a" * 1_000_000)
        attempt(_core.find_cgroups, None, root)


def caches() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file, pipe, sparse = Path(folder, "file"), Path(folder, "pipe"), Path(folder, "sparse")
        file.write_bytes(b"x" * 10_000)
        os.mkfifo(pipe)
        with sparse.open("wb") as opened:
            opened.truncate(1 << 42)
            opened.write(b"x" * 5000)  # one that is all holes has no page to be looked for
        block = (1).to_bytes(8, "big")
        each_argument(_core.page_cache, [(file, block, 0)], 1, 10**9)
        for place in range(3):
            for value in ANY:
                wanted: list[Any] = [file, block, 0]
                wanted[place] = value
                attempt(_core.page_cache, [tuple(wanted)], 1, 10**9)
        for path in (
            file,
            pipe,
            sparse,
            folder,
            "/dev/zero",
            "/proc/self/mem",
            "/proc/kcore",
            "/dev/tty",
            b"/\xff",
        ):
            for blocks in (block, b"\xff" * 8, block * 100_000, b"x" * 7):
                for block_bytes in (1, 4096, HUGE, 2**64 - 1):
                    attempt(_core.page_cache, [(path, blocks, 0), (path, blocks, HUGE)], block_bytes, 10**8)


def distributions() -> None:
    """Arrays of unequal length, of other types and layouts, at the ends of each domain; functions."""
    good, out = np.array([0.5, 2.0]), np.empty(2)
    bad = (
        np.empty(0),
        np.empty(3),
        np.empty(2, np.float32),
        np.empty((2, 2)),
        np.empty(4)[::2],
        bytearray(16),
    )
    for name, count in ARRAYS.items():
        function = getattr(_core, name)
        each_argument(function, *[good] * count, out)
        for place in range(count + 1):
            for array in bad:
                arguments = [*[good] * count, out]
                arguments[place] = array
                attempt(function, *arguments)
        ends = np.array(ENDS)
        for first in ENDS:
            attempt(function, np.full(len(ENDS), first), *[ends] * (count - 1), np.empty(len(ENDS)))
    for name, count in NUMBERS_ALONE.items():
        each_argument(getattr(_core, name), *[0.5] * count)
    for function in (lambda x: x, lambda _: math.nan, lambda _: None, lambda _: int("x"), math.sqrt, None):
        for low, high, tolerance in (
            (-1.0, 2.0, 0.0),
            (1.0, 1.0, 1e-9),
            (math.nan, 1.0, 1e-9),
            (-1e308, 1e308, 1e-9),
        ):
            attempt(_core.find_root, function, low, high, tolerance)
