"""A run or an observation in progress, as far as its directory shows it: whoever started it.

Of an observation the newest derived window is what is live. Of a run, the measurements that have ended are
read as they were saved; the one in progress is known from what the measuring process notes once a second.
Files are read when they are new, and only while somebody looks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dbdyno.store import Run
from dbdyno.store.listing import is_alive
from dbdyno.store.overview import Overview, overviews

if TYPE_CHECKING:
    from dbdyno.conduct.live.following import Following


def running(root: Path) -> list[Overview]:
    """Returns the runs of a store that go on, the newest first."""
    return [o for o in reversed(overviews(root)) if o.run.status == "running"]


def is_over(record: Run) -> bool:
    """Returns whether a run has ended, and its results are stored or will not be."""
    info = record.info
    if info.status == "running":
        return False
    return (record.path / "derived").is_dir() or not is_alive(info.pid, info.pid_start_ticks)


def following(record: Run) -> Following:
    """Returns what follows a run in progress."""
    if record.plan.experiment.observation is not None:
        from dbdyno.conduct.live.observation import ObservationFollowing  # these take long to load

        return ObservationFollowing(record)
    from dbdyno.conduct.live.ladder import LadderFollowing

    return LadderFollowing(record)
