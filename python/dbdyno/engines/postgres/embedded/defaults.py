"""What the embedded server is started with, below what was asked for.

It records its own statistics from the start: with ``pg_stat_statements``, statement ids, and times of its
reads, writes and WAL. The README of this engine has what that costs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from dbdyno.engines.postgres.embedded import memory
from dbdyno.engines.postgres.embedded.programs import Programs
from dbdyno.engines.postgres.embedded.server_request import Wish
from dbdyno.model.errors import TargetError

PORT = 5432
_LIBRARIES = "shared_preload_libraries"
_STATISTICS = {
    _LIBRARIES: "pg_stat_statements",
    "compute_query_id": "on",
    "track_io_timing": "on",
    "track_wal_io_timing": "on",
}
_NOT_THERE = re.compile(r'could not access file "(?:\$libdir/)?pg_stat_statements"')


def settings(wish: Wish, socket_dir: Path) -> dict[str, str]:
    """All settings of its file."""
    ours = {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": str(socket_dir),
        "unix_socket_permissions": "0700",
        "max_connections": str(wish.connections),
        "shared_buffers": memory.shared_buffers(),
        "cluster_name": "dbdyno",
        "log_line_prefix": "%m [%p] ",
    }
    return ours | _STATISTICS | dict(wish.settings)


def without_statements(
    base: Mapping[str, str], wish: Wish, error: TargetError, programs: Programs
) -> dict[str, str]:
    """``base`` without the library, which is not installed if ``error`` says so; raises ``error`` where it
    does not, or where the library was asked for."""
    if not _NOT_THERE.search(error.message) or _LIBRARIES in wish.settings:
        raise error
    print(f"{programs.bin_dir} has no pg_stat_statements: no figures per statement", file=sys.stderr)
    return {name: value for name, value in base.items() if name != _LIBRARIES}
