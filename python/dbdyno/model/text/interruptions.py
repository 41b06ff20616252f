"""Prefixes of the reasons of windows that were not observed throughout, or that ended late."""

AWAY = ("dbdyno was stopped", "the machine was suspended")
"""dbdyno itself was interrupted."""
SLOW = "the server answered "
"""The server took long to answer at the end of the window."""
LATE = "dbdyno was late "
"""The answer was late, but dbdyno itself worked or waited for a CPU for most of that time."""
