"""The observers: what the host is, a watch over one cell, its tables, and how far each witness got."""

from dbdyno.observe.frames import frames
from dbdyno.observe.host import host
from dbdyno.observe.sources import sources
from dbdyno.observe.watch import open_watch

__all__ = ["frames", "host", "open_watch", "sources"]
