"""Keeps records of measured noise beside the runs, and reads them for later comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from pydantic import ValidationError

from dbdyno.conclude.noise_records import NoiseRecord, Reading, could_see, read, records_of, sees
from dbdyno.model.engine.environment import Environment
from dbdyno.model.plan.plan import Plan
from dbdyno.model.results.comparison import Comparison
from dbdyno.model.results.results import Results
from dbdyno.store import Run, RunStore


def remember(store: RunStore, results: Results) -> Sequence[NoiseRecord]:
    """Keeps the records of a noise measurement; of the same load on the same machine only the newest."""
    new = list(records_of(results))
    if new:
        keys = {r.key for r in new}
        kept = [r for r in known(store) if r.key not in keys]
        store.remember_noise([r.model_dump(mode="json") for r in (*kept, *new)])
    return new


def known(store: RunStore) -> list[NoiseRecord]:
    """Returns all readable records."""
    records = []
    for stored in store.noise():
        try:
            records.append(NoiseRecord.model_validate(stored))
        except ValidationError:  # of another version
            continue
    return records


def known_beside(record: Run) -> list[NoiseRecord]:
    """Returns all readable records of the store that a run is in."""
    return known(RunStore(record.path.parent))


def outlook(
    store: RunStore, plan: Plan, environment: Environment | None = None, *, restarts: bool = False
) -> str | None:
    """Returns in words what a comparison of the plan's variants can see; None if it compares none."""
    claim = sees(plan, environment, known(store), datetime.now(UTC), restarts=restarts)
    return None if claim is None else claim.text


def applying(store: RunStore, results: Results) -> Reading:
    """Returns the records that apply to a finished run; if there are none, why."""
    return read(known(store), results.plan, results.environment, results.info.started)


def with_outlook(store: RunStore, comparison: Comparison, results: Results) -> Comparison:
    """Returns the comparison of a run's variants with what it could see, where it did not see a
    difference."""
    return could_see(comparison, results, known(store))
