"""The records of metrics: names by Prometheus' conventions, and a dashboard that asks for what exists."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbdyno.present.metrics.dashboard import dashboard, queries
from dbdyno.present.metrics.records import BUCKETS_S, METRICS, Metric
from dbdyno.present.metrics.window import OPTIONAL, TABLES

SERIES = {series: metric for metric in METRICS for series in metric.samples}
OF_THE_SCRAPE = {"job", "instance"}
SELECTOR = re.compile(r"(dbdyno_\w+)(?:\{([^{}]*)\})?")
GROUPING = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")
MATCHING = re.compile(r"\bon\s*\(([^)]*)\) group_left ")  # keeps the labels of the left side


def labels_of(series: str) -> set[str]:
    return {*SERIES[series].labels, *OF_THE_SCRAPE, *(["le"] if series.endswith("_bucket") else [])}


def selectors(query: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the series of a query and the labels that it is selected by."""
    for name, matchers in SELECTOR.findall(query):
        yield name, re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', matchers))


@pytest.mark.parametrize("record", METRICS, ids=lambda m: m.name)
def test_names_and_units_follow_the_conventions_of_prometheus(record: Metric) -> None:
    assert re.fullmatch(r"dbdyno(_[a-z]+)+", record.name)
    if record.unit:  # OpenMetrics 1.0: the unit is the end of the name
        assert record.name.endswith(f"_{record.unit}")
        assert record.unit in ("seconds", "bytes", "ratio")
    assert not re.search(r"_(ns|ms|us|percent|kb)\b", record.name), "base units"
    assert record.help.endswith(".") and len(record.help) > 20
    assert set(record.open) <= set(record.labels)
    assert all(re.fullmatch(r"[a-z]+", label) for label in record.labels)
    assert record.source in (*TABLES, *OPTIONAL, "")


def test_every_metric_is_declared_once_and_no_series_has_two() -> None:
    assert len({m.name for m in METRICS}) == len(METRICS)
    assert len(SERIES) == sum(len(m.samples) for m in METRICS)


def test_buckets_rise_and_span_what_a_call_can_take() -> None:
    assert list(BUCKETS_S) == sorted(set(BUCKETS_S))
    assert (BUCKETS_S[0], BUCKETS_S[-1], len(BUCKETS_S)) == (1e-5, 100.0, 22)


@pytest.mark.parametrize("query", tuple(queries()))
def test_a_query_of_the_dashboard_names_series_and_labels_that_exist(query: str) -> None:
    found = list(selectors(query))
    assert found, query
    for name, labels in found:
        assert name in SERIES, f"{name} is no series of a metric"
        assert set(labels) <= labels_of(name), f"{name} has no label {set(labels) - labels_of(name)}"
    for match in MATCHING.findall(query):
        assert {label.strip() for label in match.split(",")} == {*OF_THE_SCRAPE, "server"}
    left = found[:1] if MATCHING.search(query) else found
    known = set.intersection(*(labels_of(name) for name, _ in left))
    for group in GROUPING.findall(query):
        assert {label.strip() for label in group.split(",")} <= known
    for matched in re.findall(r"label_values\(.*, (\w+)\)", query):
        assert matched in known


@pytest.mark.parametrize("query", tuple(queries()))
def test_counters_are_read_as_rates_and_gauges_are_not(query: str) -> None:
    if query.startswith("label_values("):
        return
    for match in SELECTOR.finditer(query):
        kind, is_rate = SERIES[match[1]].kind, query[: match.start()].endswith("rate(")
        if match[1] == "dbdyno_windows_total":
            continue  # shown as a number
        assert is_rate == (kind in ("counter", "histogram")), match[1]


@pytest.mark.parametrize("query", tuple(queries()))
def test_what_is_shown_per_second_is_of_the_observed_time(query: str) -> None:
    """A gap between windows lowers a rate alone; of two counters it cancels, as in quantiles of buckets."""
    rates = query.count("rate(")
    alone = rates == 1 and "histogram_quantile" not in query and "dbdyno_unobserved_seconds" not in query
    assert not alone, query
    assert rates <= 2, "one division"


def test_every_metric_is_on_the_dashboard() -> None:
    asked = {SERIES[name].name for query in queries() for name, _ in selectors(query)}
    assert {m.name for m in METRICS} - asked == set()


def test_the_dashboard_is_a_document_that_grafana_imports() -> None:
    document = json.loads(json.dumps(dashboard(), allow_nan=False))
    names = [v["name"] for v in document["templating"]["list"]]
    assert names == ["datasource", "job", "instance", "server", "range"]
    ids = [panel["id"] for panel in document["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in document["panels"]:
        place = panel["gridPos"]
        assert place["x"] >= 0 and place["x"] + place["w"] <= 24
        letters = [t["refId"] for t in panel.get("targets", ())]
        assert len(set(letters)) == len(letters)
        for used in re.findall(r"\$\{?(\w+)", json.dumps(panel)):
            assert used in names, f"${used} is no variable"
    taken = {
        (x, y)
        for p in document["panels"]
        for x in range(p["gridPos"]["x"], p["gridPos"]["x"] + p["gridPos"]["w"])
        for y in range(p["gridPos"]["y"], p["gridPos"]["y"] + p["gridPos"]["h"])
    }
    areas = sum(p["gridPos"]["w"] * p["gridPos"]["h"] for p in document["panels"])
    assert len(taken) == areas, "panels overlap"


def test_legends_name_labels_that_the_query_keeps() -> None:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                kept = {name.strip() for g in GROUPING.findall(target["expr"]) for name in g.split(",")}
                assert label in kept, target


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_parses_every_query(tmp_path: Path) -> None:
    rules = []
    for number, query in enumerate(q for q in queries() if not q.startswith("label_values(")):
        expression = query.replace("$range", "2m").replace("$", "")
        rules.append({"record": f"r{number}", "expr": expression})
    path = tmp_path / "rules.json"  # JSON is YAML
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
