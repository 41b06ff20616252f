"""Names runs in titles and lines: by their own names, else by workload and time."""

from __future__ import annotations

from collections.abc import Sequence

from dbdyno.model.results.results import Results
from dbdyno.model.text.visible import one_line, shortened

_LONGEST = 40
"""Most characters of a workload's name."""


def run_names(runs: Sequence[Results]) -> list[str]:
    """Returns each run's name, or what was measured and when: ``lio, 28 Nov 12:32``. Names that several have
    are followed by the id."""
    names = [_name(r) for r in runs]
    return [
        f"{name}, run {r.info.id}" if names.count(name) > 1 else name
        for name, r in zip(names, runs, strict=True)
    ]


def _name(results: Results) -> str:
    if results.info.name:
        return one_line(results.info.name)
    workloads = ", ".join(dict.fromkeys(results.tables["rungs"]["workload"])) or "run"
    return f"{shortened(one_line(workloads), _LONGEST, 1)}, {results.info.started.astimezone():%-d %b %H:%M}"
