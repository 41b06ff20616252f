"""A data directory: a copy of a template made by initdb, with dbdyno's settings in a file of their own."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from dbdyno.engines.postgres.embedded.account import Account, cure_for
from dbdyno.engines.postgres.embedded.cached import in_use
from dbdyno.engines.postgres.embedded.places import make_place
from dbdyno.engines.postgres.embedded.programs import Programs, run_program
from dbdyno.engines.postgres.embedded.worker import Worker, argv, make_directory, remove_directory
from dbdyno.kernel.private import discard, is_sound
from dbdyno.model.errors import DbdynoError, TargetError, UsageError

ROLE = "dbdyno"  # the superuser; its name is the same on every machine
SETTINGS_FILE = "dbdyno.conf"
_INITDB = (
    f"--username={ROLE}",
    "--auth-local=trust",  # on a socket in a private directory
    "--auth-host=reject",
    "--encoding=UTF8",
    "--locale=C",
    "--data-checksums",  # the default from version 18 on; versions are compared
)
_PATIENCE_S = 600.0  # writes and syncs 39 MB, perhaps to a slow disk
_INHERITED = ("PATH", "LD_LIBRARY_PATH", "TZ")
_NAME = re.compile(r"[a-z_][a-z0-9_.]*\Z", re.IGNORECASE)


def make_data(data: Path, programs: Programs, worker: Worker, cache: Path, check: Callable[[], None]) -> None:
    """Creates the data directory ``data``, completely or not at all. What ``check`` raises ends it early."""
    building = unfinished(data)
    remove_directory(building)
    try:
        with in_use(cache):
            template = _template(programs, worker, cache, check)
            make_directory(building, worker.account)
            worker.copy(template, building)
        _initdb(programs, worker.account, check, "--sync-only", "-D", building)
        building.rename(data)
    except BaseException:
        remove_directory(building)
        raise


def unfinished(data: Path) -> Path:
    """Returns where a data directory is until it is complete."""
    return data.with_name(f"{data.name}.new")


def _template(programs: Programs, worker: Worker, cache: Path, check: Callable[[], None]) -> Path:
    """Returns the template cluster for this version and these options. Creates it the first time, and
    again if other users could write to it, since settings in its files can be commands that the server
    runs."""
    account = worker.account
    key = hashlib.sha256(f"{programs.bin_dir} {_INITDB}".encode()).hexdigest()[:12]
    name = f"{programs.version}-{key}" + (f"-{account.uid}" if account.switch else "")
    template = cache / "clusters" / name
    if not is_sound(template.parent):
        discard(template.parent)
        make_place(template.parent, account)
    if is_sound(template, account.uid):
        return template
    remove_directory(template)
    building = template.with_name(f"{template.name}.{os.getpid()}")
    remove_directory(building)
    make_directory(building, account)
    try:
        done = _initdb(programs, account, check, "-D", building, *_INITDB)
        if done.returncode != 0:
            raise _initdb_error(programs, account, (done.stderr or done.stdout).strip())
        worker.append(building / "postgresql.conf", f"\ninclude '{SETTINGS_FILE}'\n")
        building.rename(template)
    except BaseException as e:
        remove_directory(building)
        if not (
            isinstance(e, OSError) and is_sound(template, account.uid)
        ):  # else another process was quicker
            raise
    return template


def _initdb(
    programs: Programs, account: Account, check: Callable[[], None], *words: str | Path
) -> subprocess.CompletedProcess[str]:
    """Raises :class:`TargetError` if it does not end, and what ``check`` raises."""
    program = programs.path("initdb")
    command = argv(account, f"{os.getpid()}:9", program, *words)
    try:
        return run_program(command, _PATIENCE_S, clean_environment(), check)
    except subprocess.TimeoutExpired:
        raise TargetError(
            f"{program} does not end within {_PATIENCE_S:g} s", "see whether the disk is busy, or it waits"
        ) from None


def _initdb_error(programs: Programs, account: Account, words: str) -> DbdynoError:
    if "user does not exist" in words:
        return UsageError(
            f"initdb failed: {words}",
            f"PostgreSQL needs a name for user {account.uid}: add a line for it to /etc/passwd, or run as "
            "a user that has one (docker run --user NAME)",
        )
    by_hand = f"try {shlex.quote(programs.path('initdb'))} by hand as {account.name}"
    return TargetError(f"initdb failed: {words}", cure_for(words) or by_hand)


def clean_environment() -> dict[str, str]:
    """Returns the environment for the server's programs. Other variables may be secrets, which SQL could
    read by COPY TO PROGRAM, or PG* variables, which would change what the programs do."""
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return kept | {"LC_ALL": "C", "HOME": "/"}


def settings_text(settings: Mapping[str, str]) -> str:
    """Returns the text of the settings file. Raises :class:`UsageError` for names and values that do not
    fit into it."""
    lines = ["# Written anew at each start by dbdyno.\n"]
    for name, value in settings.items():
        if not _NAME.match(name):
            raise UsageError(f"not the name of a server setting: {name!r}", "write name=value")
        if "\n" in value:
            raise UsageError(f"setting {name}: its value has more than one line", "write it in one")
        quoted = value.replace("\\", "\\\\").replace("'", "''")
        lines.append(f"{name} = '{quoted}'\n")
    return "".join(lines)
