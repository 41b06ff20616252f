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


lazy(
    __name__,
    {
        "How": "dbdyno.observe.watch",
        "NoWatch": "dbdyno.observe.watch",
        "Said": "dbdyno.observe.sources",
        "THREADS": "dbdyno.observe.watch",
        "brief_seen": "dbdyno.observe.glance_parts",
        "check_exact": "dbdyno.observe.watch",
        "counter_files": "dbdyno.observe.percpu",
        "frames": "dbdyno.observe.frames",
        "host": "dbdyno.observe.host",
        "open_observation": "dbdyno.observe.watch",
        "open_watch": "dbdyno.observe.watch",
        "opened": "dbdyno.observe.recorded",
        "per_cpu": "dbdyno.observe.percpu",
        "recent_frames": "dbdyno.observe.frames",
        "record": "dbdyno.observe.recorded",
        "sources": "dbdyno.observe.sources",
        "topology": "dbdyno.observe.topology",
    },
)
