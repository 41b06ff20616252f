"""Sleep by code and wait event: scaled to the exact sleep of each wait event, shown and exported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from tests.fakery import climb
from tests.unit.profiles import with_tables

from dbdyno import present
from dbdyno.cli.app import app
from dbdyno.conduct.derive.derive import derive
from dbdyno.model.errors import UsageError
from dbdyno.model.results.raw import RawCell
from dbdyno.model.results.results import Results
from dbdyno.model.results.session_time import wait_label
from dbdyno.model.schema.tables import conform
from dbdyno.present.charts import flame
from dbdyno.present.run import cpu_profile

SLEPT = ("postgres`main", "postgres`WaitLong", "kernel`__schedule")
BRIEFLY = ("postgres`main", "postgres`WaitBriefly", "kernel`__schedule")
MS = 1_000_000


def exact_sleep(events: pl.DataFrame) -> pl.DataFrame:
    """Returns the sessions' sleep by wait event from the ledger."""
    rows = events.filter((pl.col("scope") == "rung") & (pl.col("sleep") > 0))
    return rows.group_by(wait=wait_label(), maintain_order=True).agg(pl.col("sleep").sum())


def with_sleeps(cell: RawCell, events: pl.DataFrame, seed: int = 1, **fixed: Any) -> RawCell:
    """Adds equally many sleeps of 7 and 3 ms to each wait event, sampled with different chances."""
    rng = np.random.default_rng(seed)
    asleep = events.filter((pl.col("scope") == "rung") & (pl.col("sleep") > 0))
    labels = asleep.select("wait_class", "wait_event").unique(maintain_order=True).to_dicts()
    task = cell.tables["tasks"].filter(pl.col("role") == "session").row(0, named=True)
    rows = []
    for label in labels:
        for n in range(4_000):
            long = n % 2 == 0
            chance = 0.5 if long else 0.25
            if rng.random() < chance:
                rows.append(
                    {
                        "t_ns": cell.meta.t0_ns + n,
                        "slept_ns": (7 if long else 3) * MS,
                        "chance": chance,
                        "stack": 0 if long else 1,
                        **label,
                    }
                )
    fixed = {
        "session": task["session"],
        "pid": task["pid"],
        "tid": task["tid"],
        "role": "session",
        "label_status": "ok",
        "query_id": 7,
        "query_status": "ok",
        "cut": False,
        **fixed,
    }
    samples = pl.DataFrame(rows).with_columns(**{k: pl.lit(v) for k, v in fixed.items()})
    profile_tables = with_tables(cell, cell.tables["profile_samples"], [SLEPT, BRIEFLY]).tables
    tables = {
        "sleep_samples": conform("sleep_samples", samples),
        "sleep_stacks": profile_tables["profile_stacks"],
        "sleep_frames": profile_tables["profile_frames"],
    }
    return replace(cell, tables={**cell.tables, **tables})


def made(**fixed: Any) -> Results:
    climbed = climb("fake:cpus=8,cpu=10ms,wait=IO/DataFileRead:4ms", [4])
    plain = derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)
    cells = [with_sleeps(c, plain.tables["events"], **fixed) for c in climbed.cells]
    return derive(climbed.info, climbed.plan, climbed.environment, cells)


@pytest.fixture(scope="module")
def results() -> Results:
    return made()


def test_time_in_a_wait_event_without_a_stack_is_not_sampled() -> None:
    elsewhere = made(wait_event="WALWrite")
    truth = exact_sleep(elsewhere.tables["events"])
    waits = elsewhere.tables["sleep_profile"].filter((pl.col("by") == "wait") & (pl.col("cell") == "all"))
    assert waits.select("name", "aas", "status").rows() == [
        (wait, pytest.approx(sleep), "not sampled") for wait, sleep in truth.rows()
    ]


def rows(results: Results, by: str) -> pl.DataFrame:
    pick = cpu_profile.pick_of(results, sampled=cpu_profile.SLEEP)
    return pl.DataFrame(cpu_profile.hot_rows(results, pick, by, cpu_profile.SLEEP), infer_schema_length=None)


def test_each_wait_event_has_exactly_the_sleep_of_the_ledger(results: Results) -> None:
    truth = exact_sleep(results.tables["events"])
    profiled = rows(results, "wait").select(wait="name", aas="aas", status="status")
    both = truth.join(profiled, on="wait", how="full", coalesce=True)
    assert both["aas"].to_list() == pytest.approx(both["sleep"].to_list())
    assert set(profiled["status"]) >= {"ok"}


@pytest.mark.parametrize("by", ["function", "module", "session", "statement", "wait", "stack"])
def test_rows_of_each_kind_add_up_to_the_sleep(results: Results, by: str) -> None:
    asleep = exact_sleep(results.tables["events"])["sleep"].sum()
    assert rows(results, by)["aas"].sum() == pytest.approx(asleep)


def test_time_goes_by_length_over_chance_and_not_by_number(results: Results) -> None:
    pick = cpu_profile.pick_of(results, sampled=cpu_profile.SLEEP)
    tree = flame.tree(flame.stacks(results, pick, tables=("sleep_profile", "sleep_code")))
    [event] = [c for t, c in tree.children.items() if "postgres`main" in c.children][:1]
    under = {t.partition("`")[2]: c.value for t, c in event.children["postgres`main"].children.items()}
    share = under["WaitLong"] / sum(under.values())
    assert share == pytest.approx(0.7, abs=0.03)
    assert event.text.startswith("wait`")


def test_intervals_hold_the_sleep_of_missing_stacks() -> None:
    """Stacks of half of the longer sleeps are missing; the interval holds their true time."""
    climbed = climb("fake:cpus=8,cpu=10ms,wait=IO/DataFileRead:4ms", [4])
    plain = derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)
    [cell] = [with_sleeps(c, plain.tables["events"]) for c in climbed.cells]
    samples, t0, t1 = cell.tables["sleep_samples"], cell.meta.t0_ns, cell.meta.t1_ns
    missing = (pl.col("stack") == 0) & (pl.int_range(pl.len()) % 2 == 0)
    gone, remaining = samples.filter(missing), samples.filter(~missing)
    asleep_ns = int((gone["slept_ns"] / gone["chance"]).sum())
    loss = {"start_ns": t0, "end_ns": t1, "reason": "lost", "lost": gone.height, "asleep_ns": asleep_ns}

    def long(tables: dict[str, pl.DataFrame]) -> dict[str, Any]:
        raw = [replace(cell, tables={**cell.tables, **tables})]
        functions = derive(climbed.info, climbed.plan, climbed.environment, raw).tables["sleep_profile"]
        return functions.filter((pl.col("name") == "WaitLong") & (pl.col("cell") != "all")).row(0, named=True)

    truth = long({})
    unknown = long({"sleep_samples": remaining})
    known = long({"sleep_samples": remaining, "sleep_losses": conform("sleep_losses", pl.DataFrame([loss]))})
    assert unknown["total_high"] < truth["total"]
    assert known["total_low"] < truth["total"] < known["total_high"]
    share = asleep_ns / (samples["slept_ns"] / samples["chance"]).sum()
    assert known["lost"] == pytest.approx(share, rel=0.01)
    assert (truth["lost"], unknown["lost"]) == (0.0, 0.0)


def test_exports_hold_the_sleep_under_its_wait_event(results: Results, tmp_path: Path) -> None:
    [path] = present.export(results, None, "folded", tmp_path / "x", off_cpu=True)
    lines = path.read_text().splitlines()
    waits = results.tables["sleep_profile"].filter((pl.col("by") == "wait") & (pl.col("cell") != "all"))
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == pytest.approx(
        1e6 * waits["aas"].sum(), rel=1e-3
    )
    assert any(";main;WaitLong;__schedule_[k] " in line for line in lines)
    drawn = present.write_flame(results, tmp_path / "f.svg", off_cpu=True).read_text()
    assert "WaitLong" in drawn


def test_a_run_without_sleep_samples_is_refused_with_the_option() -> None:
    climbed = climb("fake:cpus=2,cpu=10ms", [1])
    plain = derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)
    with pytest.raises(UsageError) as caught:
        present.hot(plain, "wait", 5, off_cpu=True)
    assert "--off-cpu" in str(caught.value.cure)


def test_a_difference_of_sleep_is_refused() -> None:
    done = CliRunner().invoke(app, ["hot", "last", "--off-cpu", "--against", "1"], standalone_mode=False)
    assert isinstance(done.exception, UsageError)
