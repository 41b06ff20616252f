"""Figures and colours of the live view."""

from __future__ import annotations

from dbdyno.model.source import HIDDEN_STATUS
from dbdyno.model.wait_families import Family
from dbdyno.observe.glance import EventLine, Glance

LEAST = 0.0005  # seconds per second: what shows as more than 0.000
RUN, WAIT = "green", "dark_orange"
_COLORS = {
    Family.IO: "blue",
    Family.COMMIT: "bright_blue",
    Family.LOCK: "red",
    Family.LATCH: "magenta",
    Family.NETWORK: "cyan",
    Family.TIMER: "bright_black",
    Family.CLIENT: "bright_black",
    Family.OTHER: "yellow",
}


def event_color(event: EventLine) -> str:
    return _COLORS[event.family] if event.wait_class else "white"


def hidden_in_words(hidden: int, sessions: int) -> str:
    """Empty where all sessions are seen."""
    return f"{hidden} of {sessions} sessions {HIDDEN_STATUS}" if hidden else ""


def number(value: float | None, unknown: str = "?") -> str:
    """Seconds per second: three digits."""
    if value is None:
        return unknown
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def brief_words(seen: Glance) -> str:
    """What sessions too brief to be sampled used; empty: there were none."""
    brief = seen.brief
    if brief is None:
        return ""
    plural = "session" if brief.processes == 1 else "sessions"
    count = plural if brief.processes is None else f"{brief.processes:,} {plural}"
    rest = ", the rest unknown" if brief.runq is None else f", CPU WAIT {number(brief.runq)}"
    return f"  {count} too brief to be sampled: CPU {number(brief.run)}{rest}"


def share(value: float | None) -> str:
    """Per cent, at most one decimal."""
    if value is None:
        return "?"
    return f"{100 * value:.0f}" if value >= 0.0995 else f"{100 * value:.1f}"


def clock(seconds: float) -> str:
    """``1:02:03``."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"
