"""Checks measurements on data of different size: they are compared only if a call is the same work on
each."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.compare.table import Match
from dbdyno.conclude.run.equal_load import Growth, growths, work_of
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.data_size import size_of, size_words
from dbdyno.model.results.results import Results

CURE = "measure both at one size, or insist: --across-sizes"


def check_sizes(matches: Iterable[Match], runs: Mapping[str, Results], *, insisted: bool) -> str:
    """Returns the difference in sizes that matters, as text, if the user ``insisted`` on comparing; "" if
    there is none. ``runs`` holds the run by label; the key "" stands for all labels. Raises
    :class:`UsageError` if there is such a difference otherwise."""
    difference = next(filter(None, (_size_difference(m, runs) for m in matches)), "")
    if difference and not insisted:
        raise UsageError(f"{difference}: throughput and response times do not compare", CURE)
    return difference


def _size_difference(match: Match, runs: Mapping[str, Results]) -> str:
    by_size: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    names: dict[str, str] = {}
    for label, cells in match.groups.items():
        results = runs.get(label) or runs[""]
        workload = results.info.workloads.get(match.workload)
        ids = [c.cell for c in cells.values()]
        params = next((c.params for c in results.plan.cells if c.id in ids), {})
        size = None if workload is None else size_of(workload, params)
        if workload is None or size is None:
            return ""
        names[label] = f"{label} has {size_words(workload, size)}"
        work_lists = by_size[size]
        for name, values in work_of(results.tables, ids).items():
            work_lists[name] += values
    if len(by_size) < 2:
        return ""
    why = _reason_unequal(growths(by_size))
    return f"{', '.join(names.values())}; {why}" if why else ""


def _reason_unequal(growths: Sequence[Growth]) -> str:
    """Returns why calls at these sizes may not be the same work; "" if they are."""
    if not growths:
        return "whether a call does more work with more data is not known"
    unequal = [g for g in growths if g.verdict != "constant"]
    if not unequal:
        return ""
    worst = max(unequal, key=lambda g: abs(math.log(g.ratio)))
    call = f"a call of {worst.name}" if worst.name else "a call"
    if worst.verdict == "unclear":
        return f"whether {call} does more work with more data is not clear ({fmt.plain(worst.ratio)}-fold)"
    work, data = fmt.plain(worst.ratio), fmt.plain(worst.last / worst.first)
    return f"{call} does {work} times the work with {data} times the data"
