"""The clock of another host: its offset and drift against ours, with an error bound."""

from __future__ import annotations

from collections.abc import Callable

from dbdyno.model.units import NS_PER_S
from dbdyno.stats.clocks import Exchange, Mapping, Offset

EXCHANGES = 40
_FAR_NS = NS_PER_S
"""Offsets that were measured within less time than this show no drift."""
_MOST_DRIFT_ERROR = 20e-6
"""If the error of the drift is larger than this, future times are predicted without drift."""


class HostClock:
    """A clock measured by :meth:`measure` before and after each cell; times between two measurements are
    mapped linearly.

    ``exchange``: requests the other host's time once (``Agent.clock``).
    """

    def __init__(self, exchange: Callable[[], Exchange], exchanges: int = EXCHANGES) -> None:
        self._exchange, self._exchanges = exchange, exchanges
        self._offsets: list[Offset] = []
        self.round_trip_ns = 0
        """The shortest one of the latest measurement."""
        self.measure()

    def measure(self) -> Offset:
        """Measures their clock against ours now, by the exchange with the shortest round trip."""
        exchanges = [self._exchange() for _ in range(self._exchanges)]
        self.round_trip_ns = min(e.round_trip_ns for e in exchanges)
        self._offsets.append(Offset.of(exchanges))
        return self._offsets[-1]

    def mapping(self) -> Mapping:
        """Returns the mapping between the two latest measurements, for times in between."""
        last = self._offsets[-1]
        before = [o for o in self._offsets if last.at_ns - o.at_ns >= _FAR_NS]
        return Mapping(before[-1] if before else last, last)

    def _ahead(self) -> Mapping:
        """Returns the mapping for times after the latest measurement: with the drift since the first, if it
        is known well enough."""
        long = Mapping(self._offsets[0], self._offsets[-1])
        passed = long.last.at_ns - long.first.at_ns
        error = long.first.bound_ns + long.last.bound_ns
        is_precise = error <= _MOST_DRIFT_ERROR * passed
        return Mapping(long.first, long.last) if is_precise else Mapping(long.last, long.last)

    def to_theirs(self, ours_ns: int) -> int:
        """Converts a future instant."""
        return self._ahead().to_theirs(ours_ns)

    def to_ours(self, theirs_ns: int) -> int:
        """Converts an instant between the two latest measurements."""
        return self.mapping().to_ours(theirs_ns)
