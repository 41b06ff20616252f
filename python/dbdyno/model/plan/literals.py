"""Values of options and of recipe keys that are one of a few words. Light: every ``--help`` loads this."""

from typing import Literal

Arrangement = Literal["serial", "parallel", "concurrent", "both"]
Arrivals = Literal["poisson", "constant"]
Expected = Literal["disk", "cache", "memory"]
Order = Literal["ladder", "interleaved", "shuffled"]
Protocol = Literal["prepared", "extended", "simple"]
Reset = Literal["each", "block", "never"]
"""Before which measurements: each; the first of each repeat, or of each round of variants; none."""
Shell = Literal["none", "sh", "bash"]
Spread = Literal["even", "cpus", "pack"]
"""The same number for each driver; in proportion to their CPUs; each full before the next has any."""
Waits = Literal["auto", "sampled", "exact"]
