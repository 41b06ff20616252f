"""When data are brought back, how long that is expected to take, and what is said of data that grew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.fakery import climb

from dbdyno.conduct.derive import derive
from dbdyno.conduct.resets import changed
from dbdyno.engines.postgres import cache_drop
from dbdyno.model.errors import UsageError
from dbdyno.model.plan import Experiment, Plan, PlannedScript, VariantSpec
from dbdyno.model.raw import RawCell
from dbdyno.model.resetting import DataSet, changes_rows
from dbdyno.model.script_workload import workload_of
from dbdyno.model.tables import rows
from dbdyno.plan import begins, resolve, with_resets

WRITING = PlannedScript(name="tpcb-like", text="UPDATE t SET n = 1;", builtin=True)
READING = PlannedScript(name="select-only", text="SELECT 1;", builtin=True)
OWN = PlannedScript(name="own.sql", text="insert into t values (1);")
PGBENCH = DataSet("pgbench", ("public.pgbench_accounts",), 1_000_000, written=True)


def planned(script: PlannedScript, **options: Any) -> Plan:
    spec = {"builtin": script.name} if script.builtin else {"file": script.name}
    asked = Experiment(scripts=[spec], sessions="1,2", measure="1s", settle="0s", **options)
    scripts = dict.fromkeys(asked.scripts, script)
    return resolve(asked, workload_of([script]), 2.0, "test", scripts)


def reset(plan: Plan) -> list[tuple[str, str]]:
    return [(c.value, c.reason) for c in plan.choices if c.name == "reset"]


def test_each_where_our_own_calls_change_what_we_prepared() -> None:
    plain = planned(WRITING)
    plan = with_resets(plain, [PGBENCH])
    assert plan.reset.when == "each" and reset(plan)[0][0] == "each"
    assert plan.expected_ns - plain.expected_ns == 2 * plan.reset.each_ns > 2_000_000_000
    assert plan.digest != plain.digest


@pytest.mark.parametrize(
    ("script", "sets", "says"),
    [
        (READING, [PGBENCH._replace(written=False)], None),
        (OWN, [PGBENCH], "--reset each brings back the tables of pgbench"),
        (OWN, [], "dbdyno did not make"),
        (PlannedScript(name="own.sql", text="select now();"), [], None),
        (WRITING, [PGBENCH._replace(refused="the tables of pgbench belong to bob")], "belong to bob"),
    ],
    ids=["reads", "own script", "own tables", "own, reads", "of another role"],
)
def test_never_elsewhere_with_a_line_that_says_why(
    script: PlannedScript, sets: list[DataSet], says: str | None
) -> None:
    plan = with_resets(planned(script), sets)
    assert plan.reset.when == "never"
    assert [v for v, _ in reset(plan)] == ([] if says is None else ["never"])
    assert says is None or says in reset(plan)[0][1]


def test_what_is_asked_for_and_cannot_be_is_an_error() -> None:
    with pytest.raises(UsageError, match="no tables that dbdyno workload prepare made"):
        with_resets(planned(OWN, reset="each"), [])
    with pytest.raises(UsageError, match="belong to bob"):
        with_resets(planned(WRITING, reset="block"), [PGBENCH._replace(refused="they belong to bob")])
    assert with_resets(planned(OWN, reset="each"), [PGBENCH]).reset.when == "each"
    assert with_resets(planned(WRITING, reset="never"), [PGBENCH]).reset.when == "never"
    assert with_resets(planned(WRITING, budget="60s"), [PGBENCH]).reset.when == "each"
    with pytest.raises(UsageError, match="--budget"):
        with_resets(planned(WRITING, budget="12s"), [PGBENCH])


def test_caches_are_dropped_before_each_measurement_or_not_at_all() -> None:
    cold = planned(READING, reset_cache="dropped")
    assert with_resets(cold, [PGBENCH._replace(written=False)]).reset.when == "each"
    blocks = planned(READING, reset_cache="dropped", reset="block")
    assert with_resets(blocks, [PGBENCH._replace(written=False)]).reset.when == "block"
    with pytest.raises(UsageError, match="no tables that dbdyno workload prepare made"):
        with_resets(cold, [])
    with pytest.raises(UsageError, match=r"dropped.*never"):
        with_resets(planned(READING, reset_cache="dropped", reset="never"), [PGBENCH])


def test_pages_of_a_file_in_the_page_cache_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "16384"
    file.write_bytes(b"x" * 100_000)
    for name in ("16384_vm", "16384.1", "163841", "16384_fsm.1"):
        (tmp_path / name).touch()
    found = sorted(f.name for f in cache_drop._files(tmp_path, "16384"))
    assert found == ["16384", "16384.1", "16384_fsm.1", "16384_vm"]
    with file.open("rb") as read:
        assert cache_drop._resident(read.fileno(), 100_000) == 25 * 4096
    assert cache_drop._dropped(file) in ((100_000, 0), (100_000, 25 * 4096))  # in memory alone: all stays


@pytest.mark.parametrize(
    ("when", "options", "expected"),
    [
        ("each", {"repeats": 2}, [True] * 4),
        ("block", {"repeats": 2}, [True, False, True, False]),
        ("block", {"variants": {"a": VariantSpec(), "b": VariantSpec()}}, [True, False, True, False]),
        ("never", {"repeats": 2}, [False] * 4),
    ],
)
def test_before_which_measurements(when: str, options: dict[str, Any], expected: list[bool]) -> None:
    plan = with_resets(planned(WRITING, reset=when, **options), [PGBENCH])
    cells = plan.cells
    assert [begins(plan, b, c) for b, c in zip((None, *cells), cells, strict=False)] == expected


def test_phases_are_one_measurement() -> None:
    plan = with_resets(planned(WRITING, repeats=2), [PGBENCH])
    cells = [c.model_copy(update={"phase": True}) for c in plan.cells]
    found = [begins(plan, b, c) for b, c in zip((None, *cells), cells, strict=False)]
    assert found == [True, False, True, False]


def test_scripts_that_may_change_rows() -> None:
    assert changes_rows("with a as (DELETE from t returning 1) select 1")
    assert not changes_rows("SELECT abalance, updated FROM pgbench_accounts WHERE aid = :aid;")


def row(relation: str, size_mb: tuple[int, int], **figures: Any) -> dict[str, Any]:
    known = dict.fromkeys(("rows_inserted", "rows_updated", "rows_deleted"), 0)
    ends = {f"{n}_{e}": 0 for n in ("live_rows", "dead_rows", "index_bytes") for e in ("start", "end")}
    start, end = size_mb
    sizes = {"table_bytes_start": start * 2**20, "table_bytes_end": end * 2**20}
    return {"relation": relation, **known, **ends, **sizes, **figures}


def test_what_no_measurement_changed_is_known_to_be_whole() -> None:
    table = "public.t"
    assert not changed(rows("growth", [row(table, (1, 1))]), [table])
    assert changed(rows("growth", [row(table, (1, 1), rows_updated=1)]), [table])
    assert changed(rows("growth", [row(table, (2, 1))]), [table])  # truncated
    assert changed(rows("growth", [row(table, (1, 1), rows_deleted=None)]), [table])  # not known
    assert changed(rows("growth", []), [table])  # nothing was counted


def said(*of_cells: list[dict[str, Any]]) -> dict[str, Any]:
    made = climb("fake:cpu=50ms", [1, 2])
    cells = [
        RawCell(c.meta, {**c.tables, "growth": rows("growth", g)})
        for c, g in zip(made.cells, of_cells, strict=True)
    ]
    found = derive(made.info, made.plan, made.environment, cells).findings
    return {f.id: f for f in found if f.id in ("data-grew", "data-not-reset")}


def test_growth_that_matters_is_a_claim() -> None:
    history = row("public.history", (0, 30), rows_inserted=9)
    quiet = [row("public.accounts", (100, 101)), row("public.history", (0, 1))]
    assert said(quiet, quiet) == {}
    found = said(quiet, [row("public.accounts", (100, 110)), history])
    assert found["data-grew"].value.value == pytest.approx(0.4)
    assert "40 %" in found["data-grew"].text and "public.history by 30.0 MiB" in found["data-grew"].text
    assert found["data-grew"].cells == (found["data-grew"].cells[0],)
    dead = row("public.tellers", (100, 101), live_rows_end=3_000, dead_rows_end=2_000)
    found = said([dead], [row("public.tellers", (101, 101), live_rows_end=3_000, dead_rows_end=900)])
    assert "40 % of the rows of public.tellers were dead" in found["data-grew"].text


def test_later_measurements_with_more_data_are_a_warning() -> None:
    found = said(
        [row("public.history", (100, 130))], [row("public.history", (130, 131)), row("b", (500, 500))]
    )
    assert found["data-not-reset"].severity == "warning"
    assert found["data-not-reset"].value.value == 30 * 2**20
    assert (
        "at 2 sessions began with 130 MiB of data, the first one (at 1 session) with 100 MiB"
        in found["data-not-reset"].text
    )
    emptied = said([row("public.history", (0, 130))], [row("public.history", (130, 131))])
    assert "with 0 B" in emptied["data-not-reset"].text
    same = [row("public.history", (100, 105))]
    assert "data-not-reset" not in said(same, same)
