"""Keeps records of measured noise beside the runs, and reads them for later comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from dbdyno.conclude.noise_records import NoiseRecord, could_see, records_of, sees
from dbdyno.model.engine.environment import Environment
from dbdyno.model.errors import StoreError
from dbdyno.model.plan.plan import Plan
from dbdyno.model.results.comparison import Comparison
from dbdyno.model.results.results import Results
from dbdyno.store import Run, RunStore


def remember(store: RunStore, results: Results) -> str:
    """Keeps the records of a noise measurement; of the same load on the same machine and server only the
    newest, and all of another version. Returns what the user should know; empty if all is well."""
    new = list(records_of(results))
    if not new:
        return ""
    keys = {r.key for r in new}
    kept = [stored for stored, record in _stored(store) if record is None or record.key not in keys]
    try:
        aside = store.remember_noise([*kept, *(r.model_dump(mode="json") for r in new)])
    except StoreError as error:
        return f"Later comparisons cannot use this measurement: {error.message}. To do: {error.cure}."
    return "" if aside is None else f"The earlier records of noise are damaged and were set aside: {aside}."


def known(store: RunStore) -> list[NoiseRecord]:
    """Returns all records of this version."""
    return [record for _, record in _stored(store) if record is not None]


def _stored(store: RunStore) -> Iterator[tuple[Any, NoiseRecord | None]]:
    """Yields each record as it is stored, and as it is understood; None if it is of another version."""
    for stored in store.noise() or ():
        try:
            yield stored, NoiseRecord.model_validate(stored)
        except ValidationError:
            yield stored, None


def known_beside(record: Run) -> list[NoiseRecord]:
    """Returns all readable records of the store that a run is in."""
    return known(RunStore(record.path.parent))


def outlook(
    store: RunStore,
    plan: Plan,
    environment: Environment | None = None,
    *,
    restarts: bool = False,
    elsewhere: bool = False,
) -> str | None:
    """Returns in words what a comparison of the plan's variants can see; None if it compares none.
    ``elsewhere``: the user named the server; without an environment nothing else says so."""
    claim = sees(plan, environment, known(store), datetime.now(UTC), restarts=restarts, elsewhere=elsewhere)
    return None if claim is None else claim.text


def with_outlook(store: RunStore, comparison: Comparison, results: Results) -> Comparison:
    """Returns the comparison of a run's variants with what it could see, where it did not see a
    difference."""
    return could_see(comparison, results, known(store))
