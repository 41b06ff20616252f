"""Metrics of windows of the fake engine against the derived tables, by the parsers of prometheus_client."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as strict
from prometheus_client.parser import text_string_to_metric_families as classic
from prometheus_client.samples import Sample as Parsed

from dbdyno import conduct, observe
from dbdyno.conduct.metrics.exporter import Destination, Exporter
from dbdyno.conduct.metrics.sums import MOST_VALUES, OTHER
from dbdyno.drive import Interrupt
from dbdyno.model.engine.protocols import Target
from dbdyno.model.results.raw import RawCell
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import empty, rows
from dbdyno.present.metrics.records import BUCKETS_S, BY_NAME, METRICS
from dbdyno.present.metrics.window import Sample, Window, windows
from dbdyno.store import Run, RunStore

LAW = "fake:cpus=2,foreign=3,cpu=2ms,think=5ms,wait=IO/DataFileRead:3ms,helper=checkpointer:0.1"
OPEN_METRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}
Scrape = dict[tuple[str, frozenset[tuple[str, str]]], float]
SERVER = "in memory"


def text_of(exporter: Exporter, headers: dict[str, str] | None = None) -> str:
    """Returns what a scraper is answered."""
    assert exporter.server is not None
    host, port = exporter.server.server_address[:2]
    connection = HTTPConnection(str(host), int(port), timeout=60)
    token = {} if exporter.server.token is None else {"Authorization": f"Bearer {exporter.server.token}"}
    connection.request("GET", "/metrics", headers={**token, **(headers or {})})
    response = connection.getresponse()
    assert response.status == 200
    return response.read().decode()


def parsed(text: str) -> Iterator[Parsed]:
    return (sample for family in strict(text) for sample in family.samples)


def scrape(exporter: Exporter) -> Scrape:
    return {(s.name, frozenset(s.labels.items())): s.value for s in parsed(text_of(exporter, OPEN_METRICS))}


def sum_of(values: Scrape, name: str, **labels: str) -> float:
    return sum(v for (n, own), v in values.items() if n == name and labels.items() <= dict(own).items())


class Scraping(conduct.NullObservationListener):
    """Scrapes whenever a window is saved."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter, self.scrapes, self.notices = exporter, list[Scrape](), list[str]()

    def saved(self, window: RawCell) -> None:  # noqa: ARG002
        self.scrapes.append(scrape(self._exporter))

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Exporter]:
    with Exporter(Destination("127.0.0.1:0", open=True, file=tmp_path / "dbdyno.prom")) as opened:
        yield opened


def observed(exporter: Exporter, store: Path, law: str = LAW, **chosen: Any) -> tuple[Run, Scraping]:
    experiment = conduct.observation_of({"engine": "fake"}, **chosen)
    plan = conduct.observation_plan(experiment, observe.host())
    listener = Scraping(exporter)
    context = conduct.RunContext[conduct.ObservationListener](
        observe.host(), Target(law), RunStore(store), listener, Interrupt(), metrics=exporter
    )
    return conduct.observe_server(plan, context).record, listener


@pytest.mark.whole
@pytest.mark.queries
def test_an_observation_is_scraped_while_it_goes_on(exporter: Exporter, tmp_path: Path) -> None:
    run, listener = observed(exporter, tmp_path / "store", duration="20s", window="5s")
    results, last = conduct.results_of(run), scrape(exporter)
    scrapes = [*listener.scrapes, last]
    assert [sum_of(s, "dbdyno_windows_total") for s in scrapes] == [0, 1, 2, 3, 4]
    assert not [n for n in listener.notices if "metrics" in n]
    grow_only(scrapes)
    wall_s = {row["cell"]: row["wall_s"] for row in results.tables["windows"].to_dicts()}
    ledger = results.tables["ledger"].filter((pl.col("scope") == "rung") & pl.col("parent").is_null())
    of_account = ledger.with_columns(s=pl.col("aas") * pl.col("cell").replace_strict(wall_s))
    seconds = dict(of_account.group_by("account").agg(pl.col("s").sum()).iter_rows())
    names = {"sleep": "wait", "runq": "run_queue", "client": "client"}
    for account, name in names.items():
        whole = sum_of(last, "dbdyno_session_seconds_total", account=name)
        assert whole == pytest.approx(seconds[account], rel=1e-9), account
    cpu = sum(sum_of(last, "dbdyno_session_seconds_total", account=f"cpu_{m}") for m in ("user", "system"))
    assert cpu == pytest.approx(seconds["run"], rel=1e-9)
    assert sum_of(last, "dbdyno_session_wall_seconds_total") == pytest.approx(3 * 20, rel=1e-6)
    accounted = sum_of(last, "dbdyno_session_seconds_total") + seconds["unaccounted"]
    assert accounted == pytest.approx(60, rel=1e-6)
    # by the law: for each call 3 ms of reads
    calls = sum_of(last, "dbdyno_transactions_total")
    assert sum_of(last, "dbdyno_session_seconds_total", event="DataFileRead", account="wait") == (
        pytest.approx(calls * 0.003, rel=0.01)
    )
    assert sum_of(last, "dbdyno_waits_total", event="DataFileRead") == pytest.approx(calls, rel=0.01)
    assert sum_of(last, "dbdyno_helper_cpu_seconds_total", helper="checkpointer") == pytest.approx(
        2, rel=0.05
    )
    assert sum_of(last, "dbdyno_host_cpu_seconds_total") == pytest.approx(2 * 20, rel=0.01)
    assert sum_of(last, "dbdyno_sessions") == pytest.approx(3, rel=0.01)
    assert sum_of(last, "dbdyno_source_up", source="pressure") == 0
    assert sum_of(last, "dbdyno_source_up", source="scheduler trace") == 1
    assert not [name for name, _ in last if name.startswith("dbdyno_response")], "unknown is absent"


def grow_only(scrapes: list[Scrape]) -> None:
    for before, after in pairwise(scrapes):
        for (name, labels), value in before.items():
            if name.endswith(("_total", "_bucket", "_count", "_sum")):
                assert after[name, labels] >= value, name
            if name.endswith("_created"):
                assert after[name, labels] == value


@pytest.mark.whole
@pytest.mark.queries
def test_a_run_has_calls_and_the_histogram_of_their_durations(exporter: Exporter, tmp_path: Path) -> None:
    from tests.unit.observe.test_plan import LIO

    from dbdyno.model.plan.plan import Experiment
    from dbdyno.plan import resolve

    asked = {"workload": "lio", "engine": "fake", "sessions": "1,4", "measure": "2s", "call_target": "10ms"}
    plan = resolve(Experiment.model_validate(asked), LIO, 2.0, "")
    scrapes: list[Scrape] = []

    class Listener(conduct.NullProgressListener):
        def measured(self, results: Results) -> None:  # noqa: ARG002
            scrapes.append(scrape(exporter))

    context = conduct.RunContext[conduct.ProgressListener](
        observe.host(),
        Target("fake:cpus=2,cpu=10ms,think=2ms"),
        RunStore(tmp_path / "store"),
        Listener(),
        Interrupt(),
        metrics=exporter,
    )
    results, last = conduct.results_of(conduct.run(plan, LIO, context)), scrape(exporter)
    grow_only([*scrapes, last])
    assert [sum_of(s, "dbdyno_windows_total", status="ok") for s in [*scrapes, last]] == [0, 1, 2]
    rungs, histogram = results.tables["rungs"], results.tables["histogram"]
    calls = float(rungs["calls"].sum())
    assert sum_of(last, "dbdyno_calls_total") == calls > 0
    assert sum_of(last, "dbdyno_response_seconds_count") == calls
    assert sum_of(last, "dbdyno_response_seconds_sum") == pytest.approx(
        float((rungs["calls"] * rungs["response_mean_ns"]).sum()) / 1e9
    )
    for bound in BUCKETS_S:  # no bin of these durations has a bound inside
        exact = histogram.filter(pl.col("low_ns") < bound * 1e9)["count"].sum()
        assert sum_of(last, "dbdyno_response_seconds_bucket", le=repr(bound)) == exact
    assert sum_of(last, "dbdyno_window_info", sessions="4") == 1
    assert sum_of(last, "dbdyno_window_info") == 1


@pytest.mark.whole
@pytest.mark.queries
def test_the_file_has_the_same_figures_in_the_older_format(exporter: Exporter, tmp_path: Path) -> None:
    observed(exporter, tmp_path / "store", duration="4s", window="2s")
    path = tmp_path / "dbdyno.prom"
    text = path.read_text()
    assert text == text_of(exporter)
    assert "_created" not in text and "# EOF" not in text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dbdyno.prom", "store"], "no temporary file is left"
    samples = [s for family in classic(text) for s in family.samples]
    assert {s.timestamp for s in samples} == {None}, "node_exporter refuses time stamps"
    assert {(s.name, frozenset(s.labels.items())): s.value for s in samples} == {
        key: value for key, value in scrape(exporter).items() if not key[0].endswith("_created")
    }
    if shutil.which("promtool"):
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, "")


def window_of(*samples: Sample) -> Window:
    return Window("1", samples)


def seconds(wait_class: str, event: str, value: float = 1.0) -> Sample:
    return Sample("dbdyno_session_seconds", ("wait", wait_class, event, "io"), value)


def test_events_without_end_become_one(exporter: Exporter) -> None:
    for number in range(3 * MOST_VALUES):
        exporter.add(SERVER, [window_of(seconds("IO", f"E{number}"))], print)
    exporter.add(SERVER, [window_of(seconds("IO", "E0"))], print)
    values = scrape(exporter)
    events = [dict(labels)["event"] for name, labels in values if name == "dbdyno_session_seconds_total"]
    assert len(events) == MOST_VALUES + 1
    assert sum_of(values, "dbdyno_session_seconds_total", event=OTHER) == 2 * MOST_VALUES
    assert sum_of(values, "dbdyno_session_seconds_total", event="E0") == 2


@pytest.mark.parametrize(
    "name",
    [
        'a"} 1\ndbdyno_calls_total 9e9\n#',
        "\\",
        "x" * 100_000,
        "\x00\x1b[31m\r\n",
        "\udcff\ud800",
        "\u202egnp",
        "",
        "été 夏",
        "{}$range",
    ],
)
def test_names_from_a_hostile_server_stay_values_of_one_label(exporter: Exporter, name: str) -> None:
    exporter.add(
        SERVER, [window_of(seconds(name, name), Sample("dbdyno_helper_cpu_seconds", (name,), 1))], print
    )
    text = text_of(exporter, OPEN_METRICS)
    assert len(text) < 3_000
    samples = [s for s in parsed(text) if s.name == "dbdyno_session_seconds_total"]
    assert [(s.value, set(s.labels)) for s in samples] == [
        (1, {"server", "account", "class", "event", "family"})
    ]
    assert len(samples[0].labels["event"]) <= 100
    assert [s.name for f in classic(text_of(exporter)) for s in f.samples].count("dbdyno_calls_total") == 0


def test_gauges_are_those_of_the_last_window_and_sums_do_not_fall(exporter: Exporter) -> None:
    first = (Sample("dbdyno_sessions", ("idle",), 3), Sample("dbdyno_sessions", ("active",), 1))
    exporter.add("a", [window_of(*first, seconds("IO", "Read"))], print)
    exporter.add("b", [window_of(Sample("dbdyno_sessions", ("idle",), 7))], print)
    exporter.add(
        "a", [window_of(Sample("dbdyno_sessions", ("active",), 2), seconds("IO", "Read", -1e-17))], print
    )
    values = scrape(exporter)
    gauges = {
        tuple(sorted(dict(labels).values())): v for (n, labels), v in values.items() if n == "dbdyno_sessions"
    }
    assert gauges == {("a", "active"): 2, ("b", "idle"): 7}
    assert sum_of(values, "dbdyno_session_seconds_total", server="a") == 1


def test_gaps_between_windows_lower_no_mean(exporter: Exporter) -> None:
    """4 sessions for 10 s, 8 s in which the server did not answer, an invalid window of 2 s, 4 sessions for
    5 s: 60 session seconds in 15 s are 4 sessions; over all 25 s they would be 2.4."""
    wall = [ledger_row("wall", 4.0) | {"scope": "memo"}]
    for start_s, end_s, status in ((100, 110, "ok"), (118, 120, "invalid"), (120, 125, "short")):
        ends = {"t0_ns": start_s * 10**9, "t1_ns": end_s * 10**9}
        window = CELL | ends | {"wall_s": float(end_s - start_s), "status": status}
        exporter.add(SERVER, [*windows(tables(windows=[window], ledger=wall), 0)], print)
    values = scrape(exporter)
    observed_s = sum_of(values, "dbdyno_observed_seconds_total")
    assert (observed_s, sum_of(values, "dbdyno_unobserved_seconds_total")) == (15, 10)
    assert sum_of(values, "dbdyno_session_wall_seconds_total") / observed_s == 4


def test_servers_at_the_same_place_have_labels_of_their_own(exporter: Exporter) -> None:
    labels = [exporter.label(place) for place in ("db1:5432", "db2:5432", "db1:5432", "db1:5432")]
    assert labels == ["db1:5432", "db2:5432", "db1:5432 #2", "db1:5432 #3"]


CELL = {"cell": "c", "workload": "w", "variant": "base", "sessions": 2, "repeat": 1}


def tables(**changed: list[dict[str, Any]]) -> dict[str, pl.DataFrame]:
    window = CELL | {"t0_ns": 0, "t1_ns": 4_000_000_000, "wall_s": 4.0, "status": "ok"}
    given = {"windows": [window]} | changed
    names = ("windows", "ledger", "events", "rates", "profile", "cell_histogram", "cell_sources")
    made = {n: rows(n, [CELL | row for row in given[n]]) if n in given else empty(n) for n in names}
    return made | {n: empty(n) for n in ("machine_growth", "wait_families")}


def ledger_row(account: str, aas: float | None, **changes: Any) -> dict[str, Any]:
    status = {"status": "ok" if aas is not None else "not permitted", "source": "s"}
    return {"scope": "rung", "who": "rung", "account": account, "aas": aas} | status | changes


def values_of(**changed: list[dict[str, Any]]) -> dict[tuple[str, tuple[str, ...]], float]:
    (window,) = windows(tables(**changed), 0)
    return {(s.name, s.labels): s.value for s in window.samples if s.name.startswith("dbdyno_session_s")}


def test_what_is_not_divided_is_one_account_and_what_is_unknown_none() -> None:
    known = [
        ledger_row("run.user", None, parent="run"),
        ledger_row("run.system", None, parent="run"),
        ledger_row("run", 0.5),
        ledger_row("runq", 0.25),
        ledger_row("runq", 0.125, parent="runq", detail="A/b"),
        ledger_row("runq.throttled", 0.2, parent="runq"),
        ledger_row("runq.throttled_bracket", None, parent="runq", high=0.2),
        ledger_row("block_io", 0.5, parent="sleep"),
        ledger_row("sleep", None, detail="A/b"),
        ledger_row("client", None),
    ]
    name = "dbdyno_session_seconds"
    assert {labels: v for (n, labels), v in values_of(ledger=known).items() if n == name} == {
        ("cpu", "", "", ""): 2.0,
        ("run_queue", "A", "b", "other"): 0.5,
        ("run_queue", "", "", ""): 0.5,
    }


def test_an_invalid_window_counts_in_no_figure() -> None:
    made = tables(ledger=[ledger_row("run", 0.5)])
    made["windows"] = made["windows"].with_columns(status=pl.lit("invalid"))
    (window,) = windows(made, 0)
    assert window.samples == (Sample("dbdyno_windows", ("invalid",), 1.0),)


def test_devices_are_sums_of_the_windows_rates() -> None:
    device = {
        "cell": "c",
        "device": "nvme0n1",
        "places": "data, WAL",
        "reads_per_s": 100.0,
        "read_bytes_per_s": 819200.0,
        "read_await_ns": 2_000_000.0,
        "writes_per_s": 0.0,
        "write_await_ns": None,
        "flushes_per_s": None,
        "utilisation": 0.25,
        "in_flight": 0.2,
    }
    tmpfs = dict.fromkeys(device) | {"cell": "c", "places": "temporary"}
    made = tables() | {"device_io": pl.DataFrame([device, tmpfs])}
    (window,) = windows(made, 0)
    found = {s.name: s.value for s in window.samples if s.name.startswith("dbdyno_device")}
    assert found == pytest.approx(
        {
            "dbdyno_device_reads": 400.0,
            "dbdyno_device_read_bytes": 3_276_800.0,
            "dbdyno_device_read_seconds": 0.8,
            "dbdyno_device_writes": 0.0,
            "dbdyno_device_write_seconds": 0.0,
            "dbdyno_device_busy_seconds": 1.0,
            "dbdyno_device_in_flight_requests": 0.2,
            "dbdyno_device": 1.0,
        }
    )


def test_every_sample_fits_its_record(exporter: Exporter) -> None:
    samples = []
    for metric in METRICS:
        if metric.name != "dbdyno_build":
            buckets = tuple(1.0 for _ in range(len(BUCKETS_S) + 1)) if metric.kind == "histogram" else ()
            samples.append(Sample(metric.name, tuple("x" for _ in metric.labels[1:]), 2.5, buckets))
    exporter.add(SERVER, [window_of(*samples)], print)
    families = {f.name: f for f in strict(text_of(exporter, OPEN_METRICS))}
    assert set(families) == {m.name for m in METRICS}
    for name, family in families.items():
        record = BY_NAME[name]
        assert (family.type, family.unit, family.documentation) == (record.kind, record.unit, record.help)
        assert {s.name for s in family.samples} - {f"{name}_created"} == set(record.samples)


def test_a_disk_that_is_full_is_reported_once(exporter: Exporter, tmp_path: Path) -> None:
    notices: list[str] = []
    (tmp_path / "dbdyno.prom").mkdir()  # a file cannot replace it
    for _ in range(3):
        exporter.add(SERVER, [window_of(seconds("IO", "Read"))], notices.append)
    assert len(notices) == 1 and "dbdyno.prom" in notices[0]
    (tmp_path / "dbdyno.prom").rmdir()
    exporter.add(SERVER, [window_of(seconds("IO", "Read"))], notices.append)
    assert 'event="Read"' in (tmp_path / "dbdyno.prom").read_text() and len(notices) == 1
    assert math.isclose(sum_of(scrape(exporter), "dbdyno_session_seconds_total"), 4)


def test_a_fault_of_the_metrics_is_reported_and_the_measurement_goes_on(
    exporter: Exporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dbdyno.conduct.metrics import feed

    def broken(*_: object) -> None:
        raise ValueError("a figure that cannot be")

    store = RunStore(tmp_path / "store")
    run = store.create(conduct.observation_plan(conduct.observation_of({"engine": "fake"}), observe.host()))
    run.parts.write("0001-a", tables(), {})
    monkeypatch.setattr(feed, "windows", broken)
    notices: list[str] = []
    companion = feed.Feed(exporter, SERVER, run, notices.append)
    for _ in range(3):
        companion.advance()
    assert notices == ["metrics: a window is left out (ValueError: a figure that cannot be)"]


def test_windows_that_are_derived_together_are_passed_on_one_by_one(
    exporter: Exporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dbdyno.conduct.metrics import feed as module

    now_s = 100.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now_s))
    store = RunStore(tmp_path / "store")
    run = store.create(conduct.observation_plan(conduct.observation_of({"engine": "fake"}), observe.host()))
    feed = module.Feed(exporter, SERVER, run, print)

    def write(*cells: str) -> None:
        parts = [part(cell) for cell in cells]
        run.parts.write(cells[0], {n: pl.concat([p[n] for p in parts]) for n in parts[0]}, {})

    def passed_on(at_s: float) -> float:
        nonlocal now_s
        now_s = at_s
        feed.look(observe.NoWatch(), lambda _: observe.NoWatch(), None)
        return sum_of(scrape(exporter), "dbdyno_windows_total")

    write("0001-a", "0002-a", "0003-a", "0004-a")  # of 4 s each
    assert [passed_on(s) for s in (100, 103, 104, 107, 108.5)] == [1, 1, 2, 2, 3]
    write("0005-a", "0006-a")
    assert [passed_on(s) for s in (110, 113, 114)] == [5, 5, 6], "what was held is not held longer"
    write("0007-a", "0008-a")
    feed.finish()
    assert sum_of(scrape(exporter), "dbdyno_windows_total") == 8


def part(cell: str) -> dict[str, pl.DataFrame]:
    made = tables(ledger=[ledger_row("run", 0.5)])
    return {n: t.with_columns(cell=pl.lit(cell)) if "cell" in t.columns else t for n, t in made.items()}


def test_windows_of_merged_parts_count_once(exporter: Exporter, tmp_path: Path) -> None:
    from dbdyno.conduct.metrics.feed import Feed

    store = RunStore(tmp_path / "store")
    run = store.create(conduct.observation_plan(conduct.observation_of({"engine": "fake"}), observe.host()))
    feed = Feed(exporter, SERVER, run, print)

    for number, cell in enumerate(("0001-a", "0002-a"), 1):
        run.parts.write(cell, part(cell), {})
        feed.advance()
        assert sum_of(scrape(exporter), "dbdyno_windows_total") == number
    run.parts.write("0003-a", part("0003-a"), {})  # derived and merged before it is looked for
    run.parts.merge(["0001-a", "0002-a", "0003-a"], {})
    feed.advance()
    feed.finish()
    assert sum_of(scrape(exporter), "dbdyno_windows_total") == 3
    assert sum_of(scrape(exporter), "dbdyno_session_seconds_total") == pytest.approx(6)
