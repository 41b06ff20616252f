"""Whether a job can be started, said before anything is measured."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from dbdyno.model.errors import UsageError
from dbdyno.model.plan.jobs import PlannedJob

_LATER = re.compile(r"\{(session|job)\}")  # filled in when it is started
_OTHER_FORMATS = Path("/proc/sys/fs/binfmt_misc")


def check(job: PlannedJob) -> None:
    """Raises :class:`UsageError`. What is known only when a session starts it is left out."""
    who = f"job {job.name}"
    if job.directory is not None and not _LATER.search(job.directory) and not Path(job.directory).is_dir():
        raise UsageError(f"{who}: there is no directory {job.directory}", "make it, or name another")
    besides = {"prepare": job.prepare, "conclude": job.conclude, "verify": job.verify}
    check_program(who, job.argv, job.directory, job.env)
    for what, argv in besides.items():
        if argv:
            check_program(f"{who}, {what}", argv, job.directory, job.env)
    if job.input is not None and not _LATER.search(job.input):
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
    """Raises :class:`UsageError`, without arguments: they may be hidden."""
    if not argv or not argv[0]:
        raise UsageError(f"{who}: a command without a program", "name the program first")
    if any("\0" in text for text in (*argv, *env, *env.values(), directory or "")):
        raise UsageError(
            f"{who}: a command with a NUL character", "no program can be given one: leave it out"
        )
    if any(not name or "=" in name for name in env):
        raise UsageError(f"{who}: an environment variable has no name, or = in it", "NAME = value")
    if _LATER.search(argv[0]) or _LATER.search(directory or "") or any(map(_LATER.search, env.values())):
        return
    _check_file(who, argv[0], _found(who, argv[0], Path(directory or "."), env))


def _found(who: str, name: str, directory: Path, env: Mapping[str, str]) -> Path:
    """As execvp(3) looks for it, from the directory that it runs in."""
    if "/" in name:
        if not (path := directory / name).exists():
            raise UsageError(f"{who}: there is no program {name}", f"looked for {path.absolute()}")
        return path
    path_variable = env.get("PATH", os.environ.get("PATH", "/bin:/usr/bin"))
    there = [directory / (place or ".") / name for place in path_variable.split(":")]
    there = [path for path in there if _is_file(path)]
    if not there:
        builtin = name in _BUILTINS
        raise UsageError(
            f"{who}: there is no program {name} in PATH",
            "that is a command of shells: --shell sh" if builtin else "install it, or give its path",
        )
    return next((path for path in there if os.access(path, os.X_OK)), there[0])


_BUILTINS = frozenset(
    {"cd", "source", ".", "export", "exit", "set", "ulimit", "umask", "for", "while", "if", "wait"}
)


def _is_file(path: Path) -> bool:
    """Not one in a directory that we may not search: execvp(3) passes over it, too."""
    try:
        return path.is_file()
    except PermissionError:
        return False


def _check_file(who: str, name: str, path: Path) -> None:
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
    """Whether the kernel knows more kinds of programs here (binfmt_misc)."""
    try:
        return any(path.name not in ("register", "status") for path in _OTHER_FORMATS.iterdir())
    except OSError:
        return False
