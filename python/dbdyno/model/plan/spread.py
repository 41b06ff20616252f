"""How sessions are spread over drivers; apart from :mod:`dbdyno.model.plan.cluster`, which loads more."""

from typing import Literal

Spread = Literal["even", "cpus", "pack"]
"""The same number for each driver; in proportion to their CPUs; each full before the next has any."""
