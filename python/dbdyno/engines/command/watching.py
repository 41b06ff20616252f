"""How a load of commands is observed: all processes that the launcher has started."""

from __future__ import annotations

from typing import Any

from dbdyno.model.sources.source import Source

SOURCES = (
    Source(
        name="activity samples",
        provenance="all threads of all processes of the commands (/proc/PID/task, children): state, and the "
        "kernel function that one sleeps in (wchan)",
        status="ok",
    ),
    Source(
        name="os tasks",
        provenance="/proc/PID/task/TID/schedstat and stat of all threads of the commands; of an execution's "
        "first process the same as it is reaped",
        status="ok",
    ),
)
"""The data sources common to all engines, as they are for commands."""


def watch_spec(launcher: int) -> dict[str, Any]:
    """Returns the engine's part of the watch's specification (docs/core.md). ``launcher`` is its pid."""
    return {
        "engine": "command",
        "activity": {"main_pid": launcher},
        "sessions": [],
        "os": True,
        "main_pid": launcher,
        "tree": True,
        "word": None,
        "places": [{"place": "working directory", "paths": ["."]}],
    }
