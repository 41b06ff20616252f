"""Directories for this user's own files, even in a container without a home directory or a user entry."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from dbdyno.model.errors import UsageError


def base_directory(variable: str, below_home: str, what: str, cure: str) -> Path:
    """Returns a directory of the XDG Base Directory Specification (0.8): ``variable``, else ``below_home``.

    Relative paths are ignored, as the specification requires. A HOME that is relative or missing is ignored,
    too. Raises :class:`UsageError` if there is no directory; its text names ``what`` was to be stored and
    has ``cure``, another place for it.
    """
    places = [os.environ.get(variable, ""), *(str(Path(h, below_home)) for h in _homes() if Path(h).is_dir())]
    for place in places:
        if place.startswith("/"):
            return Path(place)
    raise UsageError(
        f"no place for {what}: HOME names no directory, and user {os.getuid()} has no home directory",
        f"{cure}; in a container, docker run --user with a user that the image knows, or --env HOME=DIR",
    )


def _homes() -> list[str]:
    return [os.environ.get("HOME", ""), user_home()]


def user_home() -> str:
    """Returns the home directory in the user database; empty if there is no such user or directory."""
    try:
        entry = pwd.getpwuid(os.getuid()).pw_dir
    except (KeyError, OSError):
        return ""
    return entry if Path(entry).is_dir() else ""
