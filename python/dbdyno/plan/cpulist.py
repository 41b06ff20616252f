"""CPUs as recipes may also name them: ``first:2`` of those that may be used here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dbdyno.model import cpu_lists
from dbdyno.model.errors import UsageError

_FIRST = re.compile(r"first:(\d+)\Z")


def first_of(text: str, allowed: Sequence[int], who: str) -> str:
    """``first:2`` as the list it comes to; any other list as it is. Raises :class:`UsageError`."""
    match = _FIRST.match(text.strip())
    if match is None:
        cpu_lists.parse(text, f"{who}: cpus")
        return text
    count = int(match[1])
    if not 1 <= count <= len(allowed):
        raise UsageError(
            f"{who}: cpus = {text!r}, and {len(allowed)} CPU(s) may be used here",
            "`dbdyno topology` shows which, and why",
        )
    return cpu_lists.text(sorted(allowed)[:count])
