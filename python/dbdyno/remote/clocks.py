"""The clock of another host: its offset and drift against ours, with a bound."""

from __future__ import annotations

from collections.abc import Callable

from dbdyno.model.units import NS_PER_S
from dbdyno.stats.clocks import Exchange, Mapping, Offset

EXCHANGES = 40
_FAR_NS = NS_PER_S
"""Offsets that are nearer to each other than this say nothing about drift."""
_SURE = 20e-6
"""Drift that may be off by more than this is better taken for none, when times are foretold."""


class HostClock:
    """Measured by :meth:`measure` before and after each cell; between two of them times are mapped by a line.

    ``exchange``: asks the other host for its time once (``Agent.clock``).
    """

    def __init__(self, exchange: Callable[[], Exchange], exchanges: int = EXCHANGES) -> None:
        self._exchange, self._exchanges = exchange, exchanges
        self._offsets: list[Offset] = []
        self.round_trip_ns = 0
        """The least of the latest measurement."""
        self.measure()

    def measure(self) -> Offset:
        """Their clock against ours now, from the exchange with the least round trip of some."""
        made = [self._exchange() for _ in range(self._exchanges)]
        self.round_trip_ns = min(e.round_trip_ns for e in made)
        self._offsets.append(Offset.of(made))
        return self._offsets[-1]

    def mapping(self) -> Mapping:
        """Between the latest measurement and the one before it: for what was read meanwhile."""
        last = self._offsets[-1]
        before = [o for o in self._offsets if last.at_ns - o.at_ns >= _FAR_NS]
        return Mapping(before[-1] if before else last, last)

    def _ahead(self) -> Mapping:
        """From the latest measurement on: with the drift since the first, where that is known well enough."""
        long = Mapping(self._offsets[0], self._offsets[-1])
        passed = long.last.at_ns - long.first.at_ns
        error = long.first.bound_ns + long.last.bound_ns
        known = error <= _SURE * passed
        return Mapping(long.first, long.last) if known else Mapping(long.last, long.last)

    def to_theirs(self, ours_ns: int) -> int:
        """An instant to come."""
        return self._ahead().to_theirs(ours_ns)

    def to_ours(self, theirs_ns: int) -> int:
        """An instant between the two latest measurements."""
        return self.mapping().to_ours(theirs_ns)
