"""The end of a test run lists tests that were skipped, with a line for each cure, not one for each test."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import pytest


def summary(reports: Iterable[pytest.TestReport]) -> list[str]:
    """Returns ``N tests: what is missing: the cure``, most tests first; reasons with one cure share a
    line."""
    tests: Counter[str] = Counter()
    missing: defaultdict[str, set[str]] = defaultdict(set)
    for report in reports:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        what, _, cure = reason.removeprefix("Skipped: ").partition(": ")
        tests[cure or what] += 1
        missing[cure or what].add(what if cure else "")
    return [
        f"{count} test{'s' if count > 1 else ''}: {'; '.join(sorted(missing[cure] - {''}))}"
        f"{': ' if missing[cure] - {''} else ''}{cure}"
        for cure, count in tests.most_common()
    ]
