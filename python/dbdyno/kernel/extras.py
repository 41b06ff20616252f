"""Extras: libraries that are installed only where they are wanted, by ``pip install 'dbdyno[web]'``."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

from dbdyno.model.errors import NotInstalled


def check_extra(extra: str, wanting: str, *libraries: str) -> None:
    """Raises :class:`NotInstalled` if ``wanting``, a command for example, lacks a library of the extra."""
    missing = [name for name in libraries if find_spec(name) is None]
    if missing:
        raise NotInstalled(f"{wanting} needs {' and '.join(missing)}, not installed", installing(extra))


def installing(extra: str) -> str:
    """Returns the command that adds the extra to this installation. It takes the libraries from the index,
    and dbdyno itself as it is."""
    wanted, place = f"'dbdyno[{extra}]'", Path(sys.prefix)
    if (place / "pipx_metadata.json").exists():
        return f"pipx runpip {shlex.quote(place.name)} install {wanted}"
    if (place / "uv-receipt.toml").exists():
        return f"uv pip install --python {shlex.quote(str(place))} {wanted}"
    return f"pip install {wanted}"
