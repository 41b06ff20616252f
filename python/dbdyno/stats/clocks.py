"""How far another machine's clock is from ours, from two-way exchanges; its times on our clock.

An exchange asks the other machine for its time. Whatever the ways there and back took, its answer was
read between ``sent_ns`` and ``received_ns``: the offset is known to half the round trip (Cristian,
"Probabilistic clock synchronization", Distributed Computing 3, 1989, section 3). The exchange with the
least round trip bounds it best.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Exchange:
    """Nanoseconds; ``there_ns`` of their clock, the others of ours."""

    sent_ns: int
    there_ns: int
    received_ns: int

    @property
    def round_trip_ns(self) -> int:
        return self.received_ns - self.sent_ns


@dataclass(frozen=True)
class Offset:
    """``ns``: their clock less ours at ``at_ns`` of theirs; it is within ``bound_ns`` of that."""

    at_ns: int
    ns: int
    bound_ns: int

    @staticmethod
    def of(exchanges: Iterable[Exchange]) -> Offset:
        """Raises ValueError without an exchange."""
        best = min(exchanges, key=lambda e: e.round_trip_ns)
        half = -(-best.round_trip_ns // 2)
        return Offset(best.there_ns, best.there_ns - best.sent_ns - best.round_trip_ns // 2, half)


@dataclass(frozen=True)
class Mapping:
    """Their times on our clock, between and beyond two offsets; equal offsets: no drift is known."""

    first: Offset
    last: Offset

    @property
    def drift(self) -> float:
        """Seconds that their clock gains in one of its own."""
        passed = self.last.at_ns - self.first.at_ns
        return (self.last.ns - self.first.ns) / passed if passed > 0 else 0.0

    @property
    def bound_ns(self) -> int:
        """Error of a time between the two: a line between two values errs by no more than either does."""
        return max(self.first.bound_ns, self.last.bound_ns)

    def to_ours(self, there_ns: int) -> int:
        return there_ns - self.first.ns - round(self.drift * (there_ns - self.first.at_ns))

    def to_theirs(self, ours_ns: int) -> int:
        undrifted = ours_ns + self.first.ns
        return undrifted + round(self.drift * (undrifted - self.first.at_ns) / (1 - self.drift))
