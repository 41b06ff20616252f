"""A data directory: a template made once by initdb, copied, and our settings in a file of their own."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from dbdyno.engines.postgres.embedded.account import Account
from dbdyno.engines.postgres.embedded.programs import Programs
from dbdyno.model.errors import TargetError, UsageError

ROLE = "dbdyno"  # superuser, named after nothing of the machine
SETTINGS_FILE = "dbdyno.conf"
_INITDB = (
    f"--username={ROLE}",
    "--auth-local=trust",  # on a socket in a private directory
    "--auth-host=reject",
    "--encoding=UTF8",
    "--locale=C",
)
_NAME = re.compile(r"[a-z_][a-z0-9_.]*\Z", re.IGNORECASE)


def make_data(data: Path, programs: Programs, account: Account, cache: Path) -> None:
    """A fresh ``data``, complete or not there."""
    building = data.with_name(f"{data.name}.new")
    shutil.rmtree(building, ignore_errors=True)
    shutil.copytree(_template(programs, account, cache), building, copy_function=shutil.copy)
    _hand_over(building, account)
    subprocess.run([programs.path("initdb"), "--sync-only", "-D", building], **_quietly(account))  # type: ignore[call-overload]
    building.rename(data)


def _template(programs: Programs, account: Account, cache: Path) -> Path:
    """The cluster for this version and these options, from the cache; made there the first time."""
    key = hashlib.sha256(f"{programs.bin_dir} {_INITDB}".encode()).hexdigest()[:12]
    template = cache / "clusters" / f"{programs.version}-{key}"
    if template.exists():
        return template
    building = template.with_name(f"{template.name}.{os.getpid()}")
    shutil.rmtree(building, ignore_errors=True)
    building.parent.mkdir(mode=0o755, exist_ok=True)
    building.mkdir(mode=0o700)
    _hand_over(building, account)
    made = subprocess.run(
        [programs.path("initdb"), "-D", building, *_INITDB],
        **_quietly(account),  # type: ignore[call-overload]
    )
    if made.returncode != 0:
        shutil.rmtree(building, ignore_errors=True)
        words = (made.stderr or made.stdout).strip()
        cure = f"try {programs.path('initdb')} by hand as {account.name}"
        if "user does not exist" in words:
            cure = f"PostgreSQL needs a name for user {account.uid}: add a line for it to /etc/passwd"
        raise TargetError(f"initdb failed: {words}", cure)
    with (building / "postgresql.conf").open("a") as conf:
        conf.write(f"\ninclude '{SETTINGS_FILE}'\n")
    try:
        building.rename(template)
    except OSError:  # another process was quicker
        shutil.rmtree(building, ignore_errors=True)
    return template


def _hand_over(directory: Path, account: Account) -> None:
    if account.switch:
        for path in (directory, *directory.rglob("*")):
            os.chown(path, account.uid, account.gid)


def _quietly(account: Account) -> dict[str, object]:
    return {
        "capture_output": True,
        "text": True,
        "env": clean_environment(),
        "cwd": "/",
        "umask": 0o077,
        **account.popen_arguments(),
    }


def clean_environment() -> dict[str, str]:
    """Ours without PG* variables, which would steer the server's programs too."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
    return kept | {"LC_ALL": "C", "HOME": "/"}


def write_settings(data: Path, account: Account, settings: Mapping[str, str]) -> None:
    """``dbdyno.conf``: the server reads it at start. Raises :class:`UsageError` on a bad name."""
    file = data / SETTINGS_FILE
    file.write_text(settings_text(settings))
    file.chmod(0o600)
    if account.switch:
        os.chown(file, account.uid, account.gid)


def settings_text(settings: Mapping[str, str]) -> str:
    """What stands in that file."""
    lines = ["# Written anew at each start by dbdyno.\n"]
    for name, value in settings.items():
        if not _NAME.match(name):
            raise UsageError(f"not the name of a server setting: {name!r}", "write name=value")
        if "\n" in value:
            raise UsageError(f"setting {name}: its value has more than one line", "write it in one")
        quoted = value.replace("\\", "\\\\").replace("'", "''")
        lines.append(f"{name} = '{quoted}'\n")
    return "".join(lines)
