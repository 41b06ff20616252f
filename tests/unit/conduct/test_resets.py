"""When data are reset, the expected time of a reset, and the claims about data that grew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.fakery import climb
from tests.in_process import dbdyno

from dbdyno.conclude.run import growth
from dbdyno.conclude.run.case import Case
from dbdyno.conduct import workloads
from dbdyno.conduct.derive.derive import derive
from dbdyno.conduct.measure.resets import changed
from dbdyno.engines.postgres import cache_drop
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.phases import PhaseSpec
from dbdyno.model.plan.plan import Experiment, Plan, PlannedScript, VariantSpec
from dbdyno.model.plan.resetting import DataSet, changes_rows
from dbdyno.model.plan.script_workload import workload_of
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.tables import raw, rows
from dbdyno.plan import begins, resolve, with_resets

MIB = 2**20
WRITING = PlannedScript(name="tpcb-like", text="UPDATE t SET n = 1;", builtin=True)
READING = PlannedScript(name="select-only", text="SELECT 1;", builtin=True)
OWN = PlannedScript(name="own.sql", text="insert into t values (1);")
PGBENCH = DataSet("pgbench", ("public.pgbench_accounts",), 1_000_000, written=True)


def plan_of(script: PlannedScript, **options: Any) -> Plan:
    spec = {"builtin": script.name} if script.builtin else {"file": script.name}
    asked = Experiment(scripts=[spec], sessions="1,2", measure="1s", settle="0s", **options)
    scripts = dict.fromkeys(asked.scripts, script)
    return resolve(asked, workload_of([script]), 2.0, "test", scripts)


def reset_choices(plan: Plan) -> list[tuple[str, str]]:
    return [(c.value, c.reason) for c in plan.choices if c.name == "reset"]


def test_data_are_reset_before_each_measurement_if_own_calls_change_prepared_tables() -> None:
    plain = plan_of(WRITING)
    plan = with_resets(plain, [PGBENCH])
    assert plan.reset.when == "each" and reset_choices(plan)[0][0] == "each"
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
def test_data_that_dbdyno_did_not_prepare_are_never_reset_with_a_reason(
    script: PlannedScript, sets: list[DataSet], says: str | None
) -> None:
    plan = with_resets(plan_of(script), sets)
    assert plan.reset.when == "never"
    assert [v for v, _ in reset_choices(plan)] == ([] if says is None else ["never"])
    assert says is None or says in reset_choices(plan)[0][1]


def test_a_reset_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="no tables that dbdyno workload prepare made"):
        with_resets(plan_of(OWN, reset="each"), [])
    with pytest.raises(UsageError, match="belong to bob"):
        with_resets(plan_of(WRITING, reset="block"), [PGBENCH._replace(refused="they belong to bob")])
    assert with_resets(plan_of(OWN, reset="each"), [PGBENCH]).reset.when == "each"
    assert with_resets(plan_of(WRITING, reset="never"), [PGBENCH]).reset.when == "never"
    assert with_resets(plan_of(WRITING, budget="60s"), [PGBENCH]).reset.when == "each"
    with pytest.raises(UsageError, match="--budget"):
        with_resets(plan_of(WRITING, budget="12s"), [PGBENCH])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tpcb-like"], "each"),
        (["tpcb-like", "--reset", "never"], None),
        (["select-only"], None),
        (["select-only", "--reset", "block"], "block"),
        (["order-entry"], "each"),
        (["order-entry", "mode=read-only"], None),
        (["random-read", "update=20"], None),
    ],
)
def test_a_dry_run_shows_the_probable_reset(words: list[str], expected: str | None) -> None:
    done = dbdyno(("run", *words, "--sessions", "1", "--dry-run", "--json"), {}, Path("/"))
    chosen = [c["value"] for c in json.loads(done.stdout)["choices"] if c["name"] == "reset"]
    assert chosen == ([] if expected is None else [expected])


def test_caches_are_dropped_before_each_measurement_or_not_at_all() -> None:
    cold = plan_of(READING, reset_cache="dropped")
    assert with_resets(cold, [PGBENCH._replace(written=False)]).reset.when == "each"
    blocks = plan_of(READING, reset_cache="dropped", reset="block")
    assert with_resets(blocks, [PGBENCH._replace(written=False)]).reset.when == "block"
    with pytest.raises(UsageError, match="no tables that dbdyno workload prepare made"):
        with_resets(cold, [])
    with pytest.raises(UsageError, match=r"dropped.*never"):
        with_resets(plan_of(READING, reset_cache="dropped", reset="never"), [PGBENCH])


def test_pages_of_a_file_in_the_page_cache_are_counted(disk_path: Path) -> None:
    file = disk_path / "16384"
    file.write_bytes(b"x" * 100_000)
    for name in ("16384_vm", "16384.1", "163841", "16384_fsm.1"):
        (disk_path / name).touch()
    files = sorted(f.name for f in cache_drop._files(disk_path, "16384"))
    assert files == ["16384", "16384.1", "16384_fsm.1", "16384_vm"]
    # a file system in memory keeps all pages
    assert cache_drop._drop_file(file) in ((100_000, 0), (100_000, 25 * 4096))


@pytest.mark.parametrize(
    ("when", "options", "expected"),
    [
        ("each", {"repeats": 2}, [True] * 4),
        ("block", {"repeats": 2}, [True, False, True, False]),
        ("block", {"variants": {"a": VariantSpec(), "b": VariantSpec()}}, [True, False, True, False]),
        ("never", {"repeats": 2}, [False] * 4),
    ],
)
def test_data_are_reset_before_each_measurement_each_block_or_never(
    when: str, options: dict[str, Any], expected: list[bool]
) -> None:
    plan = with_resets(plan_of(WRITING, reset=when, **options), [PGBENCH])
    cells = plan.cells
    assert [begins(plan, b, c) for b, c in zip((None, *cells), cells, strict=False)] == expected


def test_data_are_not_reset_between_phases() -> None:
    plan = with_resets(plan_of(WRITING, repeats=2), [PGBENCH])
    cells = [c.model_copy(update={"phase": True}) for c in plan.cells]
    reset_before = [begins(plan, b, c) for b, c in zip((None, *cells), cells, strict=False)]
    assert reset_before == [True, False, True, False]


def test_scripts_that_may_change_rows_are_recognized() -> None:
    assert changes_rows("with a as (DELETE from t returning 1) select 1")
    assert not changes_rows("SELECT abalance, updated FROM pgbench_accounts WHERE aid = :aid;")


def row(relation: str, size_mb: tuple[int, int], **figures: Any) -> dict[str, Any]:
    known = dict.fromkeys(("rows_inserted", "rows_updated", "rows_deleted"), 0)
    ends = {f"{n}_{e}": 0 for n in ("live_rows", "dead_rows", "index_bytes") for e in ("start", "end")}
    start, end = size_mb
    sizes = {"table_bytes_start": start * MIB, "table_bytes_end": end * MIB}
    return {"relation": relation, **known, **ends, **sizes, **figures}


def test_tables_are_unchanged_only_if_every_count_and_size_is() -> None:
    table = "public.t"
    assert not changed(rows(raw("growth"), [row(table, (1, 1))]), [table])
    assert changed(rows(raw("growth"), [row(table, (1, 1), rows_updated=1)]), [table])
    assert changed(rows(raw("growth"), [row(table, (2, 1))]), [table])  # truncated
    assert changed(rows(raw("growth"), [row(table, (1, 1), rows_deleted=None)]), [table])  # not known
    assert changed(rows(raw("growth"), []), [table])  # nothing was counted


def claims_of_growth(*of_cells: list[dict[str, Any]]) -> dict[str, Any]:
    climbed = climb("fake:cpu=50ms", [1, 2])
    cells = [
        RawCell(c.meta, {**c.tables, "growth": rows(raw("growth"), g)})
        for c, g in zip(climbed.cells, of_cells, strict=True)
    ]
    claims = derive(climbed.info, climbed.plan, climbed.environment, cells).findings
    return {f.id: f for f in claims if f.id in ("data-grew", "data-not-reset")}


def test_growth_that_matters_is_a_claim() -> None:
    history = row("public.history", (0, 30), rows_inserted=9)
    quiet = [row("public.accounts", (100, 101)), row("public.history", (0, 1))]
    assert claims_of_growth(quiet, quiet) == {}
    claims = claims_of_growth(quiet, [row("public.accounts", (100, 110)), history])
    assert claims["data-grew"].value.value == pytest.approx(0.4)
    said = claims["data-grew"].slots
    assert (said["share"], said["relation"], said["part"]) == (pytest.approx(0.4), "public.history", 30 * MIB)
    assert claims["data-grew"].cells == (claims["data-grew"].cells[0],)
    dead = row("public.tellers", (100, 101), live_rows_end=3_000, dead_rows_end=2_000)
    claims = claims_of_growth(
        [dead], [row("public.tellers", (101, 101), live_rows_end=3_000, dead_rows_end=900)]
    )
    dead_rows = claims["data-grew"]
    assert (dead_rows.case, dead_rows.slots["dead_relation"]) == ("dead", "public.tellers")
    assert (dead_rows.slots["dead"], dead_rows.slots["dead_share"]) == (2_000, pytest.approx(0.4))


def test_later_measurements_with_more_data_are_a_warning() -> None:
    claims = claims_of_growth(
        [row("public.history", (100, 130))], [row("public.history", (130, 131)), row("b", (500, 500))]
    )
    later = claims["data-not-reset"]
    assert (later.severity, later.value.value, later.value.unit) == ("warning", 30 * MIB, "bytes")
    assert (later.slots["place"], later.slots["now"]) == ("at 2 sessions", 130 * MIB)
    assert (later.slots["first"], later.slots["was"]) == ("at 1 session", 100 * MIB)
    emptied = claims_of_growth([row("public.history", (0, 130))], [row("public.history", (130, 131))])
    assert emptied["data-not-reset"].slots["was"] == 0
    assert (emptied["data-grew"].case, emptied["data-grew"].slots["bytes"]) == ("empty", 130 * MIB)
    same = [row("public.history", (100, 105))]
    assert "data-not-reset" not in claims_of_growth(same, same)


def test_growth_of_phases_is_that_of_all_of_them() -> None:
    climbed = climb("fake:cpu=50ms", [2, 2], repeats=2)
    phases = tuple(PhaseSpec(name=n, duration="9s", rate=5) for n in ("hold", "spike"))
    phased = climbed.plan.experiment.model_copy(update={"phases": phases})
    plan = climbed.plan.model_copy(update={"experiment": phased})
    last = [c.id for c in plan.cells][1::2]
    sizes = ((100, 105), (100, 130))
    grown = [row("public.t", s) | {"cell": c} for s, c in zip(sizes, last, strict=True)]
    windows = [{"cell": c.id, "status": "ok", "repeat": c.repeat, "variant": "base"} for c in plan.cells]
    tables = {"windows": pl.DataFrame(windows), "growth": pl.DataFrame(grown)}
    case = Case(plan, climbed.environment, tables, {})
    (claim,) = growth.grew(case)
    assert (claim.slots["share"], claim.slots["bytes"]) == (pytest.approx(0.3), 30 * MIB)
    assert (claim.slots["place"], claim.slots["relation"]) == ("of all phases, repeat 2", "public.t")
    assert claim.cells == (last[1],) and list(growth.not_reset(case)) == []


def test_the_advice_for_grown_data_depends_on_what_can_be_reset() -> None:
    climbed = climb("fake:cpu=50ms", [1, 2])
    grown = [
        row("t", s) | {"cell": c.id} for s, c in zip(((10, 20), (20, 20)), climbed.plan.cells, strict=True)
    ]
    windows = [{"cell": c.id, "status": "ok", "sessions": 1, "variant": "base"} for c in climbed.plan.cells]
    tables = {"windows": pl.DataFrame(windows).with_columns(rate_per_s=None), "growth": pl.DataFrame(grown)}
    advice = [
        next(growth.not_reset(Case(climbed.plan, climbed.environment, tables, known))).advice
        for known in ({}, {"random-read": workloads()["random-read"]})
    ]
    assert "--reset each" in advice[0] and "dbdyno clean" in advice[1] and "--reset" not in advice[1]
