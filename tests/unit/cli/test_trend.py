"""A figure over runs: which runs are joined, and when it changed. Chance and outliers change nothing."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner, Result
from tests.fakery import climb, recorded
from tests.on_terminal import on_terminal

from dbdyno import conduct, present
from dbdyno.cli.app import app
from dbdyno.conclude.snapshots.trend import concluded
from dbdyno.conduct.history.trend import interval_of
from dbdyno.model.errors import UsageError
from dbdyno.model.results.ledger_rows import together_at
from dbdyno.model.results.trend import FIGURES, Figure, Point, Trend
from dbdyno.present.document.document import Chart, walk
from dbdyno.stats.change_points import LEAST, changes, outliers
from dbdyno.stats.steps import correlated_noise
from dbdyno.store import RunStore
from dbdyno.store.overview import overviews

NOISE = 0.02


def series(
    seed: int, n: int, at: int | None = None, shift: float = 0.0
) -> np.ndarray[Any, np.dtype[np.float64]]:
    logs = NOISE * np.random.default_rng(seed).normal(size=n)
    if at is not None:
        logs[at:] += np.log1p(shift)
    return np.exp(logs)


@pytest.mark.parametrize(("n", "count"), [(6, 200), (9, 200), (10, 100), (25, 50)])
def test_constant_series_rarely_change(n: int, count: int) -> None:
    """Changes are claimed at 5 %. One in a thousand such tests would see more than this limit (binomial)."""
    with_change = sum(bool(changes(series(seed, n))) for seed in range(count))
    assert with_change <= 0.05 * count + 3.1 * (0.05 * 0.95 * count) ** 0.5


@pytest.mark.parametrize(("rho", "most"), [(0.3, 0.05), (0.7, 0.2)])
def test_runs_that_resemble_their_neighbours_rarely_change(rho: float, most: float) -> None:
    """The limit is the same; a test that takes runs as independent would find 0.2 and 0.55."""
    noise = correlated_noise(np.random.default_rng(3), 60, 20, rho)
    with_change = sum(bool(changes(np.exp(NOISE * row))) for row in noise)
    assert with_change <= most * 60 + 3.1 * (most * (1 - most) * 60) ** 0.5


@pytest.mark.parametrize("n", [6, 9, 12, 40])
@pytest.mark.parametrize("factor", [0.01, 0.5, 2.0, 100.0])
def test_an_outlier_anywhere_makes_no_change(n: int, factor: float) -> None:
    for place in (0, 1, n // 2, n - 2, n - 1):
        values = np.tile([1.0, 1.01, 0.99], n)[:n]
        values[place] *= factor
        assert changes(values) == []
        assert n < 9 or outliers(values, []) == [place]


@pytest.mark.parametrize(("n", "at"), [(6, 3), (8, 5), (12, 3), (20, 16), (40, 20)])
@pytest.mark.parametrize("shift", [-0.2, 0.25])
def test_a_clear_change_is_found_with_its_place_and_size(n: int, at: int, shift: float) -> None:
    (change,) = changes(series(n, n, at, shift))
    assert change.at == at and change.low <= at <= change.high
    assert change.ratio_low < 1 + shift < change.ratio_high
    assert change.p < 0.05


def test_two_changes_are_found_one_after_the_other() -> None:
    values = series(5, 45)
    values[15:30] *= 1.3
    assert [c.at for c in changes(values)] == [15, 30]
    values[30:] *= 1.7
    assert [c.at for c in changes(values)] == [15, 30]


def test_the_interval_of_a_change_holds_its_place() -> None:
    containing = 0
    for seed in range(60):
        some = changes(series(seed, 16, 8, -0.1))
        containing += any(c.low <= 8 <= c.high for c in some)
    assert containing >= 0.8 * 60  # a change that is missed counts as outside


def test_levels_of_two_modes_have_a_ratio_and_no_outliers() -> None:
    values = np.array([1.0] * 8 + [1.3, 1.5] * 4 + [1.6, 1.2] * 4)
    assert all(c.ratio_low <= c.ratio <= c.ratio_high for c in changes(values))
    assert outliers([1.0, 1.5] * 10, []) == []


def test_too_few_equal_and_exact_series_are_no_change() -> None:
    assert changes([1.0] * 50) == []
    assert changes([1.0, 1.0, 2.0, 2.0, 2.0][: LEAST - 1]) == []
    (change,) = changes([1.0] * 10 + [2.0] * 10)
    assert change.at == 10 and 9 <= change.low <= change.high <= 11 and change.ratio == pytest.approx(2)


# Over stored runs.


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    climbed = climb("fake:cpu=50ms,wait=IO/Read:10ms", [1, 2])
    run = recorded(RunStore(tmp_path_factory.mktemp("model")), climbed)
    run.finish("complete")
    conduct.rebuild(run)
    for raw in ("cells", "parts"):  # a trend reads derived tables alone
        shutil.rmtree(run.path / raw)
    (run.path / "report.html").unlink()
    return run.path


def add(store: Path, model: Path, number: int, factor: float, status: str = "ok", **deep: Any) -> str:
    """Adds a run of day ``number`` with all rates times ``factor``. ``deep``: file -> path of keys ->
    value."""
    day = datetime(2026, 1, 1, 10, tzinfo=UTC) + timedelta(days=number)
    run_id = f"{day:%Y%m%d-%H%M%S}-lio-{number:04x}"
    path = store / run_id
    shutil.copytree(model, path)
    rungs = path / "derived" / "rungs.parquet"
    rates = pl.col("work_per_s", "calls_per_s") * factor
    pl.read_parquet(rungs).with_columns(rates, status=pl.lit(status)).write_parquet(rungs)
    manifest = path / "derived" / "manifest.json"
    digests = json.loads(manifest.read_text())
    manifest.write_text(
        json.dumps(digests | {"rungs.parquet": hashlib.sha256(rungs.read_bytes()).hexdigest()})
    )
    when = day.isoformat()
    deep = {"run": {("id",): run_id, ("started",): when, ("ended",): when}, **deep}
    for name, values in deep.items():
        document = json.loads((path / f"{name}.json").read_text())
        for keys, value in values.items():
            part = document
            for key in keys[:-1]:
                part = part[key]
            part[keys[-1]] = value
        (path / f"{name}.json").write_text(json.dumps(document))
    return run_id


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DBDYNO_STORE", str(tmp_path / "store"))
    (tmp_path / "store").mkdir(mode=0o700)
    return tmp_path / "store"


def dbdyno(*words: str) -> Result:
    return CliRunner().invoke(app, ["trend", *words])


def record(*words: str) -> dict[str, Any]:
    done = dbdyno("--json", *words)
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.output))


@pytest.fixture
def changed_runs(store: Path, model: Path) -> list[str]:
    """Sixteen runs; from the ninth on slower, with another version and setting."""
    factors = series(3, 16, 8, -0.15)
    new = {"environment": {("server", "version"): "1.1", ("server", "settings", "a"): "b"}}
    return [add(store, model, n, float(f), **(new if n >= 8 else {})) for n, f in enumerate(factors)]


@pytest.mark.whole
def test_a_change_is_claimed_with_run_interval_and_what_changed_beside(changed_runs: list[str]) -> None:
    trend = record()
    (change,) = trend["changes"]
    assert change["run"] == changed_runs[8] and change["low"] < 0.85 < change["high"]
    assert change["first"] <= changed_runs[8] <= change["last"]
    claim = trend["claims"][0]
    assert claim["id"] == f"trend-change-{changed_runs[8]}" and claim["severity"] == "warning"
    assert {"server 1.0 to 1.1", "a unset to b"} <= set(
        re.findall(r"[a-z]+ \S+ to [a-z0-9.]+(?=[,.])", claim["claim"])
    )
    assert [r["level"] for r in trend["runs"]][7] > [r["level"] for r in trend["runs"]][8]
    assert trend["left_out"] == [] and trend["unit"] == "LIO/s"


def test_response_times_and_fewer_sessions_have_their_own_history(changed_runs: list[str]) -> None:
    assert len(changed_runs) == 16
    for figure in ("p95", "mean", "cpu_per_work"):
        trend = record("--figure", figure)
        assert [c["id"] for c in trend["claims"]] == ["trend-stable"] and trend["unit"] == "ns"
        assert {r["sessions"] for r in trend["runs"]} == {2}
    assert {r["sessions"] for r in record("--sessions", "1", "--figure", "lio_per_s")["runs"]} == {1}
    assert record("--figure", "calls")["changes"][0]["run"] == changed_runs[8]


def test_only_runs_of_one_workload_parameters_and_machine_are_joined(store: Path, model: Path) -> None:
    same = [add(store, model, n, 1.0) for n in range(10, 13)]
    others = [
        add(store, model, 1, 1.0, environment={("host", "limits", "usable_cpus"): 64.0}),
        add(store, model, 2, 1.0, plan={("variants",): [], ("experiment", "params"): {"tables": "own"}}),
        add(store, model, 3, 1.0, environment={("server", "embedded"): False, ("server", "where"): "db1"}),
        add(store, model, 4, 1.0, plan={("experiment", "think"): "5ms"}),
    ]
    (store / add(store, model, 6, 1.0) / "run.json").write_text("{")
    shutil.rmtree(store / add(store, model, 7, 1.0) / "derived")
    trend = record("--workload", "lio")
    assert [r["id"] for r in trend["runs"]][-3:] == same
    left = {run: out["why"] for out in trend["left_out"] for run in out["runs"]}
    assert left[others[0]].startswith("other machine: 64 CPUs")
    assert left[others[1]].startswith("other parameters") and left[others[3]].startswith("other parameters")
    assert left[others[2]].startswith("other target")
    assert any(why.startswith("not derived") for why in left.values())
    assert [c["id"] for c in trend["claims"]] == ["trend-few"]


def _with_script(text: str, weight: int = 1, more: int = 0) -> dict[Any, Any]:
    scripts = [{"name": "pay", "text": text, "weight": weight}]
    scripts += [{"name": f"look{n}", "text": "select 1"} for n in range(more)]
    return {("variants",): [{"name": "base", "scripts": scripts}]}


def test_a_script_s_text_may_change_and_is_named(store: Path, model: Path) -> None:
    factors = series(3, 12, 6, -0.15)
    texts = ["select 1" if n < 6 else "select 2" for n in range(12)]
    for n, (factor, text) in enumerate(zip(factors, texts, strict=True)):
        add(store, model, n, float(factor), plan=_with_script(text))
    trend = record()
    assert trend["left_out"] == [] and len(trend["runs"]) == 12
    assert "Also changed there: script pay select 1 to select 2." in trend["claims"][0]["claim"]
    remarks = [n for n, r in enumerate(trend["runs"]) if r["remark"] == "other text of script pay"]
    assert remarks == [6]


def test_a_mix_with_other_weights_is_another_workload(store: Path, model: Path) -> None:
    add(store, model, 1, 1.0, plan=_with_script("select 1", 3, more=1))
    add(store, model, 2, 1.0, plan=_with_script("select 1", 1, more=1))
    (left,) = record()["left_out"]
    assert "pay, weight 3" in left["why"] and "pay, weight 1" in left["why"]


@pytest.mark.parametrize("status", ["invalid", "client"])
def test_an_unusable_measurement_is_shown_and_not_concluded_from(
    store: Path, model: Path, status: str
) -> None:
    for n in range(12):
        add(store, model, n, 1.0 + 0.01 * (n % 3) if n < 8 else 0.5, "ok" if n < 8 else status)
    trend = record()
    assert [r["flagged"] for r in trend["runs"]] == [False] * 8 + [True] * 4
    assert trend["changes"] == [] and "x unusable" in dbdyno().output


def test_a_trend_of_nothing_stored_is_refused_with_the_cure(store: Path, model: Path) -> None:
    assert isinstance(dbdyno().exception, UsageError)
    add(store, model, 1, 1.0)
    for words in (["--figure", "p96"], ["--sessions", "77"], ["--variant", "none"], ["--workload", "none"]):
        error = dbdyno(*words).exception
        assert isinstance(error, UsageError) and error.cure, words
    trend = record("--limit", "1")
    assert [c["id"] for c in trend["claims"]] == ["trend-few"] and trend["claims"][0]["claim"].startswith(
        "6 runs"
    )


@pytest.mark.whole
@pytest.mark.usefixtures("changed_runs")
@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_has_the_answer_and_a_plot(store: Path, columns: int) -> None:
    code, written = on_terminal("trend", columns=columns, env={"DBDYNO_STORE": str(store)})
    lines = re.sub(r"\x1b\[[0-9;]*m", "", written).splitlines()
    assert code == 0 and max(map(len, lines)) <= columns
    assert sum(len(re.findall("[●o]", line.partition("┤")[2])) for line in lines) == 16


@pytest.mark.usefixtures("changed_runs")
@pytest.mark.parametrize("ending", ["html", "md", "xlsx"])
def test_a_trend_is_written_in_the_form_of_its_ending(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"trend.{ending}"
    assert dbdyno("-o", str(path)).exit_code == 0
    content = path.read_bytes()
    assert len(content) > 1_000
    assert ending != "html" or (b'"trend"' in content and "┤".encode() not in content)


@pytest.mark.usefixtures("changed_runs")
def test_the_chart_holds_to_vega_lite_s_schema(store: Path) -> None:
    trend = conduct.trend([one.run for one in overviews(store)], "throughput", None, None, None, print)
    (chart,) = [b for b in walk(present.trend(trend).blocks) if isinstance(b, Chart)]
    alt.LayerChart.validate(chart.spec)  # raises if it does not
    assert chart.marks == len(trend.points) == 16


@pytest.mark.parametrize("values", [(0.0, 0.0, 0.0), (0.0, 3.0, 0.0), (5.0, 0.0, 0.0), (0.0,)])
@pytest.mark.parametrize("unit", ["1/s", "ns"])
def test_a_figure_of_zero_is_shown(values: tuple[float, ...], unit: str) -> None:
    """Tables without deletes have such figures; values of 0 take no part in conclusions."""
    day = datetime(2026, 11, 1, tzinfo=UTC)
    points = [Point(f"n{n}", "", day + timedelta(n), v, 0, v <= 0) for n, v in enumerate(values)]
    figure = Figure("Rows deleted", "del_ps", None, unit)
    trend = concluded(Trend(figure, unit, "table quiet", "a machine", points, thing="interval"))
    assert str(present.trend(trend)).count("0.0 %")
    assert [r["value"] for r in present.trend_record(trend)["runs"]] == list(values)


def test_a_quantile_has_the_interval_of_its_run_where_there_is_one() -> None:
    class Stored:
        def read_table(self, name: str) -> pl.DataFrame:
            assert name == "response_quantiles"
            load = {"workload": "lio", "variant": "base", "sessions": 2, "quantile": ["p95", "p99.9"]}
            ends = {"low_ns": [1.0, None], "high_ns": [2.0, None]}
            return pl.DataFrame(load | ends).with_columns(cell=pl.lit(together_at(None)))

    rung = {"workload": "lio", "variant": "base", "sessions": 2, "rate_per_s": None}
    known = {name: interval_of(Stored(), rung, FIGURES[name]) for name in ("p95", "p99.9", "mean")}
    assert known == {"p95": (1.0, 2.0), "p99.9": (None, None), "mean": (None, None)}
    assert interval_of(Stored(), rung | {"rate_per_s": 50.0}, FIGURES["p95"]) == (None, None)
