"""Jobs for machines without a compiler or compressor. Needs only the standard library.

``loop PROCESSES ROUNDS SERIAL``, ``compress PROCESSES LEVEL FILE``, ``sort PROCESSES FILE``. Uses processes,
since threads of Python do not run in parallel. Exit code 1 means a wrong result or a failed process.
"""

import bz2
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from heapq import merge
from pathlib import Path

_BLOCK_BYTES = 900_000  # as bzip2 -9


def _in_parallel(count: int, part: Callable[[int], None]) -> None:
    """Runs ``part(i)`` in ``count`` processes; this process is number 0."""
    pids = []
    for i in range(1, count):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                part(i)
                status = 0
            finally:
                os._exit(status)
        pids.append(pid)
    part(0)
    if any(os.waitpid(pid, 0)[1] for pid in pids):
        sys.exit("a process failed")


def _loop(rounds: int, seed: int) -> None:
    x = seed
    for _ in range(rounds):
        x = (x * 69069 + 1) % 4294967296
    if x != (pow(69069, rounds, 1 << 32) * seed + _sum_of_powers(rounds)) % 4294967296:
        sys.exit("a wrong number")


def _sum_of_powers(count: int) -> int:
    """Returns 69069 ** 0 + ... + 69069 ** (count - 1)."""
    return (pow(69069, count, 69068 << 32) - 1) // 69068


def loop(processes: int, rounds: int, serial: int) -> None:
    alone = rounds * serial // 100
    _loop(alone, processes)
    shared = rounds - alone
    _in_parallel(processes, lambda i: _loop(shared // processes + (i < shared % processes), i))
    print(f"done {rounds} rounds")


def compress(processes: int, level: int, file: Path) -> None:
    blocks = -(-file.stat().st_size // _BLOCK_BYTES)

    def part(i: int) -> None:
        with file.open("rb") as f, Path(os.devnull).open("wb") as out:
            for block in range(i, blocks, processes):
                f.seek(block * _BLOCK_BYTES)
                out.write(bz2.compress(f.read(_BLOCK_BYTES), level))

    _in_parallel(processes, part)


def sort(processes: int, file: Path) -> None:
    """Sorts parts in parallel, and merges them in this process."""
    lines = [line + b"\n" for line in file.read_bytes().splitlines()]
    pipes = [os.pipe() for _ in range(processes)]

    def part(i: int) -> None:
        ordered = sorted(lines[i::processes])
        for n, (read, write) in enumerate(
            pipes
        ):  # a reader sees the end only when all writers have closed the pipe
            if n != i or i == 0:
                os.close(write)
            if i:
                os.close(read)
        if i:
            with os.fdopen(pipes[i][1], "wb") as out:
                out.writelines(ordered)
            return
        with ExitStack() as opened:
            others = [opened.enter_context(os.fdopen(read, "rb")) for read, _ in pipes[1:]]
            _check_merged(ordered, *others, count=len(lines))

    _in_parallel(processes, part)


def _check_merged(*parts: Iterable[bytes], count: int) -> None:
    """Exits with an error if the merged lines are not in order, or not as many as ``count``."""
    last, seen = b"", 0
    for line in merge(*parts):
        if line < last:
            sys.exit("not in order")
        last, seen = line, seen + 1
    if seen != count:
        sys.exit(f"{seen} lines, not {count}")


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "loop":
        loop(*map(int, words))
    elif what == "compress":
        compress(int(words[0]), int(words[1]), Path(words[2]))
    else:
        sort(int(words[0]), Path(words[1]))
