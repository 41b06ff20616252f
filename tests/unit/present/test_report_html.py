"""The page as text: self-contained, escaped, valid specifications, whole or not at all."""

from __future__ import annotations

import json
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import altair as alt
import pytest
from tests.unit import report_results

from dbdyno import present
from dbdyno.model.errors import DbdynoError, StoreError, UsageError
from dbdyno.present.document import page
from dbdyno.present.document.page import charts_code, el, join

pytestmark = pytest.mark.queries

_LOADING = {"src", "href", "srcset", "data", "action", "poster"}


class Reader(HTMLParser):
    """Collects elements, and checks that each is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text("utf-8"))
    reader.close()
    assert reader.open == []
    return reader


@pytest.mark.whole
@pytest.mark.parametrize("world", [report_results.SMALL, report_results.REPEATED, report_results.REMOTE])
def test_the_page_loads_nothing(world: report_results.World, tmp_path: Path) -> None:
    reader = read(present.write_report(report_results.results(world), tmp_path / "r.html"))
    for tag, attributes in reader.seen:
        for name in _LOADING & set(attributes):
            assert (attributes[name] or "").startswith(("#", "data:")), (tag, attributes)
    style = "".join(reader.texts["style"])
    assert "url(" not in style and "@import" not in style
    assert any("default-src 'none'" in (a.get("content") or "") for _, a in reader.seen)


def test_texts_of_others_cannot_break_out(tmp_path: Path) -> None:
    reader = read(present.write_report(report_results.hostile(), tmp_path / "r.html"))
    scripts = [a for t, a in reader.seen if t == "script"]
    assert len(scripts) == 6  # charts and strips as data, the charts' code, ours
    assert report_results.HOSTILE in "".join(reader.texts["pre"])
    assert report_results.HOSTILE in "".join(reader.texts["td"])


@pytest.mark.whole
@pytest.mark.parametrize(
    "world", [report_results.SMALL, report_results.LARGE, report_results.REPEATED, report_results.REMOTE]
)
def test_every_chart_is_a_valid_specification(world: report_results.World) -> None:
    results = report_results.results(world)
    drawn = report_results.charts_of(results)
    assert len(drawn) >= 8
    for chart in drawn:
        alt.LayerChart.validate(chart.spec)  # raises where Vega-Lite's schema does not hold
        assert chart.caption.endswith(".")


def specs(results: Any) -> dict[str, dict[str, Any]]:
    return {c.id: c.spec for c in report_results.charts_of(results)}


def values(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """All rows of all data sets of a specification."""
    return [row for rows in spec["datasets"].values() for row in rows]


def test_the_charts_hold_the_tables_figures() -> None:
    results = report_results.results(report_results.REPEATED)
    rates = [r for r in values(specs(results)["throughput"]) if "scaling" in r]
    expected = dict(
        zip(results.tables["rungs"]["sessions"], results.tables["rungs"]["work_per_s"], strict=True)
    )
    ones = {r["sessions"]: r["rate"] for r in rates if r["series"] == "one-cpu"}
    assert ones == pytest.approx(expected)  # the later variant's rows win in both
    assert all(r["low"] < r["rate"] < r["high"] for r in rates)


def test_perfect_scaling_starts_at_the_lowest_rung() -> None:
    spec = specs(report_results.results())["throughput"]
    ends = [r for r in values(spec) if set(r) == {"series", "sessions", "rate"}]
    first = report_results.results().tables["rungs"]["work_per_s"][0]
    assert ends[0]["rate"] == 0
    assert ends[1]["rate"] / ends[1]["sessions"] == pytest.approx(first)


def test_one_colour_a_meaning_in_all_charts() -> None:
    colours_by_key: dict[str, set[str]] = {}
    for chart in report_results.charts_of(report_results.results()):
        for form in filter(None, (chart, chart.other) if chart.id.startswith("stack") else ()):
            scale = form.spec["layer"][0]["encoding"]["color"]["scale"]
            for key, colour in zip(scale["domain"], scale["range"], strict=True):
                colours_by_key.setdefault(key, set()).add(colour)
    assert colours_by_key["runq"] == colours_by_key["runq:no wait event"] == {"var(--runq)"}
    assert colours_by_key["runq:LWLock"] == {"url(#hatch-sleep-3)"}
    assert all(len(colours) == 1 for colours in colours_by_key.values())


def test_unknown_accounts_are_not_drawn_and_named() -> None:
    (chart,) = [
        c
        for c in report_results.charts_of(report_results.results(report_results.REMOTE))
        if c.id == "stack-aas"
    ]
    assert not {"run", "runq"} & {r["key"] for r in values(chart.spec) if "key" in r}
    assert "CPU WAIT" in chart.caption


def test_a_run_that_measured_nothing_still_has_a_page(tmp_path: Path) -> None:
    results = report_results.results()
    for table_ in results.tables:
        results.tables[table_] = results.tables[table_].clear()  # type: ignore[index]
    page = present.write_report(results, tmp_path / "r.html").read_text("utf-8")
    assert "No load was measured." in page


def test_the_page_of_a_run_cut_short_marks_it(tmp_path: Path) -> None:
    results = report_results.results()
    info = results.info.model_copy(update={"status": "cut short", "reason": "server lost"})
    object.__setattr__(results, "info", info)
    page = present.write_report(results, tmp_path / "r.html").read_text("utf-8")
    assert "This run is cut short: server lost" in page


def test_a_place_that_cannot_be_written_is_an_error_with_a_cure(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as error:
        present.write_report(report_results.results(), tmp_path / "absent" / "r.html")
    assert error.value.cure
    with pytest.raises(UsageError):
        present.write_report(report_results.results(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_charts_code_is_in_the_package_and_safe_in_a_page() -> None:
    code = charts_code()
    assert len(code) > 100_000 and "vegaEmbed" in code
    assert "</script" not in code and "<!--" not in code


def test_a_package_without_the_charts_code_is_an_error_with_the_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(page, "resources", lambda _: tmp_path)
    with pytest.raises(DbdynoError) as caught:
        charts_code()
    assert "make build" in (caught.value.cure or "")


def test_a_page_needs_no_vl_convert(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert present.write_report(report_results.results(), tmp_path / "r.html").stat().st_size > 100_000


def test_markup_escapes_plain_text() -> None:
    assert el("p", "<b>", el("i", "&"), title='"') == '<p title="&quot;">&lt;b&gt;<i>&amp;</i></p>'
    assert join("<", None, "a") == "&lt;a"


def test_the_specifications_are_strict_json(tmp_path: Path) -> None:
    page = present.write_report(report_results.results(), tmp_path / "r.html").read_text("utf-8")
    text = page.split('id="specs">', 1)[1].split("</script>", 1)[0]
    assert json.loads(text, parse_constant=lambda c: pytest.fail(f"{c} is not JSON"))
