"""The load of one cell in its order: connect, wait at the barrier, start together, end, probe, close.

The core implements the counting rule (docs/how-it-works/counting.md). This room sequences the phases and
handles interrupts.
"""

from typing import TYPE_CHECKING

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from dbdyno.drive.phases import Interrupt, asking, connect, finish, frames, lead_ns, run, window_frames
    from dbdyno.model.errors import Interrupted

lazy(__name__)
