"""A data source is one registration: its counters become rates, and it has a row in the list of sources."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from tests.fakery import S, made_cell, session_row
from tests.unit.observe.test_observe_sources import Engine

from dbdyno.account import window
from dbdyno.model.plan.plan import Experiment
from dbdyno.model.schema.column import column
from dbdyno.model.schema.data_source import CounterFile, DataSource
from dbdyno.model.schema.data_sources import SOURCES, options, process_rates
from dbdyno.model.schema.tables import DERIVED, RAW, TABLES, empty
from dbdyno.observe import How, counter_files
from dbdyno.observe.sources import sources
from dbdyno.observe.watch import TABLES as WATCHED

FIRST, LAST = "pgfault 100\npgmajfault 7\n", "pgfault 600\npgmajfault 7\n"


def counters(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in text.splitlines())}


PAGING = DataSource(
    name="paging",
    provenance="/proc/vmstat",
    cures={"not supported": "needs a kernel with CONFIG_VM_EVENT_COUNTERS"},
    file=CounterFile(
        "/proc/vmstat",
        "vmstat",
        (column("pgfault", "i64", "page faults"), column("zswpin", "i64", "pages read from zswap")),
        counters,
    ),
)


@pytest.fixture
def registration() -> Iterator[None]:
    SOURCES.append(PAGING)
    yield
    SOURCES.remove(PAGING)


def read(root: Path, at_ns: int, text: str | None) -> list[dict[str, object]]:
    """Rows of the table host as of an instant."""
    path = root / "proc/vmstat"
    path.parent.mkdir(exist_ok=True)
    if text is not None:
        path.write_text(text)
    return [r | {"before_ns": at_ns, "after_ns": at_ns} for r in counter_files(root).to_dicts()]


@pytest.mark.usefixtures("registration")
def test_a_file_read_at_both_ends_of_a_window_becomes_rates(tmp_path: Path) -> None:
    host = [*read(tmp_path, 10 * S, FIRST), *read(tmp_path, 20 * S, LAST)]
    cell = made_cell({"host": host, "sessions": [session_row()]})
    result = window.cut([cell])["rates"].filter(source="paging")
    assert {r["name"]: (r["value"], r["status"]) for r in result.to_dicts()} == {
        "vmstat.pgfault_per_s": (50.0, "ok"),
        "vmstat.zswpin_per_s": (None, "not supported"),
    }
    reported = sources(Engine(), cell.tables).filter(name="paging").row(0, named=True)  # type: ignore[arg-type]
    assert (reported["provenance"], reported["status"]) == ("/proc/vmstat", "ok")


@pytest.mark.usefixtures("registration")
def test_a_file_that_is_not_there_is_unknown_with_the_cure(tmp_path: Path) -> None:
    host = [*read(tmp_path, 10 * S, None), *read(tmp_path, 20 * S, None)]
    cell = made_cell({"host": host, "sessions": [session_row()]})
    result = window.cut([cell])["rates"].filter(source="paging")
    assert result["value"].null_count() == result.height == 2
    reported = sources(Engine(), cell.tables).filter(name="paging").row(0, named=True)  # type: ignore[arg-type]
    assert (reported["status"], reported["detail"]) == ("not supported", PAGING.cures["not supported"])


def test_without_a_registration_nothing_is_read() -> None:
    assert counter_files().equals(empty("host"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.name)
def test_a_registration_is_whole(source: DataSource) -> None:
    """Tables and columns are in the schema, and a request for the source goes from plan to watch."""
    kinds = (source.counts, source.file, source.keyed, source.stacks, source.asked, source.reads)
    assert source.name and source.provenance and any((*kinds, source.tables))
    for read in source.reads or ():
        assert read in WATCHED and {"before_ns", "after_ns", "status"} <= {c.name for c in RAW[read]}
    for asked in (a for a in [source.asked] if a):
        assert RAW[asked.table] == asked.columns and asked.table in WATCHED
    for counted in source.counts:
        assert {*(c.name for c in counted.labels), *(f.name for f in counted.figures)} <= {
            c.name for c in RAW[counted.table]
        }
        assert f"cut_{counted.table}" in TABLES
    assert {r.column for r in process_rates()} <= set(DERIVED["microstates"])
    for option in (o for o in options() if o is source.option):
        asked, silent = Experiment.model_validate({option.key: True}), Experiment()
        assert source.cures["off"]
        if option.hz is not None:
            assert How.of(asked).spec()[option.key] == {"hz": option.hz, "until_ns": None}
            assert option.key not in How.of(silent).spec()
            continue
        assert (How.of(asked).spec()[option.key], How.of(silent).spec()[option.key]) == (True, False)
        assert not How(waits="sampled", asked=(option.key,)).spec()[option.key], "the trace would count it"


def test_a_counted_source_has_its_row_where_it_was_read() -> None:
    (counted,) = [s for s in SOURCES if s.counts]
    first = counted.counts[0]
    table = first.table
    row = {"before_ns": 1, "after_ns": 1, "pid": 1, "tid": 1, "role": "other", "status": "ok"}
    figures = {first.labels[0].name: "x", **{f.name: 1 for f in first.figures}}
    for rows, expected in (([], []), ([row | figures], ["ok"])):
        tables = made_cell({table: rows}).tables
        result = sources(Engine(), tables).filter(pl.col("name") == counted.name)  # type: ignore[arg-type]
        assert result["status"].to_list() == expected
