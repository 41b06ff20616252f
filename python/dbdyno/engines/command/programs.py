"""Checks that a job can be started, before anything is measured."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from dbdyno.model.errors import UsageError
from dbdyno.model.plan.jobs import PlannedJob

_PLACEHOLDER = re.compile(r"\{(session|job)\}")  # filled in when the job is started
_OTHER_FORMATS = Path("/proc/sys/fs/binfmt_misc")


def check(job: PlannedJob) -> None:
    """Raises :class:`UsageError` if the job cannot be started. Skips paths with placeholders."""
    who = f"job {job.name}"
    if (
        job.directory is not None
        and not _PLACEHOLDER.search(job.directory)
        and not Path(job.directory).is_dir()
    ):
        raise UsageError(f"{who}: there is no directory {job.directory}", "make it, or name another")
    asides = {"prepare": job.prepare, "conclude": job.conclude, "verify": job.verify}
    check_program(who, job.argv, job.directory, job.env)
    for what, argv in asides.items():
        if argv:
            check_program(f"{who}, {what}", argv, job.directory, job.env)
    if job.input is not None and not _PLACEHOLDER.search(job.input):
        _check_input(who, Path(job.directory or ".", job.input))


def _check_input(who: str, path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as e:
        raise UsageError(
            f"{who}: cannot read its input {path}: {e.strerror}", "name a file that can be read"
        ) from e


def check_program(who: str, argv: Sequence[str], directory: str | None, env: Mapping[str, str]) -> None:
    """Raises :class:`UsageError` if the program cannot be started. The message leaves out arguments, which
    may be hidden."""
    if not argv or not argv[0]:
        raise UsageError(f"{who}: a command without a program", "name the program first")
    if any("\0" in text for text in (*argv, *env, *env.values(), directory or "")):
        raise UsageError(
            f"{who}: a command with a NUL character", "no program can be given one: leave it out"
        )
    if any(not name or "=" in name for name in env):
        raise UsageError(f"{who}: an environment variable has no name, or = in it", "NAME = value")
    if (
        _PLACEHOLDER.search(argv[0])
        or _PLACEHOLDER.search(directory or "")
        or any(map(_PLACEHOLDER.search, env.values()))
    ):
        return
    _check_file(who, argv[0], _find_program(who, argv[0], Path(directory or "."), env))


def _find_program(who: str, name: str, directory: Path, env: Mapping[str, str]) -> Path:
    """Returns the file that execvp(3) would run from this directory. Raises :class:`UsageError`."""
    if "/" in name:
        if not (path := directory / name).exists():
            raise UsageError(f"{who}: there is no program {name}", f"looked for {path.absolute()}")
        return path
    path_variable = env.get("PATH", os.environ.get("PATH", "/bin:/usr/bin"))
    files = [directory / (place or ".") / name for place in path_variable.split(":")]
    files = [path for path in files if _is_file(path)]
    if not files:
        builtin = name in _BUILTINS
        raise UsageError(
            f"{who}: there is no program {name} in PATH",
            "that is a command of shells: --shell sh" if builtin else "install it, or give its path",
        )
    return next((path for path in files if os.access(path, os.X_OK)), files[0])


_BUILTINS = frozenset(
    {"cd", "source", ".", "export", "exit", "set", "ulimit", "umask", "for", "while", "if", "wait"}
)


def _is_file(path: Path) -> bool:
    """Returns whether the file exists, False in a directory that may not be searched, which execvp(3) skips
    too."""
    try:
        return path.is_file()
    except PermissionError:
        return False


def _check_file(who: str, name: str, path: Path) -> None:
    """Raises :class:`UsageError` if the kernel would refuse to execute this file."""
    if path.is_dir():
        raise UsageError(f"{who}: {name} is a directory", "name a program in it")
    if not os.access(path, os.X_OK):
        raise UsageError(
            f"{who}: {path} may not be executed",
            f"chmod +x {shlex.quote(str(path))}, or name its interpreter first",
        )
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError:  # may be executed, not read
        return
    if head[:2] != b"#!" and head != b"\x7fELF" and not _other_formats():
        raise UsageError(
            f"{who}: {path} is neither a program nor a script that begins with #!",
            f"name its interpreter first: sh {name}",
        )


def _other_formats() -> bool:
    """Returns whether the kernel executes further formats of programs here (binfmt_misc)."""
    try:
        return any(path.name not in ("register", "status") for path in _OTHER_FORMATS.iterdir())
    except OSError:
        return False
