"""The installed servers that variants name: by version, or by directory of programs."""

from __future__ import annotations

from pathlib import Path

from dbdyno.engines.postgres.embedded.installed import PLACES, VARIABLE, installed
from dbdyno.engines.postgres.embedded.programs import Programs, find_programs
from dbdyno.kernel.extras import installing
from dbdyno.model.errors import NotInstalled, UsageError
from dbdyno.model.plan.servers import is_version


def programs_of(version: str) -> Programs:
    """Returns the programs of a version, ``17`` or ``17.6``; of several, the newest. Raises
    :class:`UsageError` with what was looked at and the versions that are there."""
    known = installed()
    fitting = [p for p in known if p.version == version or p.version.split(".")[0] == version]
    if fitting:
        return max(fitting, key=_minor)  # of equal ones the first
    there = ", ".join(f"{p.version} ({p.bin_dir})" for p in known) or "none"
    raise UsageError(
        f"PostgreSQL {version} is not installed; there are: {there}",
        f"looked at {', '.join(PLACES)}, PATH, dbdyno's own and the directories in {VARIABLE}; name its "
        "directory of programs instead of the version, or in that variable",
    )


def programs_named(text: str | None) -> Programs:
    """Returns the programs of a version or directory; for None those of the wheel. Raises
    :class:`UsageError`."""
    if text is None:
        try:
            return find_programs(None)
        except NotInstalled as e:
            raise NotInstalled(
                e.message, f'{installing("server")}; or name another server: server = "17"'
            ) from None
    return programs_of(text) if is_version(text) else find_programs(Path(text))


def _minor(programs: Programs) -> int:
    minor = programs.version.partition(".")[2]
    return int(minor) if minor.isdigit() else -1
