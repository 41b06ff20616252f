"""Built-in jobs, so that a recipe runs on any machine.

Which program a job runs depends on the programs installed; the job's name shows which one it was.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

from dbdyno.engines.command.shipped import builds, cache, texts
from dbdyno.model.errors import NotAvailable
from dbdyno.model.plan.jobs import BuiltinJob, JobSpec
from dbdyno.model.plan.parameter import Parameter

Values = Mapping[str, str | int | float | bool]

_PYTHON = (sys.executable, "-I", "-S", str(cache.SOURCES / "python_jobs.py"))
_TOOLS: dict[str, tuple[str, int]] = {
    "pbzip2": ("-kc -b9 -{level} -p{threads}", 9),
    "xz": ("-kc --block-size=1MiB -{level} -T{threads}", 1),
    "zstd": ("-kqc -B1MiB -{level} -T{threads}", 9),
}
"""Compressors that use threads, in order of preference, with their options and default level. Blocks of about
1 MB give work to as many threads as the file has MiB."""


def _count(doc: str, default: int, least: int, most: int) -> Parameter:
    return Parameter(doc=doc, type="int", default=default, minimum=least, maximum=most)


_THREADS = _count("threads, or processes, that share the work of a run", 1, 1, 4096)
_LEVEL = _count("level of compression; 0: a usual one of the tool", 0, 0, 9)
_ROUNDS = _count("rounds of arithmetic, in millions", 200, 0, 1_000_000_000)
_SERIAL = _count("per cent of the rounds that are done before the threads start", 0, 0, 100)
_SIZE = _count("size of the text, in MiB", 32, 1, 65_536)
_TOOL = Parameter(
    doc="compressor", type="choice", default="installed", choices=("installed", *_TOOLS, "python")
)


def _loop(given: Values) -> JobSpec:
    """Runs loop.c, or the loop in Python if there is no C compiler."""
    try:
        program = cache.compiled("loop.c")
    except NotAvailable:
        return _python_loop({**given, "rounds": max(1, _value(given, "rounds", _ROUNDS) // _C_PER_PYTHON)})
    words = [program, *(_value(given, n, p) for n, p in (("threads", _THREADS), *_LOOP.items()))]
    return _job("loop", words, work_regex=r"done (\d+) rounds", work_unit="rounds")


_C_PER_PYTHON = 100  # about so many rounds of C take as long as one of Python
_LOOP = {"rounds": _ROUNDS, "serial": _SERIAL}


def _python_loop(given: Values) -> JobSpec:
    rounds = _value(given, "rounds", _PYTHON_ROUNDS)
    words = [
        *_PYTHON,
        "loop",
        _value(given, "threads", _THREADS),
        rounds * 1_000_000,
        _value(given, "serial", _SERIAL),
    ]
    return _job("python-loop", words, work_regex=r"done (\d+) rounds", work_unit="rounds")


_PYTHON_ROUNDS = _ROUNDS.model_copy(update={"default": 2})


def _compress(given: Values) -> JobSpec:
    file = texts.text(_value(given, "size", _SIZE))
    asked = str(given.get("tool", _TOOL.default))
    tool = next((t for t in _TOOLS if _has_threads(t)), "python") if asked == "installed" else asked
    threads, level = _value(given, "threads", _THREADS), _value(given, "level", _LEVEL)
    if tool == "python":
        words = [*_PYTHON, "compress", threads, level or 9, file]
        return _job("python-bz2", words, work_bytes=str(file))
    if (program := shutil.which(tool)) is None:
        raise NotAvailable(f"{tool} is not installed", "install it, or leave out tool: another one is used")
    options, usual = _TOOLS[tool]
    words = [program, *options.format(level=level or usual, threads=threads).split(), file]
    return _job(tool, words, work_bytes=str(file))


def _has_threads(tool: str) -> bool:
    """Returns whether the tool takes the option for threads. That of BusyBox, for example, does not."""
    program = shutil.which(tool)
    if program is None:
        return False
    return _succeeds([program, *_TOOLS[tool][0].format(level=1, threads=2).split()])


def _succeeds(words: list[str]) -> bool:
    try:
        return not subprocess.run(words, input=b"x", capture_output=True, check=False).returncode
    except OSError:
        return False


def _sort(given: Values) -> JobSpec:
    file = texts.text(_value(given, "size", _SIZE))
    threads = _value(given, "threads", _THREADS)
    words = [shutil.which("sort") or "sort", f"--parallel={threads}", "--output=/dev/null"]
    if not _succeeds([*words, "/dev/null"]):  # BusyBox has no --parallel
        return _job("python-sort", [*_PYTHON, "sort", threads, file], work_bytes=str(file))
    return _job("sort", [*words, file], work_bytes=str(file)).model_copy(update={"env": {"LC_ALL": "C"}})


def _job(name: str, words: Sequence[object], **more: str) -> JobSpec:
    return JobSpec(name=name, command=shlex.join(map(str, words)), **more)


def _value(given: Values, name: str, parameter: Parameter) -> int:
    return int(given.get(name, parameter.default))


JOBS: dict[str, BuiltinJob] = {
    "loop": BuiltinJob("arithmetic in C, shared by threads", {"threads": _THREADS, **_LOOP}, _loop),
    "python-loop": BuiltinJob(
        "arithmetic in Python, shared by processes",
        {"threads": _THREADS, "rounds": _PYTHON_ROUNDS, "serial": _SERIAL},
        _python_loop,
    ),
    "compress": BuiltinJob(
        "compresses a text: pbzip2, xz or zstd, whichever is installed, else bzip2 in Python",
        {"threads": _THREADS, "size": _SIZE, "level": _LEVEL, "tool": _TOOL},
        _compress,
    ),
    "sort": BuiltinJob("sorts the lines of a text", {"threads": _THREADS, "size": _SIZE}, _sort),
    **{name: BuiltinJob(b.doc, {"threads": _THREADS}, b.job) for name, b in builds.BUILDS.items()},
}
"""Built-in jobs by name, without the @."""
