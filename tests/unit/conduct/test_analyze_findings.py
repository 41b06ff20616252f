"""Every finding on a run that deserves it, and none on one that does not."""

import polars as pl
import pytest
from tests.fakery import LIO, Climb, S, climb

from dbdyno.account.ladder import rungs
from dbdyno.account.ledger import accounts, cross_check, ledger
from dbdyno.account.load_profile import event_seconds, profile, top_events, top_events_total
from dbdyno.account.window import cut
from dbdyno.conclude.catalogue.criteria import writes_as_planned
from dbdyno.conclude.findings import findings
from dbdyno.conduct.derive.derive import derive
from dbdyno.model.plan.plan import Observation
from dbdyno.model.results.claim import Claim
from dbdyno.model.schema.tables import rows

pytestmark = [pytest.mark.whole, pytest.mark.queries]

CLEAN = "fake:cpus=8,cpu=10ms,wait=IO/DataFileRead:5ms"
FACTS = {"peak", "session-time", "one-repeat", "data-sources-used", "ledger-closes", "few-samples"}
"""Said of every run, or of every short one: no complaint."""


def _found(made: Climb) -> dict[str, Claim]:
    return {f.id: f for f in derive(made.info, made.plan, made.environment, made.cells).findings}


def _law(dsn: str, ladder: tuple[int, ...] = (2,), **options) -> dict[str, Claim]:
    return _found(climb(dsn, list(ladder), **options))


@pytest.fixture(scope="module")
def clean() -> Climb:
    return climb(CLEAN, [1, 2, 4])


_DERIVED: dict[int, tuple[Climb, dict[str, pl.DataFrame]]] = {}


def _tables(made: Climb) -> dict[str, pl.DataFrame]:
    """Derived once a climb."""
    if id(made) not in _DERIVED:
        tables = cut(made.cells)
        tables["ledger"] = ledger(tables)
        tables["data_sources"] = cross_check(tables, tables["ledger"])
        tables["rungs"] = rungs(tables)
        tables["profile"] = profile(tables)
        _DERIVED[id(made)] = made, tables
    return _DERIVED[id(made)][1]


class Made:
    """All tables of a run, to which a test adds rows before findings are looked for."""

    def __init__(self, made: Climb) -> None:
        self.made, self.workloads = made, dict(made.info.workloads)
        self.plan = made.plan
        self.tables = dict(_tables(made))
        self.cell = made.cells[-1].id

    def ledger(self, *records: dict) -> None:
        head = self.tables["windows"].filter(pl.col("cell") == self.cell)
        head = head.select("cell", "workload", "variant", "sessions", "repeat").row(0, named=True)
        told = {"status": "ok", "source": "activity samples", "who": "rung"}
        more = rows("ledger", [head | told | r for r in records])
        same = ["cell", "scope", "who", "account", "detail"]
        kept = self.tables["ledger"].join(more, on=same, how="anti", nulls_equal=True)
        self.tables["ledger"] = pl.concat([kept, more])

    def memo(self, account: str, detail: str | None, aas: float, width: float = 0.1, **changes) -> None:
        low, high = aas * (1 - width), aas * (1 + width)
        record = {"scope": "memo", "account": account, "detail": detail, "aas": aas, "low": low, "high": high}
        self.ledger(record | changes)

    def find(self) -> dict[str, Claim]:
        windows, spent = self.tables["windows"], event_seconds(self.tables)
        self.tables["top_events"] = pl.concat([top_events(windows, spent), top_events_total(windows, spent)])
        found = findings(self.plan, self.made.environment, self.tables, self.workloads)
        return {f.id: f for f in found}


def test_a_clean_run_has_no_complaints(clean: Climb):
    found = _found(clean)
    complaints = {i for i, f in found.items() if f.severity in ("warning", "invalid")}
    assert not complaints
    assert {i for i, f in found.items() if f.severity == "note"} <= FACTS


@pytest.mark.parametrize("seed", range(3))
def test_calls_of_any_length_are_clean(seed: int):
    """Calls vary by half up and down: neither drift nor unequal sessions."""
    found = _law(f"fake:cpus=8,cpu=40ms,wait=IO/x:40ms,spread=0.5,seed={seed}", (8,))
    assert not {"drift", "uneven-sessions"} & set(found)


def test_drift_is_told_with_its_size():
    """Calls at the end take half as long again, evenly rising: means of 1.125 and 1.375 times, -18 %."""
    found = _law("fake:cpus=8,cpu=10ms,drift=0.5", (4,))["drift"]
    assert found.severity == "warning"
    assert found.value.value == pytest.approx(1.125 / 1.375 - 1, abs=0.02)
    assert "Welch" in found.evidence
    assert "drift" not in _law("fake:cpus=8,cpu=10ms,drift=0.03", (4,))


def _by_second(made: Made, rates: list[float]) -> None:
    """Calls a second as the driver was asked for them."""
    window = made.tables["windows"].filter(cell=made.cell).row(0, named=True)
    step = (window["t1_ns"] - window["t0_ns"]) / len(rates)
    head = {c: window[c] for c in ("cell", "workload", "variant", "sessions", "repeat")}
    total, said = 0.0, [head | {"at_ns": window["t0_ns"], "calls": 0, "errors": 0}]
    for n, rate in enumerate(rates, 1):
        total += rate * step / S
        said.append(head | {"at_ns": window["t0_ns"] + round(n * step), "calls": round(total), "errors": 0})
    table = made.tables["cell_progress"]
    new = pl.DataFrame([{k: v for k, v in r.items() if k in table.columns} for r in said])
    made.tables["cell_progress"] = pl.concat([table.clear(), new], how="diagonal_relaxed")


@pytest.mark.parametrize("shift", [-0.4, 0.5])
def test_a_step_within_a_measurement_says_when(clean: Climb, shift: float):
    """Ten seconds, after 6 s another level, 1 % of noise; and one that came and went is told with its end."""
    made, noise = Made(clean), [1.0, 0.99, 1.01, 1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 1.0]
    _by_second(made, [1000 * e * (1 + shift if n >= 6 else 1) for n, e in enumerate(noise)])
    found = made.find()
    step = found["level-step"]
    assert "drift" not in found and step.severity == "warning"
    assert step.value is not None and step.value.value == pytest.approx(shift, abs=0.02)
    assert step.said["at_low"] < step.said["at"] < step.said["at_high"]
    assert step.said["at"] == pytest.approx(6.0, abs=0.6) and step.said["until"] is None
    _by_second(made, [1000 * e * (1 + shift if 3 <= n < 7 else 1) for n, e in enumerate(noise)])
    back = made.find()["level-step"]
    assert (back.said["at"], back.said["until"]) == pytest.approx((3.0, 7.0), abs=0.6)
    _by_second(made, [1000 * e for e in noise])
    assert not {"drift", "level-step"} & set(made.find())


def test_unequal_sessions_are_told():
    """The last session's calls take half as long again."""
    found = _law("fake:cpus=8,cpu=10ms,unequal=0.5", (4,))["uneven-sessions"]
    assert found.value.value == pytest.approx(1.5, rel=0.02)
    assert "uneven-sessions" not in _law("fake:cpus=8,cpu=10ms,unequal=0.1", (4,))


def test_vacuum_and_checkpoint_inside_a_window_are_told():
    """From 3 s to 7 s after the barrier, the window from 2 s to 12 s; or after it."""
    found = _law("fake:cpus=8,cpu=10ms,vacuum=3s+4s,checkpoint=4s+4s")
    assert found["autovacuum"].said["measurements"] == "1 measurement"
    assert found["checkpoint"].value.value == 1
    outside = _law("fake:cpus=8,cpu=10ms,vacuum=100s+1s,checkpoint=100s+1s")
    assert not {"autovacuum", "checkpoint"} & set(outside)


@pytest.mark.parametrize("instant", ["3s", "6s", "11s"])
def test_a_reset_of_statistics_is_told(instant: str):
    assert "statistics-reset" in _law(f"fake:cpus=8,cpu=10ms,reset={instant}")


def test_a_reset_outside_the_window_is_not(clean: Climb):
    assert "statistics-reset" not in _law("fake:cpus=8,cpu=10ms,reset=1s")
    assert "statistics-reset" not in _found(clean)


def test_workers_that_come_and_go_are_no_foreign_load():
    """Two workers a call: no reads of theirs tell their CPU, the machine's counters hold it."""
    found = _law("fake:cpus=4,cpu=30ms,workers=2")
    assert not [i for i in found if i == "foreign-load" or i.startswith("cpu-differs")]


def test_a_sampler_that_waits_for_a_cpu_is_told():
    found = _law("fake:cpus=8,cpu=10ms,late=40ms")["sampler-late"]
    assert found.value.value == pytest.approx(0.4, abs=0.05)
    assert "sampler-late" not in _law("fake:cpus=8,cpu=10ms,late=5ms")


def test_too_few_samples_are_told():
    """2 s at 10 Hz are 20; 10 s are 100."""
    found = _law(CLEAN, (1,), measure_ns=2 * S)["few-samples"]
    assert found.severity == "warning"
    assert 15 <= found.value.value <= 25


def test_a_claim_that_is_wider_than_half_of_it_is_told(clean: Climb):
    made = Made(clean)
    made.memo("runq", "IO/DataFileRead", 1.0, width=0.4, scope="rung", parent="runq")
    assert "hidden-run-queue is 0.600 s/s to 1.40 s/s" in made.find()["few-samples"].said["figure"]
    made = Made(clean)
    made.memo("runq", "IO/DataFileRead", 1.0, width=0.05, scope="rung", parent="runq")
    sure = made.find()
    assert "hidden-run-queue" in sure
    assert "hidden-run-queue" not in getattr(sure.get("few-samples"), "claim", "")


def test_one_lock_that_holds_all_is_told():
    """2 ms beside 10 ms under one lock: from 2 sessions on throughput is that of the lock."""
    found = _law("fake:cpus=8,cpu=2ms,lock=LWLock/WALWrite:10ms", (1, 4, 8))["lock-bound"]
    assert found.said["event"] == "LWLock/WALWrite"
    assert found.said["top_rate"] < 1.1 * found.said["best_rate"]
    assert found.value.value == pytest.approx(6.8 / 8, abs=0.05)


@pytest.mark.parametrize(
    ("law", "ladder"),
    [
        ("fake:cpus=8,cpu=20ms,lock=LWLock/WALWrite:1ms", (1, 2, 4)),  # grows, hardly waits
        ("fake:cpus=2,cpu=10ms,wait=IO/x:30ms", (1, 4, 16)),  # no growth, and no lock
    ],
)
def test_no_lock_is_blamed_without_cause(law: str, ladder: tuple[int, ...]):
    assert "lock-bound" not in _law(law, ladder)


@pytest.mark.parametrize(
    ("promise", "read", "expected"),
    [
        (True, 2.0, "not-cached"),
        (True, 0.0, None),
        (False, 2.0, "hardly-physical"),
        (False, 60.0, None),
        (None, 60.0, None),
    ],
)
def test_a_test_must_read_as_it_promises(
    clean: Climb, promise: bool | None, read: float, expected: str | None
):
    """Percent of the logical reads that were physical."""
    made = Made(clean)
    made.workloads = {"lio": LIO.model_copy(update={"cached": promise})}
    logical = made.tables["profile"].filter(pl.col("name") == "logical reads").select("cell", logical="total")
    physical = pl.when(pl.col("name") == "physical reads").then(pl.col("logical") * read / 100)
    made.tables["profile"] = (
        made.tables["profile"]
        .join(logical, on="cell")
        .with_columns(total=physical.otherwise("total"))
        .drop("logical")
    )
    found = set(made.find()) & {"not-cached", "hardly-physical", "os-cached"}
    assert found == ({expected} if expected else set())


@pytest.mark.parametrize(
    ("percent", "wal", "source", "expected"),
    [
        (0, 0.0, "engine counters", "writes-as-planned"),
        (0, 12.0, "engine counters", "writes-as-planned"),  # a hint bit
        (0, 900.0, "engine counters", "writes-unexpected"),
        (20, 900.0, "engine counters", "writes-as-planned"),
        (20, 0.0, "engine counters", "writes-unexpected"),
        (20, 12.0, "engine counters", "writes-unexpected"),
        (0, 900.0, "engine counters, server-wide", None),  # others write, too
        (0, None, "engine counters", None),
    ],
)
def test_a_test_must_write_as_it_promises(
    clean: Climb, percent: int, wal: float | None, source: str, expected: str | None
):
    """Bytes of WAL a call, of calls that change so many percent of their rows."""
    made = Made(clean)
    made.workloads = {"lio": LIO.model_copy(update={"changes_with": "update"})}
    cells = tuple(c.model_copy(update={"params": {"update": percent}}) for c in made.plan.cells)
    made.plan = made.plan.model_copy(update={"cells": cells})
    is_wal = (pl.col("name") == "wal_bytes_per_call") & (pl.col("scope") == "rung")
    changed = {"value": pl.lit(wal, pl.Float64), "source": pl.lit(source)}
    made.tables["rates"] = made.tables["rates"].with_columns(
        pl.when(is_wal).then(value).otherwise(name).alias(name) for name, value in changed.items()
    )
    found = made.find()
    assert set(found) & {"writes-as-planned", "writes-unexpected"} == ({expected} if expected else set())
    made.workloads = {"lio": LIO}
    assert not {"writes-as-planned", "writes-unexpected"} & set(made.find())


def test_a_few_pages_of_wal_are_no_write_of_a_load_that_only_reads():
    """Ten calls and a page that was logged for a hint bit; a thousand that write a page each."""
    assert writes_as_planned(8_192 / 10, 10, changing=False)
    assert not writes_as_planned(8_192, 1_000, changing=False)


@pytest.mark.parametrize(("delay", "told"), [(0.001, True), (0.5, False), (None, False)])
def test_blocks_that_the_operating_system_had_are_told(clean: Climb, delay: float | None, told: bool):
    made = Made(clean)
    made.workloads = {"lio": LIO.model_copy(update={"cached": False})}
    physical = pl.when(pl.col("name") == "physical reads").then(1e6).otherwise("total")
    made.tables["profile"] = made.tables["profile"].with_columns(total=physical)
    made.tables["ledger"] = made.tables["ledger"].filter(pl.col("account") != "block_io")
    for cell in clean.cells:
        made.cell = cell.id
        made.ledger({"scope": "rung", "account": "block_io", "aas": delay})
    assert ("os-cached" in made.find()) == told


def test_io_workers_are_told_with_their_cpu_and_block_io():
    found = _law("fake:cpus=8,cpu=10ms,wait=IO/DataFileRead:10ms,io_workers=3,io_cpu=0.3", (4,))
    assert found["io-workers"].value.value == pytest.approx(0.6, rel=0.1)
    assert "io-workers" not in _law("fake:cpus=8,cpu=10ms,wait=IO/DataFileRead:10ms", (4,))


@pytest.mark.parametrize(("aas", "told"), [(1.0, True), (0.001, False)])
def test_parallel_workers_share_is_told(clean: Climb, aas: float, told: bool):
    made = Made(clean)
    made.memo("workers.run", None, aas)
    assert ("parallel-workers" in made.find()) == told


@pytest.mark.parametrize(("aas", "told"), [(0.5, True), (0.01, False)])
def test_idle_sessions_that_burn_cpu_are_told_and_counted(clean: Climb, aas: float, told: bool):
    made = Made(clean)
    made.memo("state.run", "idle in transaction", aas)
    made.memo("state.run", "active", 2.0)
    made.memo("state.run", "idle in transaction", aas, who="session", session=0)
    found = made.find()
    assert ("idle-busy" in found) == told
    if told:
        assert found["idle-busy"].value.value == pytest.approx(aas)
        assert found["idle-busy"].said["sessions"] == 1


@pytest.mark.parametrize(("said", "told"), [(0.9, True), (2.6, False)])
def test_a_simple_figure_that_is_off_is_told(clean: Climb, said: float, told: bool):
    """Four sessions use 2.67 CPUs."""
    made = Made(clean)
    made.memo("naive.cpu", None, said)
    found = made.find()
    assert ("naive-cpu" in found) == told
    if told:
        assert found["naive-cpu"].said["naive"] == pytest.approx(0.9)
        assert found["naive-cpu"].value.value == pytest.approx(said - 8 / 3, abs=0.02)


def test_measured_throttling_takes_the_brackets_place():
    made = Made(climb("fake:cpus=2,cpu=20ms,quota=1.0", [4]))
    made.ledger({"scope": "rung", "account": "runq.throttled", "aas": 1.5, "source": "scheduler trace"})
    found = made.find()["throttled"]
    assert (found.value.value, found.value.low, found.value.high) == pytest.approx((1.5, 1.5, 1.5))


@pytest.mark.parametrize(("throttled", "told"), [(1.0, True), (0.1, False)])
def test_the_part_of_cpu_wait_that_is_throttling_is_named(throttled: float, told: bool):
    """Four sessions under a quota of one CPU are three in the run queue; the exact figure or a lower end."""
    for exact in (True, False):
        made = Made(climb("fake:cpus=2,cpu=20ms,quota=1.0", [4]))
        mine = pl.col("account") == "runq.throttled_bracket"
        made.tables["ledger"] = made.tables["ledger"].filter(~mine)
        row = {"scope": "rung", "account": "runq.throttled", "aas": throttled, "source": "scheduler trace"}
        least = {"account": "runq.throttled_bracket", "aas": None, "low": throttled, "high": 3.0}
        made.ledger(row if exact else row | least)
        found = made.find()
        assert ("cpu-wait-throttled" in found) == told
        if told:
            assert found["cpu-wait-throttled"].case == ("exact" if exact else "least")
            assert found["cpu-wait-throttled"].value.value == pytest.approx(1 / 3, abs=0.02)


@pytest.mark.parametrize(("throttled", "told"), [(0.5, True), (0.2, False)])
def test_a_session_that_is_throttled_for_much_of_its_own_time_is_named(throttled: float, told: bool):
    """One of eight that never wait otherwise: little of all CPU WAIT, and half of its own time."""
    made = Made(climb("fake:cpus=8,cpu=20ms,think=20ms", [8]))
    who = {"who": "session", "session": 3, "source": "scheduler trace"}
    mine = (pl.col("who") == "session") & (pl.col("session") == 3)
    first = made.tables["ledger"].filter(mine).row(0, named=True)
    made.ledger(who | {"scope": first["scope"], "account": "runq.throttled", "aas": throttled})
    pid = made.tables["cut_tasks"].filter((pl.col("role") == "session") & (pl.col("session") == 3))["pid"][0]
    found = made.find()
    assert ("sessions-throttled" in found) == told
    if told:
        claim = found["sessions-throttled"]
        assert (claim.case, claim.said["sessions"], claim.said["pid"]) == ("exact", 1, str(pid))
        assert claim.value.value == pytest.approx(throttled, rel=0.05)


@pytest.mark.parametrize(("throttled_ns", "told"), [(5 * S, True), (S, False)])
def test_a_group_of_sessions_that_is_throttled_is_named_where_no_trace_tells(throttled_ns: int, told: bool):
    made = Made(climb("fake:cpus=8,cpu=20ms,think=20ms", [8]))
    cell = made.tables["windows"].row(0, named=True)
    level = {c: cell[c] for c in ("cell", "workload", "variant", "sessions", "repeat")} | {
        "origin": "cgroup", "scope": "sessions", "place": "/apart", "key": "throttled_ns", "status": "ok",
        "delta": float(throttled_ns), "wall_ns": 10 * S,
    }  # fmt: skip
    levels = pl.DataFrame([level], schema_overrides=made.tables["cut_levels"].schema)
    made.tables["cut_levels"] = pl.concat([made.tables["cut_levels"], levels], how="diagonal")
    found = made.find()
    assert ("sessions-throttled" in found) == told
    if told:
        assert found["sessions-throttled"].said["group"] == "/apart"
        assert found["sessions-throttled"].value.value == pytest.approx(0.5)


def test_sessions_that_stood_still_are_reported(clean: Climb):
    made = Made(clean)
    made.ledger({"scope": "rung", "account": "sleep", "detail": "Stopped/Signal", "aas": 0.4, "source": "x"})
    assert made.find()["sessions-stopped"].value.value == pytest.approx(0.4)
    assert "sessions-stopped" not in Made(clean).find()


def test_the_exact_tier_is_named(clean: Climb):
    made = Made(clean)
    assert made.find()["data-sources-used"].case == "sampled"
    waits = pl.when(pl.col("account") == "sleep").then(pl.lit("scheduler trace")).otherwise("source")
    made.tables["ledger"] = made.tables["ledger"].with_columns(source=waits)
    assert made.find()["data-sources-used"].case == "exact"


def _observed(made: Climb) -> Made:
    """The same windows as if the load were somebody else's."""
    tables = Made(made)
    experiment = made.plan.experiment.model_copy(update={"observation": Observation()})
    tables.plan = made.plan.model_copy(update={"experiment": experiment})
    tables.tables["rates"] = tables.tables["rates"].clear()
    tables.tables["windows"] = tables.tables["windows"].with_columns(sessions=pl.lit(0), variant=pl.lit("x"))
    tables.tables["rungs"] = rungs(tables.tables)
    undriven = {**tables.tables, "cell_sessions": tables.tables["cell_sessions"].clear()}
    tables.tables["served"] = accounts(undriven)["served"]
    return tables


def test_an_observation_has_no_rungs_and_no_driver():
    """Two CPUs, eight sessions: they wait for CPU, and nothing is said of rungs, peaks or calls."""
    made = _observed(climb("fake:cpus=2,cpu=20ms", [8]))
    (row,) = made.tables["rungs"].to_dicts()
    assert row["calls_per_s"] is None
    assert row["run_aas"] == pytest.approx(2.0, rel=0.01)
    found = made.find()
    assert found["cpu-wait"].value.value == pytest.approx(0.75, abs=0.02)
    assert found["cpu-wait"].said["place"] == "in window 1"
    assert not {"peak", "one-repeat", "scales-to", "driver-starved"} & set(found)
    assert not [f.text for f in found.values() if "rung" in f.text or "0 sessions" in f.text]


def test_a_load_that_changes_is_a_note_of_an_observation():
    """After 7 s of 12 (5 of the window's 10) somebody's sessions are gone."""
    steady, ebbing = (
        _observed(climb(f"fake:cpus=8,cpu=200ms{lost}", [4])).find() for lost in ("", ",lose=0@7s+1@7s+2@7s")
    )
    assert not {"drift", "level-step"} & set(steady) and "drift" not in ebbing
    step = ebbing["level-step"]
    assert (step.severity, step.value.value) == ("note", pytest.approx(-0.75, abs=0.05))
    assert step.said["at_low"] <= 5 <= step.said["at_high"]
