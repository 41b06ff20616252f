"""Where the agent's program is: one for each kind of processor that this dbdyno was built with."""

from __future__ import annotations

import platform
from importlib.resources import files
from pathlib import Path

from dbdyno.model.errors import NotAvailable


def program(arch: str | None = None) -> Path:
    """The program for ``arch`` (as ``uname -m`` says; None: of this host). Raises :class:`NotAvailable`."""
    arch = arch or platform.machine()
    found = Path(str(files("dbdyno.remote"))) / "programs" / f"dbdyno-agent-{arch}"
    if found.is_file():
        return found
    raise NotAvailable(
        f"this dbdyno has no agent for {arch}",
        "install dbdyno on that host, or build the agent there: make agent",
    )
