"""Lists of CPUs as recipes write them: ``0-5,8`` as the kernel does, or ``first:2`` of those there are."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dbdyno.model.errors import UsageError

_PART = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?\Z")
_FIRST = re.compile(r"first:(\d+)\Z")
_MOST = 8192  # CPUs a kernel may be built for (CONFIG_NR_CPUS)
_FORMS = "write 0-5,8 (cpuset(7), list format), 0-14:2 (every second), or first:2"


def cpus_of(text: str) -> tuple[int, ...]:
    """``'0-2,5'`` -> (0, 1, 2, 5). Raises :class:`UsageError`."""
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.match(part.strip())
        if match is None:
            raise UsageError(f"not a list of CPUs: {text!r}", _FORMS)
        low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if low > high or high >= _MOST or step == 0:
            raise UsageError(f"not a list of CPUs: {text!r} ({part.strip()})", _FORMS)
        found.update(range(low, high + 1, step))
    return tuple(sorted(found))


def first_of(text: str, allowed: Sequence[int], who: str) -> str:
    """``first:2`` as the list it comes to; any other list as it is. Raises :class:`UsageError`."""
    match = _FIRST.match(text.strip())
    if match is None:
        cpus_of(text)
        return text
    count = int(match[1])
    if not 1 <= count <= len(allowed):
        raise UsageError(
            f"{who}: cpus = {text!r}, and {len(allowed)} CPU(s) may be used here",
            "`dbdyno topology` shows which, and why",
        )
    return ",".join(map(str, sorted(allowed)[:count]))
