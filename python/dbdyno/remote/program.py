"""The path of the agent's program, one for each processor architecture that this dbdyno was built for."""

from __future__ import annotations

import platform
from importlib.resources import files
from pathlib import Path

from dbdyno.model.errors import NotAvailable


def program(arch: str | None = None) -> Path:
    """Returns the program for ``arch`` (as in ``uname -m``; None: of this host). Raises
    :class:`NotAvailable`."""
    arch = arch or platform.machine()
    path = Path(str(files("dbdyno.remote"))) / "programs" / f"dbdyno-agent-{arch}"
    if path.is_file():
        return path
    raise NotAvailable(
        f"this dbdyno has no agent for {arch}",
        "install dbdyno on that host, or build the agent there: make agent",
    )
