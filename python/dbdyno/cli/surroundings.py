"""Remarks on environment variables that this machine does not match: time zone and home directory."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from dbdyno.model.home import user_home

_RULE = re.compile(r"(<[A-Za-z0-9+-]{3,}>|[A-Za-z]{3,})[+-]?\d{1,3}(:\d{1,2}){0,2}.*")
"""A time zone given as a rule (POSIX, "Environment Variables", TZ)."""
_ZONES = "/usr/share/zoneinfo"


def remark() -> None:
    """Prints the remarks to standard error."""
    for line in (*_zone(os.environ.get("TZ", "")), *_home(os.environ.get("HOME", ""))):
        sys.stderr.write(f"note: {line}\n")


def _zone(given: str) -> Iterator[str]:
    """Yields a remark if TZ is unknown: the C library then uses UTC."""
    name = given.removeprefix(":")
    if name in ("", "UTC", "GMT") or _RULE.fullmatch(name):
        return
    if not Path(os.environ.get("TZDIR") or _ZONES, name).is_file():
        yield f"TZ={given}: this machine knows no such time zone; times are in UTC"


def _home(given: str) -> Iterator[str]:
    """Yields a remark if HOME is no directory. The C library, libpq and Python then disagree; dbdyno uses
    the user database."""
    if given and not Path(given).is_dir():
        home = user_home()
        instead = f"{home} of the user database is used" if home else "name one that exists"
        yield f"HOME={given}: there is no such directory; {instead}"
