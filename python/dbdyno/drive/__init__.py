"""The load of one cell, in its order: connect, park, start together, end by themselves, probe, close.

The counting rule (docs/concepts.md) is kept by the core; this room keeps the phases and the interrupts.
"""

from typing import TYPE_CHECKING

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from dbdyno.drive.phases import Interrupt, asking, connect, finish, frames, lead_ns, run, window_frames
    from dbdyno.model.errors import Interrupted


lazy(
    __name__,
    {
        "Interrupt": "dbdyno.drive.phases",
        "Interrupted": "dbdyno.model.errors",
        "asking": "dbdyno.drive.phases",
        "connect": "dbdyno.drive.phases",
        "finish": "dbdyno.drive.phases",
        "frames": "dbdyno.drive.phases",
        "lead_ns": "dbdyno.drive.phases",
        "run": "dbdyno.drive.phases",
        "window_frames": "dbdyno.drive.phases",
    },
)
