"""What it all means: rungs, load profile, top events, and findings in words with evidence and cure. Pure."""

from dbdyno.analyze.driver import judged
from dbdyno.analyze.findings import findings
from dbdyno.analyze.placement import placement
from dbdyno.analyze.profile import profile, profile_total
from dbdyno.analyze.rungs import rungs
from dbdyno.analyze.top import top_events, top_events_total

__all__ = [
    "findings",
    "judged",
    "placement",
    "profile",
    "profile_total",
    "rungs",
    "top_events",
    "top_events_total",
]
