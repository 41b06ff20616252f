"""Use of memory from made-up tables: parts that add up, sums, claims, screens."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion
from tests.unit import memory_tables, report_results
from tests.unit.memory_tables import GIB, MIB

from dbdyno import present
from dbdyno.account.memory import growth_between, on_demand, with_computed
from dbdyno.conclude.run import memory as claims
from dbdyno.conclude.run.case import Case
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.memory_now import MemoryNow
from dbdyno.model.results.results import Results
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.data_sources.memory import GROWTH, MEMORY_TABLES, RAW_MEMORY
from dbdyno.model.schema.tables import conform
from dbdyno.model.sources.source import Source
from dbdyno.present.memory import memory, memory_runs, memory_screen

Tables = dict[str, pl.DataFrame]

NAMES = [t.name for t in MEMORY_TABLES]


def tables_now(**options: Any) -> Tables:
    return on_demand(memory_tables.tables(**options), "now")


def figures(tables: Tables, phase: str = "now") -> dict[str, tuple[int | None, float | None, str]]:
    of_phase = tables["memory_figures"].filter(pl.col("phase") == phase)
    return {k: (v, s, w) for k, v, s, w in of_phase.select("key", "value", "share", "status").iter_rows()}


def parts(tables: Tables) -> dict[str, int | None]:
    return dict(tables["memory_parts"].select("part", "bytes").iter_rows())


def text(blocks: Any, width: int = 80) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(present.printed(blocks))
    return captured.get()


def screen_of(tables: Tables, sources: tuple[Source, ...] = (), width: int = 80) -> str:
    taken = datetime(2026, 11, 23, 10, 0, tzinfo=UTC)
    read = MemoryNow(taken, 0.4, "PostgreSQL 18.4 at /run", tables, claims.now(tables), sources)
    return text(memory_screen.now(read), width)


# -- figures ----------------------------------------------------------------------------------------


def test_parts_add_up_to_the_total_and_the_rest_has_a_line() -> None:
    sums = parts(tables_now())
    assert sums.pop("total") == 16 * GIB == sum(v or 0 for v in sums.values())
    assert sums["not assigned"] == 96 * MIB
    assert sums["executables"] == 64 * MIB and sums["page cache"] == 7 * GIB - 64 * MIB
    shares = tables_now()["memory_parts"].filter(pl.col("part") != "total")["share"]
    assert shares.sum() == pytest.approx(1.0)


def test_figures_that_exceed_the_total_are_not_clipped() -> None:
    sums = parts(tables_now(host={"free_bytes": 3 * GIB}))
    assert sums["not assigned"] == 96 * MIB - GIB
    assert sum(v or 0 for p, v in sums.items() if p != "total") == sums["total"]
    assert "-928 MiB" in screen_of(tables_now(host={"free_bytes": 3 * GIB}))


def test_a_pool_of_huge_pages_is_a_part() -> None:
    sums = parts(tables_now(host={"huge_pages_total": 32, "shared_bytes": 4 * GIB + 96 * MIB}))
    assert sums["huge pages"] == 64 * MIB and sums["not assigned"] == 96 * MIB


def test_unknown_parts_are_not_zero() -> None:
    unknown = tables_now(host={"anonymous_bytes": None})
    sums = parts(unknown)
    assert sums["anonymous"] is None and sums["not assigned"] is None and sums["total"] == 16 * GIB
    assert "not permitted" in screen_of(unknown)
    without = parts(tables_now(host={"executables_bytes": None}))
    assert without["page cache"] == 7 * GIB and without["not assigned"] == 96 * MIB
    assert "in page cache: not permitted" in screen_of(tables_now(host={"executables_bytes": None}))


def test_processes_without_figures_make_lower_bounds() -> None:
    tables = memory_tables.tables()
    half = pl.col("pid") % 2 == 0
    tables["memory_processes"] = tables["memory_processes"].with_columns(
        *(pl.when(half).then(c) for c in ("pss_bytes", "anonymous_bytes", "page_tables_bytes")),
        status=pl.when(half).then(pl.lit("ok")).otherwise(pl.lit("lost")),
    )
    figured = on_demand(tables, "now")
    assert figures(figured)["page_tables_bytes"][2] == figures(figured)["page_tables_huge_bytes"][2] == "lost"
    screen = screen_of(figured)
    assert ">= 2.34 GiB" in screen and "at least" in screen and "about" not in screen.split("Claims")[0]
    assert "PSS of 102 of 205 processes is unknown: there was no time for it" in screen


def test_pages_in_both_caches_are_counted_once() -> None:
    values = figures(tables_now())
    both = (1280 + 512 + 200 + 8) * MIB
    either = (1536 + 2560 + 512 + 512 + 768 + 256 + 128 + 32 + 16) * MIB - both
    assert values["data_both_bytes"][0] == both and values["data_either_bytes"][0] == either
    assert values["data_both_bytes"][1] == pytest.approx(both / either)
    assert values["cache_used_bytes"][1] == 0.75


def test_sums_leave_out_unknown_relations_with_a_reason() -> None:
    some = (*memory_tables.RELATIONS[:2], ("public.hidden", "table", GIB, 512 * MIB, None, None))
    both, _, status = figures(tables_now(relations=some))["data_both_bytes"]
    assert both == (1280 + 512) * MIB and status == "not permitted"
    assert "Some figures of 1 relation are unknown: run dbdyno as root" in screen_of(
        tables_now(relations=some)
    )


def test_page_tables_with_huge_pages_are_estimated() -> None:
    """A session has 6 to 6.8 MiB of page tables, of which 8.25 MiB could map shared memory: what remains of
    each is as much as the smallest process has."""
    values = figures(tables_now())
    sessions = sum(6 * MIB + n * 4096 for n in range(memory_tables.SESSIONS))
    assert values["page_tables_bytes"][0] == sessions + 4 * 256 * 1024
    assert values["page_tables_huge_bytes"][0] == (memory_tables.SESSIONS + 4) * 256 * 1024
    assert figures(tables_now(server={"huge_pages_used": 1}))["page_tables_huge_bytes"][::2] == (None, "off")


def test_the_limit_of_the_group_is_the_memory_where_it_is_less() -> None:
    assert figures(tables_now())["memory_bytes"][0] == 14 * GIB
    assert figures(tables_now(group={"limit_bytes": None}))["memory_bytes"][0] == 16 * GIB


def test_without_a_servers_process_its_figures_are_unknown() -> None:
    tables = memory_tables.tables()
    tables["memory_processes"] = tables["memory_processes"].clear()
    tables["memory_relations"] = tables["memory_relations"].clear()
    values = figures(on_demand(tables, "now"))
    assert values["page_tables_bytes"][0] is None and values["data_both_bytes"][0] is None
    assert "How much data is in memory is unknown." in screen_of(on_demand(tables, "now"))


# -- a run ------------------------------------------------------------------------------------------

LATER = {"host": {"swapped_in_total": 130 * MIB, "swapped_out_total": 200 * MIB}}


def run_with_memory(
    end: dict[str, Any] | None = None, world: report_results.World = report_results.SMALL
) -> Results:
    """A run each of whose measurements was read at its start and end, 10 s apart."""
    results = report_results.results(world)
    reads = [memory_tables.tables("start"), memory_tables.tables("end", **(end or {}), at_ns=10_050_000_000)]
    raw = {n: pl.concat([r[n] for r in reads]) for n in RAW_MEMORY}
    held: Tables = {}
    for name, source in zip(NAMES, RAW_MEMORY, strict=False):
        keys = results.tables["windows"].select(c.name for c in CELL)
        held[name] = conform(name, keys.join(raw[source], how="cross"))
    return replace(results, tables={**results.tables, **with_computed(held)})


def claims_of(results: Results) -> dict[str, Claim]:
    case = Case(results.plan, results.environment, results.tables, results.workloads)
    return {c.id: c for c in claims.memory(case)}


def test_growth_is_from_start_to_end() -> None:
    growth = figures(
        figures_of_run(run_with_memory({**LATER, "group": {"pressure_some_ns": 3_000_000_000}})), GROWTH
    )
    assert growth["swapped_in_bytes"][0] == 30 * MIB and growth["swapped_out_bytes"][0] == 0
    assert growth["pressure_some_ns"][:2] == (1_000_000_000, pytest.approx(0.1))


def test_growth_is_from_window_to_window() -> None:
    later = {"host": {"swapped_in_total": 130 * MIB}, "group": {"pressure_some_ns": 3_000_000_000}}
    reads = [
        on_demand(memory_tables.tables("end"), "w1"),
        on_demand(memory_tables.tables("end", **later, at_ns=10_050_000_000), "w2"),
    ]
    both = {n: pl.concat([r[n] for r in reads]) for n in NAMES}
    growth = growth_between(both)
    assert growth["cell"].unique().to_list() == ["w2"]
    rows = figures({"memory_figures": growth}, GROWTH)
    assert rows["swapped_in_bytes"][0] == 30 * MIB and rows["pressure_some_ns"][1] == pytest.approx(0.1)


def figures_of_run(results: Results) -> Tables:
    cell = results.tables["windows"]["cell"][0]
    return {n: results.tables[n].filter(pl.col("cell") == cell) for n in NAMES}


def test_a_runs_claims_come_with_the_severest_first() -> None:
    by_id = claims_of(run_with_memory({**LATER, "group": {"pressure_some_ns": 3_000_000_000}}))
    assert list(by_id) == [
        "swapping", "memory-pressure", "page-tables-large", "huge-pages-not-used", "pages-held-twice"
    ]  # fmt: skip
    assert by_id["swapping"].severity == "warning" and by_id["memory-pressure"].severity == "warning"
    assert by_id["page-tables-large"].severity == "warning"
    assert {by_id[i].severity for i in ("huge-pages-not-used", "pages-held-twice")} == {"note"}
    assert "public.orders (1.25 GiB)" in by_id["pages-held-twice"].slots["relations"]
    assert by_id["swapping"].cells and by_id["swapping"].slots["at"] == " at 1 session"


HEALTHY: dict[str, Any] = {
    "server": {
        "cache_bytes": 128 * MIB,
        "used_bytes": 40 * MIB,
        "dirty_bytes": 2 * MIB,
        "shared_memory_bytes": 160 * MIB,
    },
    "relations": (("public.t", "table", 30 * MIB, 30 * MIB, 30 * MIB, 30 * MIB),),
    "sessions": 8,
}


def test_a_small_server_with_few_sessions_has_no_claims() -> None:
    assert not claims_of(run_with_memory(HEALTHY))


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ({"server": {"used_bytes": GIB}}, "cache-mostly-unused"),
        ({"server": {"dirty_bytes": 3 * GIB}}, "cache-dirty"),
        ({"relations": (("public.t", "table", 20 * GIB, GIB, GIB, 0),)}, "data-exceed-memory"),
        ({"group": {"reclaimed_total": GIB}}, "memory-pressure"),
    ],
)
def test_each_claim_has_its_condition(end: dict[str, Any], expected: str) -> None:
    by_id = claims_of(run_with_memory(end))
    assert expected in by_id and by_id[expected].severity == "note"
    assert expected not in claims_of(run_with_memory())


# -- screens ----------------------------------------------------------------------------------------


def test_screen_at_80_columns(snapshot: SnapshotAssertion) -> None:
    printed = screen_of(tables_now())
    assert max(map(len, printed.splitlines())) <= 80
    assert printed == snapshot


def test_the_answer_comes_first_in_each_case() -> None:
    gone = (("public.t", "table", GIB, GIB, None, None),)
    cases: list[tuple[Tables, str, dict[str, float]]] = [
        (tables_now(), "twice", {"both": 2000 * MIB, "either": 4320 * MIB}),
        (tables_now(relations=(("public.t", "table", GIB, GIB, 0, 0),)), "once", {"either": GIB}),
        (tables_now(relations=gone), "cache", {"cached": GIB}),
        (tables_now(relations=(*memory_tables.RELATIONS[:1], *gone)), "some", {"both": 1280 * MIB}),
    ]
    for tables, case, values in cases:
        answer, *_ = claims.now(tables)
        assert (answer.id, answer.case) == ("memory-now", case)
        assert {n: answer.slots[n] for n in values} == values
        assert screen_of(tables).startswith(answer.text[:40])


def test_sources_that_were_not_read_are_listed_with_the_cure() -> None:
    source = Source(name="page cache", provenance="mincore", status="not permitted", detail="run as root")
    assert "run as root" in screen_of(tables_now(), (source,))


def test_relations_are_the_first_ten_or_all() -> None:
    many = tuple((f"public.t{n:02}", "table", MIB, n * 4096, MIB, n * 4096) for n in range(25))
    tables = tables_now(relations=many)
    assert "15 relations more" in screen_of(tables) and "public.t24" in screen_of(tables)
    read = MemoryNow(datetime.now(UTC), 0.1, "", tables, claims.now(tables))
    assert "public.t00" in text(memory_screen.now(read, None))


def test_the_largest_comes_first_though_none_of_it_is_held_twice() -> None:
    """With direct I/O only catalogs are in the page cache as well."""
    catalogs = tuple((f"pg_catalog.c{n:02}", "table", MIB, MIB, MIB, MIB) for n in range(25))
    screen = screen_of(tables_now(relations=(*catalogs, ("public.large", "table", GIB, GIB, 0, 0))))
    assert screen.index("public.large") < screen.index("pg_catalog.c00")


def test_several_nodes_have_a_table() -> None:
    tables = memory_tables.tables()
    total = tables["memory"].filter(pl.col("key").is_in(["total_bytes", "free_bytes"]))
    nodes = [total.with_columns(node=pl.lit(n, pl.Int64), value=pl.col("value") // 2) for n in (0, 1)]
    tables["memory"] = pl.concat([tables["memory"], *nodes])
    figured = on_demand(tables, "now")
    assert parts(figured)["total"] == 16 * GIB
    assert "NUMA nodes" in screen_of(figured) and "NUMA nodes" not in screen_of(tables_now())


def test_the_page_has_the_section_and_a_chart() -> None:
    results = run_with_memory(world=report_results.REPEATED)
    document = present.run_document(results)
    section = next(s for s in document.blocks if getattr(s, "id", "") == "memory")
    assert section.title == memory.TITLE
    (chart,) = memory_runs.charts(results)
    assert len(chart.legend) == 7  # without huge pages, of which there are none
    assert "at the end of each measurement" in text(memory_runs.blocks(results), 120)
    assert "public.orders" in text(present.details(results, "memory").shown)


def test_a_run_without_memory_has_no_section() -> None:
    document = present.run_document(report_results.results())
    assert not [s for s in document.blocks if getattr(s, "id", "") == "memory"]


def test_the_document_has_all_tables() -> None:
    tables = tables_now()
    read = MemoryNow(datetime.now(UTC), 0.1, "server", tables, claims.now(tables))
    record = present.memory_record(read)
    former = [older for table in MEMORY_TABLES for older in table.older]
    assert list(record) == ["format", "server", "taken", "took_s", *NAMES, *former, "findings", "sources"]
    assert record["findings"][0]["id"] == "memory-now"
