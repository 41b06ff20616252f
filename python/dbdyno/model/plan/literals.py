"""Options and recipe keys with a fixed set of values. The module imports little because every ``--help``
loads it."""

from typing import Literal

Arrangement = Literal["serial", "parallel", "concurrent", "both"]
Arrivals = Literal["poisson", "constant"]
Expected = Literal["disk", "cache", "memory"]
Order = Literal["ladder", "interleaved", "shuffled"]
Protocol = Literal["prepared", "extended", "simple"]
Reset = Literal["each", "block", "never"]
"""The measurements before which data are loaded again: each one, the first of each repeat or of each round
of variants, or none."""
ServerSettings = Literal["own", "same"]
"""The settings of the servers of variants: the defaults of each, or those of the oldest for all."""
Shell = Literal["none", "sh", "bash"]
Spread = Literal["even", "cpus", "pack"]
"""The distribution of sessions: the same number for each driver, in proportion to their CPUs, or one driver
filled after the other."""
Waits = Literal["auto", "sampled", "exact"]

ALL_CPUS = "all that are online"
INTERLEAVED = "each block has every variant once, with another one first each time: drift cancels out"
"""Reasons of choices that everybody expects."""
SERVER_AFTER_SERVER = (
    "each repeat measures the whole ladder on one start of each server, with another server first each time: "
    "drift cancels out"
)
"""Reason of the order in which servers that dbdyno starts are measured."""
STARTED_AND_RUNNING = (
    "each repeat measures the whole ladder on each server, on one start of those that dbdyno starts, with "
    "another server first each time: drift cancels out"
)
"""Reason of the same order if some of the servers run already."""
