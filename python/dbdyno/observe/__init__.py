"""The observers: the host, a watch over one cell, its tables, and the state of each data source."""

from typing import TYPE_CHECKING

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from dbdyno.observe.conditions import cpu_times, machine_facts
    from dbdyno.observe.flush import flush_probe
    from dbdyno.observe.free_memory import free_memory
    from dbdyno.observe.glance_parts import brief_seen
    from dbdyno.observe.host import at_end, counter_files, host, per_cpu
    from dbdyno.observe.limits import opened, read_of_host, record, server_limits
    from dbdyno.observe.open_files import direct_files
    from dbdyno.observe.sources import WatchState, judged, sources
    from dbdyno.observe.topology import topology
    from dbdyno.observe.watch import (
        THREADS,
        How,
        NoWatch,
        check_exact,
        frames,
        open_machine,
        open_observation,
        open_watch,
        recent_frames,
        refused,
    )

lazy(__name__)
