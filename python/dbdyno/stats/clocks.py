"""The offset of a remote clock from the local one, by two-way exchanges; converts times between them.

An exchange asks the remote host for its time. Whatever the delays in each direction, the answer was read
between ``sent_ns`` and ``received_ns``: the offset is known to half the round trip (Cristian,
"Probabilistic clock synchronization", Distributed Computing 3, 1989, section 3). The exchange with the
least round trip bounds it best.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Exchange:
    """Times of an exchange in ns: ``there_ns`` of the remote clock, the others of the local clock."""

    sent_ns: int
    there_ns: int
    received_ns: int

    @property
    def round_trip_ns(self) -> int:
        return self.received_ns - self.sent_ns


@dataclass(frozen=True)
class Offset:
    """Offset of the remote clock: ``ns`` is remote less local time at remote time ``at_ns``, with an error
    of at most ``bound_ns``."""

    at_ns: int
    ns: int
    bound_ns: int

    @staticmethod
    def of(exchanges: Iterable[Exchange]) -> Offset:
        """Returns the offset by the exchange with the least round trip. Raises ValueError without an
        exchange."""
        best = min(exchanges, key=lambda e: e.round_trip_ns)
        half = -(-best.round_trip_ns // 2)
        return Offset(best.there_ns, best.there_ns - best.sent_ns - best.round_trip_ns // 2, half)


@dataclass(frozen=True)
class Mapping:
    """Converts times between the clocks by two offsets, and beyond them. Equal offsets: the drift is
    unknown, and 0."""

    first: Offset
    last: Offset

    @property
    def drift(self) -> float:
        """Seconds that the remote clock gains in one of its own."""
        passed = self.last.at_ns - self.first.at_ns
        return (self.last.ns - self.first.ns) / passed if passed > 0 else 0.0

    @property
    def bound_ns(self) -> int:
        """Error of a time between the two offsets: a line between two values errs by no more than the
        larger error."""
        return max(self.first.bound_ns, self.last.bound_ns)

    def to_ours(self, there_ns: int) -> int:
        """Returns the local time of a remote time."""
        return there_ns - self.first.ns - round(self.drift * (there_ns - self.first.at_ns))

    def to_theirs(self, ours_ns: int) -> int:
        """Returns the remote time of a local time."""
        undrifted = ours_ns + self.first.ns
        return undrifted + round(self.drift * (undrifted - self.first.at_ns) / (1 - self.drift))
