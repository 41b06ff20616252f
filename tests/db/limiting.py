"""Helpers for tests of limits: this machine's groups, processes to limit, other users, kill -9."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

from dbdyno import _core
from dbdyno.kernel import processes
from dbdyno.kernel.control_groups import members
from dbdyno.model.engine.protocols import Undo
from dbdyno.model.engine.topology import Topology
from dbdyno.model.plan.plan import LimitSpec
from dbdyno.observe import topology
from tests.waiting import eventually as eventually


def main_of(dsn: str) -> int:
    """Returns the server's main process."""
    with psycopg.connect(dsn) as c:
        stat = Path(f"/proc/{c.info.backend_pid}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[1])


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="control groups are made: run the tests as root")
NOBODY = 65534
SPIN = """do $$ declare t timestamptz := clock_timestamp();
begin while clock_timestamp() < t + '1s' loop end loop; end $$"""


def _has(controller: str) -> bool:
    groups = _core.find_cgroups(None, controllers=[controller])
    return bool(groups) and (
        groups[0][0] == 1 or controller in (Path(groups[0][1]) / "cgroup.controllers").read_text().split()
    )


needs_cpu = pytest.mark.skipif(not _has("cpu"), reason="no cpu controller here")
needs_cpuset = pytest.mark.skipif(not _has("cpuset"), reason="no cpuset controller here")
needs_two = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two CPUs")


def machine() -> Topology:
    return topology(Path("/"))


def placements(pids: Sequence[int]) -> dict[int, tuple[str, str]]:
    """Returns groups and CPU mask of each process that still exists."""
    places = {}
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a server's workers come and go
            groups = Path(f"/proc/{pid}/cgroup").read_text()
            places[pid] = (groups, str(sorted(processes.cpus_allowed(pid))))
    return places


def are_unmoved(before: dict[int, tuple[str, str]]) -> bool:
    """Returns whether each of these processes that still exists is where it was; most must exist."""
    now = placements(sorted(before))
    return now.items() <= before.items() and len(now) > len(before) / 2


def own_groups(owner: int | None = None) -> list[Path]:
    """Returns all groups that a process (this one) has made. Other runs on this machine have their own,
    which come and go meanwhile."""
    begin = f"dbdyno-{owner or os.getpid()}-"
    walk = os.walk("/sys/fs/cgroup")
    return [Path(place, n) for place, names, _ in walk for n in names if n.startswith(begin)]


@contextlib.contextmanager
def sessions(dsn: str, count: int) -> Iterator[list[psycopg.Connection]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(psycopg.connect(dsn, autocommit=True)) for _ in range(count)]


def stat_of(group: Path, key: str) -> int:
    lines = (group / "cpu.stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.split()[0] == key)


@contextlib.contextmanager
def boxes(*names: str) -> Iterator[list[Path]]:
    """Yields groups of others with the cpu controller."""
    parent = Path(next(d for _, d in _core.find_cgroups(None, controllers=["cpu"])))
    boxes = [parent / f"{name}-{os.getpid()}-of-others" for name in names]
    for box in boxes:
        box.mkdir()
    try:
        yield boxes
    finally:
        for box in boxes:
            for pid in members(box):
                with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                    (parent / "cgroup.procs").write_text(str(pid))
            while True:
                with contextlib.suppress(OSError):  # what was killed in it is ending still
                    box.rmdir()
                    break
                time.sleep(0.05)


BECOME = """
import os
if uid := int(sys.argv[1]):
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
"""
APPLY = """
import signal, sys
from dbdyno import limits
from dbdyno.model.plan.plan import LimitSpec
from dbdyno.store.journal import FileJournal
{become}
applied = limits.apply(LimitSpec.model_validate_json(sys.argv[3]), int(sys.argv[2]), FileJournal("killed"))
print("applied", *[m.words for m in applied.means], flush=True)
signal.pause()
"""


@contextlib.contextmanager
def apply_limits(
    main_pid: int, spec: LimitSpec, uid: int = 0, means: list[str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Yields a process (of user ``uid``) that has set limits and waits.

    Appends the line that names the means to ``means``.
    """
    script = APPLY.replace("{become}", BECOME)
    argv = [sys.executable, "-c", script, str(uid), str(main_pid), spec.model_dump_json()]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("applied ")
            if means is not None:
                means.append(line)
            yield process
        finally:
            process.kill()


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(60)


REFUSE = """
import json, sys
from dbdyno.limits import check  # loaded now: Python's own modules may be readable to root alone
from dbdyno.model.errors import DbdynoError
from dbdyno.model.engine.topology import Topology
from dbdyno.model.plan.plan import LimitSpec
{become}
try:
    means = check(
        LimitSpec.model_validate_json(sys.argv[3]), Topology.model_validate_json(sys.argv[4]),
        int(sys.argv[2]), True, 1)
    print(json.dumps(["none", [m.words for m in means]]))
except DbdynoError as e:
    print(json.dumps([type(e).__name__, str(e)]))
"""


def as_nobody(main_pid: int, spec: LimitSpec) -> tuple[str, str]:
    script = REFUSE.replace("{become}", BECOME)
    words = [str(NOBODY), str(main_pid), spec.model_dump_json(), machine().model_dump_json()]
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kind, text = json.loads(done.stdout)
    return kind, str(text)


def clean(dsn: str, code: int = 0) -> str:
    program = Path(sys.executable).parent / "dbdyno"
    done = subprocess.run([program, "clean", "--dsn", dsn], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


class Unwritten:
    """A journal that is not written, because its place belongs to another user than the test acts as."""

    def note(self, undo: Undo) -> None:
        assert undo.kind == "group"

    def forget(self, key: str) -> None:
        assert key.startswith("group ")
