"""Every claim appears on a run that deserves it, and none on one that does not."""

import polars as pl
import pytest
from tests.fakery import LIO, Climb, S, climb

from dbdyno.account.ladder import rungs
from dbdyno.account.ledger import accounts, cross_check, ledger
from dbdyno.account.load_profile import event_seconds, profile, top_events, top_events_total
from dbdyno.account.window import cut
from dbdyno.conclude.catalogue.criteria import writes_as_planned
from dbdyno.conclude.findings import findings
from dbdyno.conclude.run import background
from dbdyno.conduct.derive.derive import derive
from dbdyno.model.plan.plan import Observation
from dbdyno.model.results.claim import Claim
from dbdyno.model.schema.tables import rows

pytestmark = [pytest.mark.whole, pytest.mark.queries]

CLEAN = "fake:cpus=8,cpu=10ms,wait=IO/DataFileRead:5ms"
FACTS = {"peak", "session-time", "one-repeat", "data-sources-used", "ledger-closes", "few-samples"}
"""Said of every run, or of every short one: no complaint."""


def _claims(climbed: Climb) -> dict[str, Claim]:
    return {f.id: f for f in derive(climbed.info, climbed.plan, climbed.environment, climbed.cells).findings}


def _claims_of_law(dsn: str, ladder: tuple[int, ...] = (2,), **options) -> dict[str, Claim]:
    return _claims(climb(dsn, list(ladder), **options))


@pytest.fixture(scope="module")
def clean() -> Climb:
    return climb(CLEAN, [1, 2, 4])


_DERIVED: dict[int, tuple[Climb, dict[str, pl.DataFrame]]] = {}


def _tables(climbed: Climb) -> dict[str, pl.DataFrame]:
    """Returns the tables of a climb, derived once."""
    if id(climbed) not in _DERIVED:
        tables = cut(climbed.cells)
        tables["ledger"] = ledger(tables)
        tables["data_sources"] = cross_check(tables, tables["ledger"])
        tables["rungs"] = rungs(tables)
        tables["profile"] = profile(tables)
        _DERIVED[id(climbed)] = climbed, tables
    return _DERIVED[id(climbed)][1]


class ChangedRun:
    """The tables of a run, to which a test adds rows before it asks for claims."""

    def __init__(self, climbed: Climb) -> None:
        self.climbed, self.workloads = climbed, dict(climbed.info.workloads)
        self.plan = climbed.plan
        self.tables = dict(_tables(climbed))
        self.cell = climbed.cells[-1].id

    def ledger(self, *records: dict) -> None:
        head = self.tables["windows"].filter(pl.col("cell") == self.cell)
        head = head.select("cell", "workload", "variant", "sessions", "repeat").row(0, named=True)
        common = {"status": "ok", "source": "activity samples", "who": "rung"}
        more = rows("ledger", [head | common | r for r in records])
        same = ["cell", "scope", "who", "account", "detail"]
        others = self.tables["ledger"].join(more, on=same, how="anti", nulls_equal=True)
        self.tables["ledger"] = pl.concat([others, more])

    def memo(self, account: str, detail: str | None, aas: float, width: float = 0.1, **changes) -> None:
        low, high = aas * (1 - width), aas * (1 + width)
        record = {"scope": "memo", "account": account, "detail": detail, "aas": aas, "low": low, "high": high}
        self.ledger(record | changes)

    def claims(self) -> dict[str, Claim]:
        windows, spent = self.tables["windows"], event_seconds(self.tables)
        self.tables["top_events"] = pl.concat([top_events(windows, spent), top_events_total(windows, spent)])
        claims = findings(self.plan, self.climbed.environment, self.tables, self.workloads)
        return {f.id: f for f in claims}


def test_a_clean_run_has_no_complaints(clean: Climb):
    claims = _claims(clean)
    complaints = {i for i, f in claims.items() if f.severity in ("warning", "invalid")}
    assert not complaints
    assert {i for i, f in claims.items() if f.severity == "note"} <= FACTS


@pytest.mark.parametrize("seed", range(3))
def test_calls_of_varying_length_have_no_complaints(seed: int):
    """Durations vary by half up and down, which is neither drift nor unequal sessions."""
    claims = _claims_of_law(f"fake:cpus=8,cpu=40ms,wait=IO/x:40ms,spread=0.5,seed={seed}", (8,))
    assert not {"drift", "uneven-sessions"} & set(claims)


def test_drift_is_claimed_with_its_size():
    """Durations rise evenly to half as long again: means of 1.125 and 1.375 times, -18 %."""
    claim = _claims_of_law("fake:cpus=8,cpu=10ms,drift=0.5", (4,))["drift"]
    assert claim.severity == "warning"
    assert claim.value.value == pytest.approx(1.125 / 1.375 - 1, abs=0.02)
    assert "Welch" in claim.evidence
    assert "drift" not in _claims_of_law("fake:cpus=8,cpu=10ms,drift=0.03", (4,))


def _by_second(run: ChangedRun, rates: list[float]) -> None:
    """Sets the calls of each second of the window."""
    window = run.tables["windows"].filter(cell=run.cell).row(0, named=True)
    step = (window["t1_ns"] - window["t0_ns"]) / len(rates)
    head = {c: window[c] for c in ("cell", "workload", "variant", "sessions", "repeat")}
    total, samples = 0.0, [head | {"at_ns": window["t0_ns"], "calls": 0, "errors": 0}]
    for n, rate in enumerate(rates, 1):
        total += rate * step / S
        samples.append(
            head | {"at_ns": window["t0_ns"] + round(n * step), "calls": round(total), "errors": 0}
        )
    table = run.tables["cell_progress"]
    new = pl.DataFrame([{k: v for k, v in r.items() if k in table.columns} for r in samples])
    run.tables["cell_progress"] = pl.concat([table.clear(), new], how="diagonal_relaxed")


@pytest.mark.parametrize("shift", [-0.4, 0.5])
def test_a_step_within_a_measurement_is_claimed_with_its_instant(clean: Climb, shift: float):
    """A second level after 6 s of 10 s, with 1 % of noise; a level that ends again is claimed with its
    end."""
    run, noise = ChangedRun(clean), [1.0, 0.99, 1.01, 1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 1.0]
    _by_second(run, [1000 * e * (1 + shift if n >= 6 else 1) for n, e in enumerate(noise)])
    claims = run.claims()
    step = claims["level-step"]
    assert "drift" not in claims and step.severity == "warning"
    assert step.value is not None and step.value.value == pytest.approx(shift, abs=0.02)
    assert step.slots["at_low"] < step.slots["at"] < step.slots["at_high"]
    assert step.slots["at"] == pytest.approx(6.0, abs=0.6) and step.slots["until"] is None
    _by_second(run, [1000 * e * (1 + shift if 3 <= n < 7 else 1) for n, e in enumerate(noise)])
    back = run.claims()["level-step"]
    assert (back.slots["at"], back.slots["until"]) == pytest.approx((3.0, 7.0), abs=0.6)
    _by_second(run, [1000 * e for e in noise])
    assert not {"drift", "level-step"} & set(run.claims())


def test_unequal_sessions_are_a_claim():
    """The last session's calls take half as long again."""
    claim = _claims_of_law("fake:cpus=8,cpu=10ms,unequal=0.5", (4,))["uneven-sessions"]
    assert claim.value.value == pytest.approx(1.5, rel=0.02)
    assert "uneven-sessions" not in _claims_of_law("fake:cpus=8,cpu=10ms,unequal=0.1", (4,))


def test_vacuum_and_checkpoint_inside_a_window_are_claims():
    """Both run between 3 s and 8 s after the barrier, in the window from 2 s to 12 s; or after the window."""
    claims = _claims_of_law("fake:cpus=8,cpu=10ms,vacuum=3s+4s,checkpoint=4s+4s")
    assert claims["autovacuum"].slots["measurements"] == "1 measurement"
    assert claims["checkpoint"].value.value == 1
    outside = _claims_of_law("fake:cpus=8,cpu=10ms,vacuum=100s+1s,checkpoint=100s+1s")
    assert not {"autovacuum", "checkpoint"} & set(outside)


@pytest.mark.parametrize(("cpus", "end"), [(0.0, "2 sessions."), (0.12, "2 sessions, using 0.120 CPUs.")])
def test_a_vacuum_that_used_no_cpu_to_speak_of_has_no_such_figure(
    monkeypatch: pytest.MonkeyPatch, cpus: float, end: str
):
    monkeypatch.setattr(background, "_vacuum", lambda *_: [(cpus, 0.38)])
    text = _claims_of_law("fake:cpus=8,cpu=10ms", (2,))["autovacuum"].text
    assert "for 38 % of the time" in text and text.endswith(end)


@pytest.mark.parametrize("instant", ["3s", "6s", "11s"])
def test_a_reset_of_statistics_in_the_window_is_a_claim(instant: str):
    assert "statistics-reset" in _claims_of_law(f"fake:cpus=8,cpu=10ms,reset={instant}")


def test_a_reset_of_statistics_outside_the_window_is_no_claim(clean: Climb):
    assert "statistics-reset" not in _claims_of_law("fake:cpus=8,cpu=10ms,reset=1s")
    assert "statistics-reset" not in _claims(clean)


def test_workers_that_come_and_go_are_no_foreign_load():
    """Two workers a call end before their CPU time is read; the machine's counters hold it."""
    claims = _claims_of_law("fake:cpus=4,cpu=30ms,workers=2")
    assert not [i for i in claims if i == "foreign-load" or i.startswith("cpu-differs")]


def test_a_sampler_that_waits_for_a_cpu_is_a_claim():
    claim = _claims_of_law("fake:cpus=8,cpu=10ms,late=40ms")["sampler-late"]
    assert claim.value.value == pytest.approx(0.4, abs=0.05)
    assert "sampler-late" not in _claims_of_law("fake:cpus=8,cpu=10ms,late=5ms")


def test_too_few_samples_are_a_warning():
    """A window of 2 s has 20 samples at 10 Hz, one of 10 s has 100."""
    claim = _claims_of_law(CLEAN, (1,), measure_ns=2 * S)["few-samples"]
    assert claim.severity == "warning"
    assert 15 <= claim.value.value <= 25


def test_a_claim_that_is_wider_than_half_of_it_is_named_for_few_samples(clean: Climb):
    run = ChangedRun(clean)
    run.memo("runq", "IO/DataFileRead", 1.0, width=0.4, scope="rung", parent="runq")
    assert "hidden-run-queue is 0.600 s/s to 1.40 s/s" in run.claims()["few-samples"].slots["figure"]
    run = ChangedRun(clean)
    run.memo("runq", "IO/DataFileRead", 1.0, width=0.05, scope="rung", parent="runq")
    sure = run.claims()
    assert "hidden-run-queue" in sure
    assert "hidden-run-queue" not in getattr(sure.get("few-samples"), "claim", "")


def test_a_lock_that_holds_all_is_a_claim():
    """2 ms alone and 10 ms under one lock: from 2 sessions on the lock limits throughput."""
    claim = _claims_of_law("fake:cpus=8,cpu=2ms,lock=LWLock/WALWrite:10ms", (1, 4, 8))["lock-bound"]
    assert claim.slots["event"] == "LWLock/WALWrite"
    assert claim.slots["top_rate"] < 1.1 * claim.slots["best_rate"]
    assert claim.value.value == pytest.approx(6.8 / 8, abs=0.05)


@pytest.mark.parametrize(
    ("law", "ladder"),
    [
        ("fake:cpus=8,cpu=20ms,lock=LWLock/WALWrite:1ms", (1, 2, 4)),  # grows, hardly waits
        ("fake:cpus=2,cpu=10ms,wait=IO/x:30ms", (1, 4, 16)),  # no growth, and no lock
    ],
)
def test_no_lock_is_blamed_without_cause(law: str, ladder: tuple[int, ...]):
    assert "lock-bound" not in _claims_of_law(law, ladder)


@pytest.mark.parametrize(
    ("promise", "physical_percent", "expected"),
    [
        (True, 2.0, "not-cached"),
        (True, 0.0, None),
        (False, 2.0, "hardly-physical"),
        (False, 60.0, None),
        (None, 60.0, None),
    ],
)
def test_physical_reads_against_a_tests_promise_are_a_claim(
    clean: Climb, promise: bool | None, physical_percent: float, expected: str | None
):
    """The percentage of logical reads that are physical varies."""
    run = ChangedRun(clean)
    run.workloads = {"lio": LIO.model_copy(update={"cached": promise})}
    logical = run.tables["profile"].filter(pl.col("name") == "logical reads").select("cell", logical="total")
    physical = pl.when(pl.col("name") == "physical reads").then(pl.col("logical") * physical_percent / 100)
    run.tables["profile"] = (
        run.tables["profile"]
        .join(logical, on="cell")
        .with_columns(total=physical.otherwise("total"))
        .drop("logical")
    )
    claims = set(run.claims()) & {"not-cached", "hardly-physical", "os-cached"}
    assert claims == ({expected} if expected else set())


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
def test_wal_against_a_tests_promise_is_a_claim(
    clean: Climb, percent: int, wal: float | None, source: str, expected: str | None
):
    """Bytes of WAL per call vary, with the percentage of rows that calls change."""
    run = ChangedRun(clean)
    run.workloads = {"lio": LIO.model_copy(update={"changes_with": "update"})}
    cells = tuple(c.model_copy(update={"params": {"update": percent}}) for c in run.plan.cells)
    run.plan = run.plan.model_copy(update={"cells": cells})
    is_wal = (pl.col("name") == "wal_bytes_per_call") & (pl.col("scope") == "rung")
    changed = {"value": pl.lit(wal, pl.Float64), "source": pl.lit(source)}
    run.tables["rates"] = run.tables["rates"].with_columns(
        pl.when(is_wal).then(value).otherwise(name).alias(name) for name, value in changed.items()
    )
    claims = run.claims()
    assert set(claims) & {"writes-as-planned", "writes-unexpected"} == ({expected} if expected else set())
    run.workloads = {"lio": LIO}
    assert not {"writes-as-planned", "writes-unexpected"} & set(run.claims())


def test_a_few_pages_of_wal_are_no_write_of_a_load_that_only_reads():
    """Ten calls and a page logged for a hint bit; a thousand calls that write a page each."""
    assert writes_as_planned(8_192 / 10, 10, changing=False)
    assert not writes_as_planned(8_192, 1_000, changing=False)


@pytest.mark.parametrize(("delay", "claimed"), [(0.001, True), (0.5, False), (None, False)])
def test_blocks_that_the_operating_system_had_are_a_claim(clean: Climb, delay: float | None, claimed: bool):
    run = ChangedRun(clean)
    run.workloads = {"lio": LIO.model_copy(update={"cached": False})}
    physical = pl.when(pl.col("name") == "physical reads").then(1e6).otherwise("total")
    run.tables["profile"] = run.tables["profile"].with_columns(total=physical)
    run.tables["ledger"] = run.tables["ledger"].filter(pl.col("account") != "block_io")
    for cell in clean.cells:
        run.cell = cell.id
        run.ledger({"scope": "rung", "account": "block_io", "aas": delay})
    assert ("os-cached" in run.claims()) == claimed


def test_io_workers_are_claimed_with_their_cpu_and_block_io():
    claims = _claims_of_law("fake:cpus=8,cpu=10ms,wait=IO/DataFileRead:10ms,io_workers=3,io_cpu=0.3", (4,))
    assert claims["io-workers"].value.value == pytest.approx(0.6, rel=0.1)
    assert "io-workers" not in _claims_of_law("fake:cpus=8,cpu=10ms,wait=IO/DataFileRead:10ms", (4,))


@pytest.mark.parametrize(("aas", "claimed"), [(1.0, True), (0.001, False)])
def test_a_share_of_parallel_workers_is_a_claim(clean: Climb, aas: float, claimed: bool):
    run = ChangedRun(clean)
    run.memo("workers.run", None, aas)
    assert ("parallel-workers" in run.claims()) == claimed


@pytest.mark.parametrize(("aas", "claimed"), [(0.5, True), (0.01, False)])
def test_idle_sessions_that_burn_cpu_are_claimed_and_counted(clean: Climb, aas: float, claimed: bool):
    run = ChangedRun(clean)
    run.memo("state.run", "idle in transaction", aas)
    run.memo("state.run", "active", 2.0)
    run.memo("state.run", "idle in transaction", aas, who="session", session=0)
    claims = run.claims()
    assert ("idle-busy" in claims) == claimed
    if claimed:
        assert claims["idle-busy"].value.value == pytest.approx(aas)
        assert claims["idle-busy"].slots["sessions"] == 1


@pytest.mark.parametrize(("naive", "claimed"), [(0.9, True), (2.6, False)])
def test_a_naive_figure_that_is_off_is_a_claim(clean: Climb, naive: float, claimed: bool):
    """Four sessions use 2.67 CPUs."""
    run = ChangedRun(clean)
    run.memo("naive.cpu", None, naive)
    claims = run.claims()
    assert ("naive-cpu" in claims) == claimed
    if claimed:
        assert claims["naive-cpu"].slots["naive"] == pytest.approx(0.9)
        assert claims["naive-cpu"].value.value == pytest.approx(naive - 8 / 3, abs=0.02)


def test_measured_throttling_takes_the_brackets_place():
    run = ChangedRun(climb("fake:cpus=2,cpu=20ms,quota=1.0", [4]))
    run.ledger({"scope": "rung", "account": "runq.throttled", "aas": 1.5, "source": "scheduler trace"})
    claim = run.claims()["throttled"]
    assert (claim.value.value, claim.value.low, claim.value.high) == pytest.approx((1.5, 1.5, 1.5))


@pytest.mark.parametrize(("throttled", "claimed"), [(1.0, True), (0.1, False)])
def test_the_part_of_cpu_wait_that_is_throttling_is_named(throttled: float, claimed: bool):
    """Under a quota of one CPU three of four sessions are in the run queue. The throttled time is exact or a
    lower end."""
    for exact in (True, False):
        run = ChangedRun(climb("fake:cpus=2,cpu=20ms,quota=1.0", [4]))
        bracket = pl.col("account") == "runq.throttled_bracket"
        run.tables["ledger"] = run.tables["ledger"].filter(~bracket)
        row = {"scope": "rung", "account": "runq.throttled", "aas": throttled, "source": "scheduler trace"}
        least = {"account": "runq.throttled_bracket", "aas": None, "low": throttled, "high": 3.0}
        run.ledger(row if exact else row | least)
        claims = run.claims()
        assert ("cpu-wait-throttled" in claims) == claimed
        if claimed:
            assert claims["cpu-wait-throttled"].case == ("exact" if exact else "least")
            assert claims["cpu-wait-throttled"].value.value == pytest.approx(1 / 3, abs=0.02)


@pytest.mark.parametrize(("throttled", "claimed"), [(0.5, True), (0.2, False)])
def test_a_session_that_is_throttled_for_much_of_its_own_time_is_named(throttled: float, claimed: bool):
    """One of eight sessions, which else never wait: little of all CPU WAIT, and half of its own time."""
    run = ChangedRun(climb("fake:cpus=8,cpu=20ms,think=20ms", [8]))
    who = {"who": "session", "session": 3, "source": "scheduler trace"}
    of_session = (pl.col("who") == "session") & (pl.col("session") == 3)
    first = run.tables["ledger"].filter(of_session).row(0, named=True)
    run.ledger(who | {"scope": first["scope"], "account": "runq.throttled", "aas": throttled})
    pid = run.tables["cut_tasks"].filter((pl.col("role") == "session") & (pl.col("session") == 3))["pid"][0]
    claims = run.claims()
    assert ("sessions-throttled" in claims) == claimed
    if claimed:
        claim = claims["sessions-throttled"]
        assert (claim.case, claim.slots["sessions"], claim.slots["pid"]) == ("exact", 1, str(pid))
        assert claim.value.value == pytest.approx(throttled, rel=0.05)


@pytest.mark.parametrize(("throttled_ns", "claimed"), [(5 * S, True), (S, False)])
def test_a_throttled_group_of_sessions_is_named_without_a_trace(throttled_ns: int, claimed: bool):
    run = ChangedRun(climb("fake:cpus=8,cpu=20ms,think=20ms", [8]))
    cell = run.tables["windows"].row(0, named=True)
    level = {c: cell[c] for c in ("cell", "workload", "variant", "sessions", "repeat")} | {
        "origin": "cgroup",
        "scope": "sessions",
        "place": "/apart",
        "key": "throttled_ns",
        "status": "ok",
        "delta": float(throttled_ns),
        "wall_ns": 10 * S,
    }
    levels = pl.DataFrame([level], schema_overrides=run.tables["cut_levels"].schema)
    run.tables["cut_levels"] = pl.concat([run.tables["cut_levels"], levels], how="diagonal")
    claims = run.claims()
    assert ("sessions-throttled" in claims) == claimed
    if claimed:
        assert claims["sessions-throttled"].slots["group"] == "/apart"
        assert claims["sessions-throttled"].value.value == pytest.approx(0.5)


def test_sessions_that_stood_still_are_reported(clean: Climb):
    run = ChangedRun(clean)
    run.ledger({"scope": "rung", "account": "sleep", "detail": "Stopped/Signal", "aas": 0.4, "source": "x"})
    assert run.claims()["sessions-stopped"].value.value == pytest.approx(0.4)
    assert "sessions-stopped" not in ChangedRun(clean).claims()


def test_the_exact_tier_is_named(clean: Climb):
    run = ChangedRun(clean)
    assert run.claims()["data-sources-used"].case == "sampled"
    first = pl.col("cell") == run.tables["ledger"]["cell"][0]
    for where, case in ((first, "both"), (pl.lit(True), "exact")):
        traced = where & (pl.col("account") == "sleep")
        waits = pl.when(traced).then(pl.lit("scheduler trace")).otherwise("source")
        run.tables["ledger"] = run.tables["ledger"].with_columns(source=waits)
        assert run.claims()["data-sources-used"].case == case


def test_waits_of_no_source_are_unknown(clean: Climb):
    run = ChangedRun(clean)
    asleep = pl.col("account") == "sleep"
    run.tables["ledger"] = run.tables["ledger"].with_columns(aas=pl.when(~asleep).then("aas"))
    assert run.claims()["data-sources-used"].text.startswith("Waits are unknown. CPU")


def _observation(climbed: Climb) -> ChangedRun:
    """Returns the same windows as an observation of somebody else's load."""
    run = ChangedRun(climbed)
    experiment = climbed.plan.experiment.model_copy(update={"observation": Observation()})
    run.plan = climbed.plan.model_copy(update={"experiment": experiment})
    run.tables["rates"] = run.tables["rates"].clear()
    run.tables["windows"] = run.tables["windows"].with_columns(sessions=pl.lit(0), variant=pl.lit("x"))
    run.tables["rungs"] = rungs(run.tables)
    undriven = {**run.tables, "cell_sessions": run.tables["cell_sessions"].clear()}
    run.tables["served"] = accounts(undriven)["served"]
    return run


def test_an_observation_has_no_rungs_and_no_driver():
    """Eight sessions wait for two CPUs; no claim names rungs, peaks or calls."""
    run = _observation(climb("fake:cpus=2,cpu=20ms", [8]))
    (row,) = run.tables["rungs"].to_dicts()
    assert row["calls_per_s"] is None
    assert row["run_aas"] == pytest.approx(2.0, rel=0.01)
    claims = run.claims()
    assert claims["cpu-wait"].value.value == pytest.approx(0.75, abs=0.02)
    assert claims["cpu-wait"].slots["place"] == "in window 1"
    assert not {"peak", "one-repeat", "scales-to", "driver-starved"} & set(claims)
    assert not [f.text for f in claims.values() if "rung" in f.text or "0 sessions" in f.text]


def test_a_load_that_changes_is_a_note_of_an_observation():
    """Three of four sessions end after 7 s of 12 (5 of the window's 10)."""
    steady, ebbing = (
        _observation(climb(f"fake:cpus=8,cpu=200ms{lost}", [4])).claims()
        for lost in ("", ",lose=0@7s+1@7s+2@7s")
    )
    assert not {"drift", "level-step"} & set(steady) and "drift" not in ebbing
    step = ebbing["level-step"]
    assert (step.severity, step.value.value) == ("note", pytest.approx(-0.75, abs=0.05))
    assert step.slots["at_low"] <= 5 <= step.slots["at_high"]


def test_hidden_states_are_no_change_of_the_load():
    run = _observation(climb("fake:cpus=8,cpu=200ms,lose=0@7s+1@7s+2@7s", [4]))
    asleep = pl.col("account").is_in(["client", "sleep"]) & (pl.col("scope") == "rung")
    status = pl.when(asleep).then(pl.lit("2 of 4 sessions hidden from this role")).otherwise("status")
    run.tables["ledger"] = run.tables["ledger"].with_columns(status=status)
    assert not {"drift", "level-step"} & set(run.claims())
