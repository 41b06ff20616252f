"""The program, and servers, in other worlds: another user, Docker's capabilities, namespaces of their own.

A world is the beginning of a command line, outermost first, so worlds are added::

    elsewhere.dbdyno("observe", "--for", "2s", world=in_namespaces(hidepid=2) + as_user())

Root alone can enter most of them; ``needs_root`` and ``needs(...)`` say why where a test cannot run.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import dbdyno

USERS = ("dbdyno-ci", "games", "nobody")
"""The tests' unprivileged user is the first that exists: .ci/run makes ``dbdyno-ci``."""
NAMELESS = (54_321, 54_321)
"""A user without an entry in /etc/passwd."""
# What `docker run` leaves to root (docs.docker.com, "Linux kernel capabilities").
DOCKER = (
    *("chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap"),
    *("net_bind_service", "net_raw", "sys_chroot", "mknod", "audit_write", "setfcap"),
)
World = list[str]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users: run the tests as root")


@functools.cache
def test_user() -> tuple[int, int]:
    """Returns (uid, gid) of the unprivileged user; the present ones without root."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    for name in USERS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return entry.pw_uid, entry.pw_gid
    return NAMELESS


test_user.__test__ = False  # type: ignore[attr-defined]


def as_user(user: tuple[int, int] | None = None) -> World:
    """Returns the beginning of a command line of ``user`` (uid, gid), or the tests' user, without any
    capability."""
    if os.geteuid() != 0:
        return []
    uid, gid = user or test_user()
    drop = ["--inh-caps=-all", "--bounding-set=-all", "--clear-groups"]
    return ["setpriv", f"--reuid={uid}", f"--regid={gid}", *drop]


def with_docker_capabilities() -> World:
    """Returns the beginning of a command line of root with Docker's capabilities: no CAP_SYS_PTRACE,
    CAP_SYS_ADMIN or CAP_SYS_NICE."""
    return ["setpriv", "--inh-caps=-all", "--bounding-set=" + ",".join(["-all", *(f"+{c}" for c in DOCKER)])]


def in_namespaces(
    *,
    user: bool | str = False,
    pid: bool = False,
    net: bool = False,
    hidepid: int | None = None,
    before: str = "",
) -> World:
    """Returns the beginning of a command line in namespaces of its own; all its processes end with it.

    ``user``: True for its root, "unmapped" for a user without a number of its own. ``net``: loopback
    alone. ``hidepid``: how its ``/proc`` is mounted. ``before``: shell commands to run first.
    """
    options = ["--mount", "--kill-child", "--fork"]
    options += ["--pid"] if pid else []
    options += ["--net"] if net else []
    options += ["--user"] if user == "unmapped" else ["--user", "--map-root-user"] if user else []
    if user == "unmapped":
        options.remove("--mount")
    first = [before] if before else []
    if net:
        first.append("ip link set lo up")
    if hidepid is not None:
        first.append(f"mount -t proc -o hidepid={hidepid} proc /proc")
    elif pid:
        first.append("mount -t proc proc /proc")
    return ["unshare", *options, "sh", "-ec", "; ".join([*first, 'exec "$@"']), "sh"]


def needs(world: World) -> None:
    """Skips a test where this kernel or container forbids such a world."""
    done = subprocess.run([*world, "true"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"not to be had here: {' '.join(world[:6])}: {done.stderr.strip()}")


@dataclass(frozen=True)
class Program:
    """The interpreter, the words before it that make it readable, and PYTHONPATH."""

    python: list[str]
    outside: list[str]
    path: str


@dataclass(frozen=True)
class Elsewhere:
    """A user's own home, and the program where that user can read it."""

    home: Path
    program: Program

    def env(self, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")}
        return {
            **kept,
            "PYTHONPATH": self.program.path,
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.home / "r"),
            "DBDYNO_SERVER_DIR": str(self.home / "s"),
            "COLUMNS": "100",
            **more,
        }

    def words(self, *words: str, world: Sequence[str] = ()) -> list[str]:
        """Returns the whole command line."""
        return [*self.program.outside, *world, *self.program.python, "-m", "dbdyno", *words]

    def dbdyno(
        self, *words: str, world: Sequence[str] = (), timeout_s: float = 300, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs the program to its end. Raises :class:`subprocess.TimeoutExpired` once all of it has been
        ended."""
        with subprocess.Popen(
            self.words(*words, world=world),
            env=self.env(**env),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(words, process.returncode, out, err)


@contextlib.contextmanager
def a_home(program: Program, owner: tuple[int, int], parent: Path) -> Iterator[Elsewhere]:
    """Yields a home of ``owner``. Its servers end with it."""
    home = Path(tempfile.mkdtemp(dir=parent))
    for place in (home, home / "r", home / "s"):
        place.mkdir(exist_ok=True, mode=0o700)
        place.chmod(0o700 if place.name == "r" else 0o755)
        if os.geteuid() == 0:
            os.chown(place, *owner)
    yield Elsewhere(home, program)


def readable_program(parent: Path) -> Program:
    """Returns dbdyno such that any user can run it.

    The files themselves serve if they are readable. Otherwise they are bound to a readable place, in a
    mount namespace of each program's own, so nothing is copied and nothing remains.
    """
    package, site = Path(dbdyno.__file__).parent.parent, Path(sysconfig.get_path("purelib"))
    base, program = Path(sys.base_prefix), Path(sys.executable).resolve()
    # by a shell: setpriv itself may still read what its user may not
    trial = [
        *as_user(),
        "sh",
        "-c",
        'exec "$@"',
        "sh",
        str(program),
        "-c",
        "import dbdyno._core, polars, psycopg",
    ]
    direct = f"{package}:{site}"
    if _runs(trial, direct):
        return Program([str(program)], [], direct)
    places = {
        source: parent / name for source, name in ((package, "package"), (site, "site"), (base, "base"))
    }
    for place in places.values():
        place.mkdir()
    commands = [f"mount --bind '{source}' '{place}'" for source, place in places.items()]
    outside = ["unshare", "--mount", "sh", "-ec", "; ".join([*commands, 'exec "$@"']), "sh"]
    moved = ["env", f"LD_LIBRARY_PATH={places[base] / 'lib'}", str(places[base] / program.relative_to(base))]
    bound = f"{places[package]}:{places[site]}"
    if not _runs([*outside, *trial[:-3], *moved, *trial[-2:]], bound):
        pytest.skip(f"{program} or {package} is not readable for other users, and mounts are not permitted")
    return Program(moved, outside, bound)


def _runs(words: list[str], path: str) -> bool:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(words, env=env, cwd="/", capture_output=True, check=False).returncode == 0
