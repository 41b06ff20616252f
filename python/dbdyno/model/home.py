"""Where this user's own files are kept, also in a container that knows neither home directory nor user."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from dbdyno.model.errors import UsageError


def base_directory(variable: str, below_home: str, what: str, cure: str) -> Path:
    """A directory of the XDG Base Directory Specification (0.8): ``variable``, else ``below_home``.

    Relative ones are ignored, as it says; so is a HOME that is relative or not there. Raises
    :class:`UsageError` with ``cure``, which names another place for ``what``, where there is none.
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
    """The directory that the user database names; empty where there is none, or no such user."""
    try:
        entry = pwd.getpwuid(os.getuid()).pw_dir
    except (KeyError, OSError):
        return ""
    return entry if Path(entry).is_dir() else ""
