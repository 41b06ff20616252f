"""Exports for programs that follow figures over builds, read back by their own rules."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import polars as pl
import pytest
from prometheus_client import parser as text_format
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.unit import report_results
from tests.unit.compare_runs import noisy, without_cells
from tests.unit.report_results import World

from dbdyno import present
from dbdyno.model.errors import UsageError
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.gate import Finding, Gate, Outcome
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import rows
from dbdyno.present import junit

pytestmark = pytest.mark.queries

TWO = World(rungs=(1, 4), repeats=5, variants=("base", "second"))

BMF = {
    "type": "object",
    "patternProperties": {
        ".+": {
            "type": "object",
            "patternProperties": {
                ".+": {
                    "type": "object",
                    "properties": {
                        "value": {"type": "number"},
                        "lower_value": {"type": "number"},
                        "upper_value": {"type": "number"},
                    },
                    "required": ["value"],
                }
            },
        }
    },
}
"""The schema that Bencher documents, https://bencher.dev/docs/reference/bencher-metric-format"""


def rung(results: Results, variant: str, sessions: int) -> dict[str, float]:
    (row,) = results.tables["rungs"].filter(variant=variant, sessions=sessions).to_dicts()
    return row


def without(results: Results, column: str) -> Results:
    rungs = results.tables["rungs"].with_columns(pl.lit(None, pl.Float64).alias(column))
    return replace(results, tables={**results.tables, "rungs": rungs})


def test_bencher_gets_every_level_with_interval(tmp_path: Path) -> None:
    results = noisy(TWO)
    (path,) = present.export(results, None, "bmf", tmp_path / "r.json")
    read = json.loads(path.read_text())
    jsonschema.validate(read, BMF)
    assert set(read) == {f"lio, {v}, {n}" for v in ("base", "second") for n in ("1 session", "4 sessions")}
    measures = read["lio, base, 4 sessions"]
    assert all(len(name) <= 64 and name == name.lower() for name in measures)
    row = rung(results, "base", 4)
    assert measures["throughput"]["value"] == row["calls_per_s"]  # Bencher: operations per second
    assert measures["latency"]["value"] == row["response_mean_ns"]  # Bencher: ns
    assert measures["latency-p95"]["value"] == row["response_p95_ns"]
    for figures in measures.values():
        low, high = figures.get("lower_value"), figures.get("upper_value")
        assert (low is None) == (high is None)
        assert low is None or low <= figures["value"] <= high


def test_an_interval_of_the_repeats_is_students(tmp_path: Path) -> None:
    """Two repeats of 10 and 12 ms: mean 11, standard error 1, Student's quantile of one degree 12.706. On
    the scale of logarithms the interval is 11 exp(-+12.706 / 11)."""
    results = noisy(World(rungs=(4,), repeats=2))
    values = pl.Series([10e6, 12e6])
    rates = results.tables["rates"]
    hit = (pl.col("scope") == "rung") & (pl.col("name") == "response_mean_ns")
    cells = results.tables["windows"]["cell"].to_list()
    value = pl.when(hit).then(pl.col("cell").replace_strict(cells, values, default=None)).otherwise("value")
    rungs = results.tables["rungs"].with_columns(response_mean_ns=pl.lit(11e6))
    tables = {**results.tables, "rates": rates.with_columns(value=value), "rungs": rungs}
    (path,) = present.export(replace(results, tables=tables), None, "bmf", tmp_path / "r.json")
    latency = json.loads(path.read_text())["lio, base, 4 sessions"]["latency"]
    assert latency["lower_value"] == pytest.approx(11e6 * 2.71828 ** (-12.706 / 11), rel=1e-3)
    assert latency["upper_value"] == pytest.approx(11e6 * 2.71828 ** (12.706 / 11), rel=1e-3)


def test_intervals_of_percentiles_are_those_of_the_table(tmp_path: Path) -> None:
    """Each percentile has the ends that the table of all repeats together has, or none."""
    results = noisy(TWO)
    row = rung(results, "base", 4)
    quantiles = ("p50", "p95", "p99", "p99.9")
    head = {"workload": "lio", "variant": "base", "sessions": 4, "repeat": 0, "cell": "all"}
    head |= {"q": 0.5, "calls": 10**6, "above": 1.0, "status": "ok", "source": "driver"}
    ends = zip(quantiles, (None, 3.0, 5.0, 7.0), (None, 4.0, 6.0, 8.0), strict=True)
    known = [{**head, "quantile": q, "low_ns": low, "high_ns": high} for q, low, high in ends]
    table = rows("response_quantiles", known)
    rungs = results.tables["rungs"].with_columns(response_p999_ns=pl.lit(7.5))
    tables = {**results.tables, "rungs": rungs, "response_quantiles": table}
    (path,) = present.export(replace(results, tables=tables), None, "bmf", tmp_path / "r.json")
    measures = json.loads(path.read_text())["lio, base, 4 sessions"]
    assert measures["latency-p50"] == {"value": row["response_p50_ns"]}
    assert measures["latency-p99-9"] == {"value": 7.5, "lower_value": 7.0, "upper_value": 8.0}
    (path,) = present.export(replace(results, tables=tables), None, "openmetrics", tmp_path / "r.prom")
    assert 'quantile="0.999"' in path.read_text()


@pytest.mark.parametrize("kind", ["bmf", "github-benchmark", "openmetrics"])
def test_what_is_unknown_is_left_out(kind: str, tmp_path: Path) -> None:
    known, lacking = noisy(TWO), without(noisy(TWO), "response_p99_ns")
    for results, there in ((known, True), (lacking, False)):
        written = present.export(results, None, kind, tmp_path / f"{kind}-{there}")
        text = "".join(p.read_text() for p in written)
        names = ("latency-p99", "p99 of response times", 'quantile="0.99"')
        assert any(name in text for name in names) is there
        assert ": 0," not in text and "null" not in text and "NaN" not in text


@pytest.mark.parametrize("kind", ["bmf", "github-benchmark", "openmetrics"])
def test_a_run_without_a_usable_level_is_an_error(kind: str, tmp_path: Path) -> None:
    results = noisy(TWO)
    rungs = results.tables["rungs"].with_columns(status=pl.lit("invalid"))
    unusable = replace(results, tables={**results.tables, "rungs": rungs})
    with pytest.raises(UsageError, match="no usable load level"):
        present.export(unusable, None, kind, tmp_path / "out")


def test_github_benchmark_has_a_file_for_each_direction(tmp_path: Path) -> None:
    results = noisy(TWO)
    written = present.export(results, None, "github-benchmark", tmp_path / "out")
    read = {p.name: json.loads(p.read_text()) for p in written}
    assert set(read) == {"bigger-is-better.json", "smaller-is-better.json"}
    for entries in read.values():
        names = [e["name"] for e in entries]
        assert len(set(names)) == len(names) == len(entries) > 0
        for entry in entries:
            assert {"name", "unit", "value"} <= entry.keys() <= {"name", "unit", "value", "range", "extra"}
            assert isinstance(entry["value"], float) and all(
                isinstance(entry[k], str) for k in entry.keys() - {"value"}
            )
    calls = next(e for e in read["bigger-is-better.json"] if e["name"] == "lio, base, 4 sessions: Calls")
    row = rung(results, "base", 4)
    assert (calls["unit"], calls["value"]) == ("calls/s", row["calls_per_s"])
    smaller = {e["name"]: e for e in read["smaller-is-better.json"]}
    mean = smaller["lio, base, 4 sessions: Mean response time"]
    assert mean["value"] == pytest.approx(row["response_mean_ns"] / 1e6)
    for entry in (calls, mean):  # as the action reads it: src/extractRangeInfo.ts
        half = re.fullmatch(r"± (\d[\d.]+)", entry["range"])[1]
        low, high = (float(v) for v in re.findall(r"[\d.]+", entry["extra"].splitlines()[0])[1:])
        assert float(half) == pytest.approx(max(high - entry["value"], entry["value"] - low), rel=0.01)
        assert len(half.replace(".", "").lstrip("0")) >= 4
    units = {e["unit"] for e in read["smaller-is-better.json"]}
    assert units == {"ms"} and {e["unit"] for e in read["bigger-is-better.json"]} == {"calls/s", "LIO/s"}


def test_both_of_prometheus_formats_have_the_types_of_an_export(tmp_path: Path) -> None:
    (path,) = present.export(noisy(TWO), None, "openmetrics", tmp_path / "r.prom")
    text = path.read_text()
    types = {line.split()[3] for line in text.splitlines() if line.startswith("# TYPE ")}
    # those of expfmt, by which the textfile collector reads; it refuses a file with any other
    assert types <= {"counter", "gauge", "histogram", "summary", "untyped"}
    for parsed in (text_string_to_metric_families(text), text_format.text_string_to_metric_families(text)):
        families = {f.name: f for f in parsed}
        info = families["dbdyno_result_info"]
        (sample,) = info.samples
        assert (info.type, sample.name, sample.value) == ("gauge", "dbdyno_result_info", 1.0)
        assert "dbdyno_result_calls_per_second" in families


def test_openmetrics_is_parsed_by_prometheus_own_parser(tmp_path: Path) -> None:
    results = noisy(TWO)
    (path,) = present.export(results, None, "openmetrics", tmp_path / "r.prom")
    text = path.read_text()
    assert text.endswith("# EOF\n")
    families = {f.name: f for f in text_string_to_metric_families(text)}
    row = rung(results, "base", 4)
    at = {"variant": "base", "sessions": "4"}

    def value(family: str, sample: str = "", **more: str) -> float:
        (found,) = (
            s.value
            for s in families[f"dbdyno_result_{family}"].samples
            if s.name == f"dbdyno_result_{sample or family}" and {**s.labels, **at, **more} == s.labels
        )
        return float(found)

    assert value("calls_per_second") == row["calls_per_s"]
    assert value("calls_per_second_low") < row["calls_per_s"] < value("calls_per_second_high")
    assert value("calls", "calls_total") == row["calls"]
    assert value("response_seconds", quantile="0.95") == pytest.approx(row["response_p95_ns"] / 1e9)
    count = value("response_seconds", "response_seconds_count")
    total = value("response_seconds", "response_seconds_sum")
    assert total / count == pytest.approx(row["response_mean_ns"] / 1e9)
    assert value("cpu_per_call_seconds") == pytest.approx(row["cpu_per_call_ns"] / 1e9)
    assert families["dbdyno_result_calls"].type == "counter"
    assert families["dbdyno_result_info"].type == "gauge"


def test_names_that_would_break_a_format_are_made_harmless(tmp_path: Path) -> None:
    hostile = report_results.hostile()
    name = 'a"b\\c\nd\x00\x1b[31m<&>]]>\u202e\ud800'
    tables = {}
    for table in ("rungs", "windows", "rates"):
        tables[table] = hostile.tables[table].with_columns(variant=pl.lit(name[:-1]))
    named = replace(hostile, tables={**hostile.tables, **tables})
    (path,) = present.export(named, None, "openmetrics", tmp_path / "r.prom")
    samples = [s for f in text_string_to_metric_families(path.read_text()) for s in f.samples]
    variants = {s.labels["variant"] for s in samples if "variant" in s.labels}
    assert len(variants) == 1 and "\x1b" not in variants.pop()
    longest = replace(named, info=named.info.model_copy(update={"dbdyno": "9" * 100_000}))
    (path,) = present.export(longest, None, "openmetrics", tmp_path / "long.prom")
    families = text_string_to_metric_families(path.read_text())
    assert all(len(v) <= 1024 for f in families for s in f.samples for v in s.labels.values())
    (path,) = present.export(named, None, "junit", tmp_path / "r.xml")
    tree = ElementTree.fromstring(path.read_bytes())
    assert any('a"b\\c' in case.get("name", "") for case in tree.iter("testcase"))
    (path,) = present.export(named, None, "bmf", tmp_path / "r.json")
    assert all("\x1b" not in key for key in json.loads(path.read_text()))


_REQUIRED = {
    "testsuite": {
        *("id", "name", "package", "hostname", "timestamp", "tests", "failures", "errors", "time"),
    },
    "testcase": {"name", "classname", "time"},
    "failure": {"type"},
}
"""Attributes that the schema of windyroad requires."""


def _check_junit(content: bytes) -> ElementTree.Element:
    """Checks the rules of that schema: attributes, the order of elements, counts, a time without zone."""
    root = ElementTree.fromstring(content)
    assert root.tag == "testsuites"
    for element in root.iter():
        assert _REQUIRED.get(element.tag, set()) <= set(element.keys())
    for suite in root:
        assert suite.tag == "testsuite" and suite.get("hostname")
        datetime.strptime(suite.get("timestamp", ""), "%Y-%m-%dT%H:%M:%S")
        tags = [child.tag for child in suite]
        assert tags[0] == "properties" and tags[-2:] == ["system-out", "system-err"]
        assert set(tags[1:-2]) <= {"testcase"} and len(tags) - 3 == int(suite.get("tests", ""))
        for count, tag in (("failures", "failure"), ("skipped", "skipped")):
            assert int(suite.get(count, "")) == len(list(suite.iter(tag)))
        for case in suite.iter("testcase"):
            assert {child.tag for child in case} <= {"failure", "skipped"} and len(case) <= 1
    return root


def test_junit_has_a_case_for_each_level_and_claim(tmp_path: Path) -> None:
    results = without_cells(noisy(TWO), "second-s4")
    rungs = results.tables["rungs"]
    lost = (pl.col("variant") == "second") & (pl.col("sessions") == 4)
    status = pl.when(lost).then(pl.lit("invalid")).otherwise("status")
    results = replace(results, tables={**results.tables, "rungs": rungs.with_columns(status=status)})
    (path,) = present.export(results, None, "junit", tmp_path / "r.xml")
    levels, claims = _check_junit(path.read_bytes())
    failures = {c.get("name"): c[0].get("message") for c in levels.iter("testcase") if len(c)}
    assert failures == {"lio, second, 4 sessions": "cut short"}
    assert float(levels.find("testcase").get("time")) == pytest.approx(50, abs=5)
    names = [c.get("name", "") for c in claims.iter("testcase")]
    assert [n.partition(",")[0] for n in names] == [c.id for c in results.findings]
    assert len(set(names)) == len(names) > len({c.id for c in results.findings})
    assert "peak, lio, variant base" in names


def test_a_warning_is_skipped_in_junit_with_its_sentence(tmp_path: Path) -> None:
    """Green would say that all is well, and red would fail a build by a warning."""
    severities = ("good", "note", "warning", "invalid")
    some = tuple(Claim(id=f"c-{s}", text=f"Sentence of {s}.", severity=s) for s in severities)
    (path,) = present.export(replace(noisy(TWO), findings=some), None, "junit", tmp_path / "r.xml")
    _, claims = _check_junit(path.read_bytes())
    shown = {c.get("name"): [(e.tag, e.get("message")) for e in c] for c in claims.iter("testcase")}
    assert shown == {
        "c-good": [],
        "c-note": [],
        "c-warning": [("skipped", "Sentence of warning.")],
        "c-invalid": [("failure", "Sentence of invalid.")],
    }
    assert "c-warning: Sentence of warning." in claims.findtext("system-out")


def test_a_gate_as_junit_fails_and_skips() -> None:
    failed = Finding("failed", "B at 4 sessions", "calls_per_s", "A", 0.8, 0.7, 0.9, "worse")
    unknown = Finding("cannot tell", "B at 1 session", "calls_per_s", "A", 0.9, 0.7, 1.2, "undecided", "why")
    gate = Gate((Outcome("worse:5%", "failed", (failed, unknown)), Outcome("claim:errors", "passed", ())))
    when = datetime(2026, 11, 21, tzinfo=UTC)
    one, two = _check_junit(junit.of_gate(gate, "A and B", when))
    assert (one.get("failures"), one.get("skipped"), two.get("tests")) == ("1", "1", "1")
    assert "0.8" in (one.find("testcase/failure").get("message") or "")
    one, _ = _check_junit(junit.of_gate(replace(gate, strict=True), "A and B", when))
    assert (one.get("failures"), one.get("skipped")) == ("2", "0")
    *_, last = _check_junit(junit.of_gate(replace(gate, warnings=("B was cut short",)), "A and B", when))
    assert (last.get("name"), last.get("skipped")) == ("warnings", "1")
