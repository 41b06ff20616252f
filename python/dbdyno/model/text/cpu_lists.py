"""Lists of CPUs and NUMA nodes in the kernel's notation: ``0-5,8``, or with a step ``0-30:2``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dbdyno.model.errors import UsageError

_PART = re.compile(r"(\d{1,6})(?:-(\d{1,6})(?::(\d{1,6}))?)?")
_MOST = 8192  # CPUs of the largest kernels (NR_CPUS, arch/x86/Kconfig)
_CURE = "write numbers and ranges, parted by commas: 0-5,8 or 0-30:2 (every second)"


def parse(listed: str, what: str) -> tuple[int, ...]:
    """Returns sorted distinct numbers: ``'0-2,5'`` -> (0, 1, 2, 5), with the grammar of taskset(1). ``what``
    names the option in errors.

    Raises :class:`UsageError`.
    """
    numbers: set[int] = set()
    parts = listed.split(",")
    if len(parts) > _MOST:
        raise UsageError(f"{what}: a list of {len(parts):,} entries is too long", f"at most {_MOST:,}")
    # dict.fromkeys: a long list of the same range would otherwise be expanded again and again
    for part in dict.fromkeys(parts):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise UsageError(
                f"{what} = {listed!r}: "
                + ("it is empty" if not listed.strip() else f"{part!r} is no number"),
                _CURE,
            )
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step == 0:
            raise UsageError(f"{what} = {listed!r}: {part.strip()!r} is not a range", _CURE)
        if last >= _MOST:
            raise UsageError(f"{what}: {part.strip()!r} is beyond CPU {_MOST - 1}", _CURE)
        numbers.update(range(first, last + 1, step))
    return tuple(sorted(numbers))


def of_kernel(listed: str) -> frozenset[int]:
    """Returns the numbers of a list in /sys or /proc such as ``'0-2,5'``, which may be empty (cpuset(7),
    "List format")."""
    return frozenset(parse(listed, "list") if listed.strip() else ())


def text(numbers: Iterable[int]) -> str:
    """Returns the list of these numbers, without duplicates: (0, 1, 2, 5) -> ``'0-2,5'``."""
    runs: list[list[int]] = []
    for n in sorted(set(numbers)):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
