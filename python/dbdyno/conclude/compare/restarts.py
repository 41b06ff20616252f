"""Says how far two runs may differ because each had a start of the server of its own, by measured noise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.compare.effects import RANKING
from dbdyno.conclude.noise_records import OLD_DAYS, NoiseRecord, fits, machine_of, scripts_of
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.comparison import Comparison, Contrast
from dbdyno.model.results.results import Results
from dbdyno.model.text.nouns import noun
from dbdyno.model.units import fine_percent


def restart_differences(
    comparison: Comparison, runs: Sequence[Results], records: Iterable[NoiseRecord]
) -> Iterator[Claim]:
    """Yields the largest difference that starts alone explain at the compared loads, and the loads that
    differ by no more. ``records``: of all noise measurements. Nothing if throughput is not compared, both
    runs had the same start, or no record applies."""
    pids = {r.environment.server.main_pid for r in runs}
    table = comparison.metrics[0]
    if table.metric not in RANKING or (len(pids) == 1 and None not in pids):
        return
    newest = {
        (r.workload, r.sessions): r
        for r in sorted(records, key=lambda r: r.measured)
        if _floor(r) and _applies(r, runs)
    }
    compared = [(c, newest[key]) for c in table.claims if (key := (c.workload, c.sessions)) in newest]
    if not compared:
        return
    most = max((r for _, r in compared), key=_floor)
    smaller = [_where(c) for c, r in compared if _within(c, _floor(r))]
    values = {
        "floor": fine_percent(_floor(most)),
        "where": f" {fmt.at_load(most.sessions)}" if len({c.sessions for c in table.claims}) > 1 else "",
        "date": f"{most.measured.astimezone():%-d %b}",
        "loads": " and ".join(smaller),
    }
    yield claim("restart-differences", values, _floor(most), parts=["smaller"] if smaller else [])


def _floor(record: NoiseRecord) -> float:
    """Returns the difference of two runs that starts alone exceed in 5 % of cases; 0 if it is unknown."""
    return record.budget.get("floor") or 0.0


def _applies(record: NoiseRecord, runs: Sequence[Results]) -> bool:
    """Returns whether the record is of the machine of both runs, of the servers of one, and of their work."""
    return (
        all(record.machine == machine_of(r.environment) for r in runs)
        and all(abs(r.info.started - record.measured) <= timedelta(days=OLD_DAYS) for r in runs)
        and all(record.params in [v.params for v in r.plan.variants] for r in runs)
        and all(record.scripts == scripts_of(r.plan) for r in runs)
        and any(fits(record, r.environment) for r in runs)
    )


def _within(c: Contrast, floor: float) -> bool:
    """Returns whether a difference that the repeats decide is no larger than starts make it."""
    ratio = c.effect.ratio
    return c.verdict in ("better", "worse") and ratio is not None and max(ratio, 1 / ratio) - 1 <= floor


def _where(c: Contrast) -> str:
    return f"{noun('at')} {', '.join(filter(None, (c.series, fmt.load(c.sessions))))}"
