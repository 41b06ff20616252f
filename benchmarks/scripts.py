"""Scripts against pgbench: the same text, prepared, whole processes, paired and alternating."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.common import POINT_SELECT, ROOT, Bench, pairs, print_ratio, server
from benchmarks.hot_path import _TPS, _TRANSACTIONS, _process
from benchmarks.instructions import LENGTHS, _per_call

SCRIPTS = ("select-only", "tpcb-like")
SESSIONS = (1, 8, 50)
EXPRESSIONS = (
    "random(1, 100000 * :scale)",
    "random_gaussian(1, 100000 * :scale, 5)",
    "random_exponential(1, 100000 * :scale, 5)",
    "random_zipfian(1, 100000 * :scale, 1.1)",
    "permute(hash(:scale) % 1000000, 1000000)",
    "case when :scale > 5 and :scale % 2 = 0 then :scale / 2 else 0 end",
)
SCALE = "10"


def main(count: int, seconds: float) -> None:
    """Measures throughput (wanted at least pgbench's) and client CPU (at most 0.6 of it) per transaction."""
    with server() as bench:
        for name in SCRIPTS:
            for sessions in SESSIONS:
                for what, unit, wanted in (("rate", "calls/s", ">= 1.0"), ("cpu", "us", "<= 0.6")):
                    measured = pairs(count, *_sides(bench, name, sessions, seconds, what))
                    print_ratio(
                        f"{name}, {what}, {sessions} sessions, against pgbench", measured, unit, wanted
                    )


def instructions(_pairs: int, _seconds: float) -> None:
    """Prints user instructions per transaction, by callgrind: difference of two lengths."""
    if shutil.which("valgrind") is None:
        print("no valgrind here: install it (Debian: apt-get install valgrind)")
        return
    with server() as bench:
        for name in SCRIPTS:
            ours = _per_call([_ours(bench, name, 1, f"calls={n}") for n in LENGTHS], 1)
            theirs = _per_call([_theirs(bench, name, 1, "-t", str(n)) for n in LENGTHS], 1)
            print(
                f"{name}: {ours:,.0f} against pgbench's {theirs:,.0f} user instructions a transaction; "
                f"ratio {ours / theirs:.3f} (select-only: wanted <= 1,000)",
                flush=True,
            )


def expressions(_pairs: int, _seconds: float) -> None:
    """Prints nanoseconds per `\\set`: the fastest and, in parentheses, the median of many short rounds."""
    words = ["cargo", "run", "--release", "--quiet", "-p", "dyno-script", "--example", "expressions", "--"]
    subprocess.run([*words, *EXPRESSIONS], cwd=ROOT, check=True)


def _text(name: str) -> str:
    from dbdyno import _core

    script = _core.builtin_script(name)
    assert script
    return script[1]


def _ours(bench: Bench, name: str, sessions: int, *words: str) -> list[str]:
    return [
        str(POINT_SELECT),
        f"host={bench.socket}",
        f"user={bench.user}",
        "database=postgres",
        f"sessions={sessions}",
        f"threads={min(2, sessions)}",
        f"script={_text(name)}",
        f"scale={SCALE}",
        *words,
    ]


def _theirs(bench: Bench, name: str, sessions: int, *words: str) -> list[str]:
    script = Path(tempfile.gettempdir()) / f"dbdyno-{name}.sql"
    script.write_text(_text(name))
    return [
        str(bench.pgbench_program),
        "-n",
        "-M",
        "prepared",
        "-f",
        str(script),
        "-D",
        f"scale={SCALE}",
        "-h",
        bench.socket,
        "-U",
        bench.user,
        "-c",
        str(sessions),
        "-j",
        str(min(2, sessions)),
        *words,
        "postgres",
    ]


def _sides(
    bench: Bench, name: str, sessions: int, seconds: float, what: str
) -> tuple[Callable[[], float], Callable[[], float]]:
    def ours() -> float:
        text, cpu_s = _process(_ours(bench, name, sessions, f"seconds={seconds:g}"))
        figures = json.loads(text)
        return float(figures["rate"]) if what == "rate" else cpu_s * 1e6 / float(figures["calls"])

    def theirs() -> float:
        text, cpu_s = _process(_theirs(bench, name, sessions, "-T", f"{seconds:g}"))
        match = _TPS.search(text), _TRANSACTIONS.search(text)
        assert match[0] and match[1], text
        return float(match[0][1]) if what == "rate" else cpu_s * 1e6 / float(match[1][1])

    return ours, theirs
