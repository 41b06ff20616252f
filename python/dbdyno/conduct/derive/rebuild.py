"""Everything that is shown of a stored run: as it was derived at the run's end, or again from its raw data.

Modules that derive are imported when something is derived, since usually results are only read.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from dbdyno import present
from dbdyno.conduct.derive.polars_thread import on_polars_thread
from dbdyno.conduct.derive.stored_environment import environment_of
from dbdyno.conduct.history.labels import labels_of
from dbdyno.conduct.noise import known_beside
from dbdyno.engines import wait_families
from dbdyno.model.errors import StoreError, UsageError, did_you_mean
from dbdyno.model.results.ledger_rows import of_older
from dbdyno.model.results.results import Results, RunInfo
from dbdyno.model.schema.tables import DERIVED, RAW
from dbdyno.model.sources.wait_families import TABLE as FAMILIES
from dbdyno.store import DamagedCell, Parts, Run, keep_shown

if TYPE_CHECKING:
    from dbdyno.conduct.derive.derive import Making
    from dbdyno.present.document.document import Document

Say = Callable[[str], None]
_REPORT_S = 2.0  # interval of reports


def to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def rebuild(record: Run, say: Say = to_stderr) -> tuple[Results, Path]:
    """Derives windows, ledger, findings and the report again from raw data, and returns the report's path."""
    results = _anew(record, say)
    return results, reported(record, results)


def relabelled(record: Run, given: Mapping[str, Any], untags: Sequence[str] = ()) -> RunInfo:
    """Changes ``name`` and ``note`` of a run, adds ``tags`` and removes ``untags``, in its report, too.

    What is None in ``given`` stays; an empty text removes the name or the note. Raises :class:`UsageError` if
    a label cannot be used, a tag to remove is not there, or the run is still running.
    """
    info, new = record.info, labels_of(given)
    if unknown := [t for t in untags if t not in info.tags]:
        raise UsageError(f"run {record.id} has no tag {unknown[0]!r}", did_you_mean(unknown[0], info.tags))
    if not untags and all(value in (None, ()) for value in given.values()):
        return info
    if info.status == "running":
        raise UsageError(f"run {record.id} is still running", "label it when it has ended")
    tags = [t for t in dict.fromkeys([*info.tags, *new.get("tags", ())]) if t not in untags]
    info = record.update_info(**{**new, "tags": tuple(tags)})
    with contextlib.suppress(StoreError):  # damaged raw data, or a read-only store
        reported(record, results_of(record))
    return info


@on_polars_thread
def reported(record: Run, results: Results) -> Path:
    """Writes the screen of ``show`` and the report; returns the report's path."""
    keep_screen(record.path, results)
    return present.write_report(results, record.path / "report.html")


def conclude(record: Run, say: Say = to_stderr) -> Results:
    """Concludes from the parts that were derived during the run, and derives missing ones."""
    from dbdyno.conduct.derive.derive import Making  # here, since usually results are only read

    with record.in_use():
        return conclude_made(Making(record, say=_now_and_then(record, say)).resume())


def conclude_made(making: Making) -> Results:
    """Concludes from the derived parts and stores the results. Raises :class:`StoreError`."""
    from dbdyno.conduct.derive.derive import keep  # here, since usually results are only read

    results = making.conclude(_fired(making.record))
    keep(making.record, results)
    return results


def _fired(record: Run) -> dict[str, pl.DataFrame]:
    from dbdyno.conduct.captures.captures import fired_tables  # here, since it imports triggers' actions

    return fired_tables(record, results_of)


def keep_screen(path: Path, results: Results) -> Document:
    """Returns the first view of the run at ``path``; keeps it if the run has ended and the store is
    writable."""
    screen = present.brief(results)
    if results.info.status != "running":
        with contextlib.suppress(StoreError):
            keep_shown(path, present.dumped(screen))
    return screen


def results_of(record: Run, say: Say = to_stderr) -> Results:
    """Returns everything that is shown of a stored run, as it was derived at its end.

    Tables that an older run lacks are derived now, reported to ``say`` (default: standard error), and kept
    if the store is writable.
    """
    results = _read_derived(record)
    if results is None:
        return _derived_now(record, say)
    with contextlib.suppress(StoreError):
        if (drawn := record.read_conclusions()) is not None:
            fields = {name: getattr(drawn, name) for name in ("scaling", "answers", "reply", "comparison")}
            return replace(results, **fields)
    from dbdyno.conduct.derive.derive import concluded, keep  # here, since usually results are only read

    results = concluded(results, partial(known_beside, record))
    with contextlib.suppress(StoreError):
        keep(record, results)
    return results


def derived_of(record: Run, say: Say = to_stderr) -> Results:
    """Returns what was derived at the end of the run; if that is missing, derives it from the raw data."""
    return _read_derived(record) or _derived_now(record, say)


def _read_derived(record: Run) -> Results | None:
    from dbdyno.conclude.catalogue import described, worded  # here, too

    with contextlib.suppress(StoreError):
        stored = None if record.info.status == "running" else record.read_derived()
        if stored is None:
            return None
        tables, findings = stored
        if FAMILIES not in tables:
            tables = {**tables, FAMILIES: wait_families(record.environment.server.engine).table()}
        if isinstance(tables, dict) and "ledger" in tables:  # older versions stored whole tables
            tables["ledger"] = of_older(tables["ledger"])
        if tables.keys() >= {*DERIVED, "sources", "histogram"}:
            plan, claims = worded(record.plan), described(findings)
            return Results(record.info, plan, environment_of(record), tables, claims)
    return None


def _derived_now(record: Run, say: Say) -> Results:
    say(f"Deriving run {record.id} (format {record.info.schema_version}) ...")
    if record.info.status == "running":
        return derived_anew(record)
    try:
        return conclude(record, say)
    except StoreError:  # a read-only store
        return derived_anew(record)


def derived_anew(record: Run) -> Results:
    """Derives everything from the raw data of a stored run, in memory."""
    # here, since usually results are only read
    from dbdyno.conduct.derive.derive import cells_of, concluded, derive, with_claims

    damaged: list[DamagedCell] = []
    cells = cells_of(record, damaged)
    results = derive(record.info, record.plan, environment_of(record), cells, _fired(record))
    return concluded(with_claims(results, damaged), partial(known_beside, record))


def raw_tables(record: Run) -> dict[str, pl.DataFrame]:
    """Returns the raw tables of all readable cells of a run, each row with its cell's id."""
    cells, _ = record.read_cells()
    return {
        name: pl.concat([c.tables[name].select(pl.lit(c.id).alias("cell"), pl.all()) for c in cells])
        for name in (RAW if cells else ())
    }


def _anew(record: Run, say: Say) -> Results:
    """Derives all parts again; the present ones are kept until that is complete."""
    from dbdyno.conduct.derive.derive import Making, keep  # here, since usually results are only read

    beside = Parts(record.path, ".parts-anew")
    beside.clear()
    try:
        results = Making(record, beside, _now_and_then(record, say)).conclude(_fired(record))
        record.take_parts(beside)
        keep(record, results)
    finally:
        with contextlib.suppress(StoreError):
            beside.clear()
    return results


def _now_and_then(record: Run, say: Say) -> Say:
    """Returns a function that passes on progress, from time to time only."""
    reported_s = time.monotonic()

    def far(words: str) -> None:
        nonlocal reported_s
        if time.monotonic() - reported_s > _REPORT_S:
            reported_s = time.monotonic()
            say(f"Deriving run {record.id}: {words}")

    return far
