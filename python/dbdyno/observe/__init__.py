"""The observers: the host, a watch over one cell, its tables, and what each data source could read."""

from typing import TYPE_CHECKING

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from dbdyno.observe.frames import frames, recent_frames
    from dbdyno.observe.glance_parts import brief_seen
    from dbdyno.observe.host import host
    from dbdyno.observe.percpu import counter_files, per_cpu
    from dbdyno.observe.recorded import opened, record
    from dbdyno.observe.sources import Said, sources
    from dbdyno.observe.topology import topology
    from dbdyno.observe.watch import THREADS, How, NoWatch, check_exact, open_observation, open_watch

__all__ = [
    "THREADS",
    "How",
    "NoWatch",
    "Said",
    "brief_seen",
    "check_exact",
    "counter_files",
    "frames",
    "host",
    "open_observation",
    "open_watch",
    "opened",
    "per_cpu",
    "recent_frames",
    "record",
    "sources",
    "topology",
]

lazy(__name__)
