"""Wait events of engines and their neutral families."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
import tests.second_engine
from polars.testing import assert_frame_equal
from tests.fakery import climb

from dbdyno import conduct
from dbdyno.conduct.derive.derive import derive
from dbdyno.engines import COMMAND, DEFAULT, _installed, helpers, names, product, register, wait_families
from dbdyno.engines.postgres import versions
from dbdyno.engines.postgres.wait_events import words
from dbdyno.model.errors import UsageError
from dbdyno.model.results.raw import RawCell
from dbdyno.model.sources.wait_families import (
    AT_CLIENT,
    LOCKS,
    STORAGE,
    Family,
    Helper,
    WaitFamilies,
    families_of,
    merged,
)
from dbdyno.store import RunStore


def test_an_event_may_be_of_another_family_than_its_class() -> None:
    families = WaitFamilies({"Disk": Family.IO, "Disk/Flush": Family.COMMIT, "Peer": Family.CLIENT})
    assert [families.of(label) for label in ("Disk", "Disk/Read", "Disk/Flush", "Else/X", None)] == [
        Family.IO,
        Family.IO,
        Family.COMMIT,
        Family.OTHER,
        Family.OTHER,
    ]
    rows = pl.DataFrame(
        {
            "wait_class": ["Disk", "Disk", "Disk", "Peer", None],
            "wait_event": ["Read", "Flush", None, "a", None],
        }
    )
    for among, expected in (
        ((Family.IO,), [True, False, True, False, False]),
        ((Family.COMMIT,), [False, True, False, False, False]),
        (STORAGE, [True, True, True, False, False]),
        ((Family.OTHER,), [False] * 5),
    ):
        assert rows.select(found=families.among(*among))["found"].to_list() == expected


def test_the_table_of_families_reads_back_as_the_families() -> None:
    for engine in names():
        families = wait_families(engine)
        assert families_of({"wait_families": families.table()}) == families
    assert merged([]) == WaitFamilies()
    with pytest.raises(KeyError):
        families_of({})


@pytest.mark.parametrize("major", [14, 15, 16, 17, 18])
def test_every_wait_event_type_has_a_family_and_every_mapped_event_exists(major: int) -> None:
    families, known = wait_families("postgres"), words(major)
    assert known is not None
    assert set(known.classes.values()) <= {name for name in families.root if "/" not in name}
    events = {f"{name}/{event}" for w in range(14, 19) for name, event in _events(w)}
    coming = {*versions.RENAMED_EVENTS, "Timeout/CommitDelay"}  # of 19, by its published sources
    assert {name for name in families.root if "/" in name} <= events | coming


def _events(major: int) -> list[tuple[str, str]]:
    known = words(major)
    return [] if known is None else list(known.events.values())


def test_a_run_stored_without_families_gets_those_of_its_engine(tmp_path: Path) -> None:
    climbed = climb("fake:cpus=2,cpu=4ms,wait=IO/DataFileRead:2ms+LWLock/ProcArray:2ms,think=3ms", [4])
    now = derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)
    record = RunStore(tmp_path).create(climbed.plan, workloads=climbed.info.workloads)
    server = climbed.environment.server.model_copy(update={"product": "", "helpers": {}})
    record.write_environment(climbed.environment.model_copy(update={"server": server}))
    for cell in climbed.cells:
        record.write_cell(
            RawCell(cell.meta.model_copy(update={"wait_families": WaitFamilies()}), cell.tables)
        )
    record.write_derived({n: t for n, t in now.tables.items() if n != "wait_families"}, now.findings)
    record.finish("complete")
    for results in (conduct.results_of(record), conduct.rebuild(record)[0]):
        assert results.environment == climbed.environment
        assert families_of(results.tables) == wait_families("fake")
        for name in ("ledger", "microstates", "top_events"):
            assert_frame_equal(results.whole(name), now.whole(name), check_row_order=False)


def test_a_wait_is_counted_by_its_family() -> None:
    """Under another engine's families the same samples count as client time in place of a lock."""
    climbed = climb("fake:cpus=2,cpu=4ms,wait=LWLock/ProcArray:2ms,think=3ms", [4])
    turned = WaitFamilies({"LWLock": Family.CLIENT, "Client": Family.LATCH})
    (cell,) = climbed.cells
    other = RawCell(cell.meta.model_copy(update={"wait_families": turned}), cell.tables)
    ones, others = (
        derive(climbed.info, climbed.plan, climbed.environment, [c]).tables for c in (cell, other)
    )
    turned_aas = {
        (row["account"], row["detail"]): row["aas"]
        for row in others["ledger"].filter(pl.col("scope") == "rung").to_dicts()
    }
    asleep = {
        (row["account"], row["detail"]): row["aas"]
        for row in ones["ledger"].filter(pl.col("scope") == "rung").to_dicts()
    }
    assert turned_aas["client", None] == pytest.approx(asleep["sleep", "LWLock/ProcArray"])
    assert turned_aas["sleep", "Client/ClientRead"] == pytest.approx(asleep["client", None])
    assert {Family.LATCH, Family.LOCK} == set(LOCKS) and Family.CLIENT in AT_CLIENT


def test_an_unknown_engine_is_refused() -> None:
    assert conduct.experiment_of(conduct.Request(workload="lio")).engine == DEFAULT
    with pytest.raises(UsageError, match="oracle"):
        conduct.experiment_of(conduct.Request(workload="lio", patch=conduct.Patch({"engine": "oracle"})))


def test_every_engine_names_its_product_and_its_processes() -> None:
    for engine in ("postgres", "fake"):
        assert product(engine) and set(helpers(engine).values()) == set(Helper)


def test_engines_come_by_entry_points_and_by_registering(monkeypatch: pytest.MonkeyPatch) -> None:
    assert names()[:4] == [DEFAULT, COMMAND, "fake", "second"]  # the last two of tests/entry_points
    monkeypatch.setattr("dbdyno.engines._registered", {})
    register("third", tests.second_engine)
    assert "third" in names() and product("third") == "Second"


def test_an_installed_engine_that_cannot_be_imported_names_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "broken-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[dbdyno.engines]\nthird = no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    _installed.cache_clear()
    try:
        with pytest.raises(UsageError, match="'third' of package broken"):
            product("third")
    finally:
        _installed.cache_clear()
