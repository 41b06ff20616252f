"""The report of scaling as text, page, charts and JSON, of published and of simple ladders."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import pytest
from click.testing import CliRunner
from tests.unit import scaling_made as examples
from tests.unit.shown import as_html, as_text

from dbdyno import present
from dbdyno.cli.app import app
from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.scaled import scaled
from dbdyno.conclude.scaling.asked import asked
from dbdyno.conclude.scaling.paragraph import paragraph, shape
from dbdyno.model.errors import StoreError, UsageError
from dbdyno.model.results.analyses import Estimate, Ladder, Machine, Scaling
from dbdyno.present.document.document import Chart, Section, walk
from dbdyno.present.document.page import charts_code
from dbdyno.present.figures import figures
from dbdyno.present.media import html
from dbdyno.present.scaling import scaling_charts, scaling_document


def text(*scalings: Scaling) -> str:
    return as_text(present.scaling(scalings), 200)


def page(*scalings: Scaling) -> str:
    """Returns the page without the charts' code, which names its sources."""
    return html.page(present.scaling(scalings)).replace(charts_code(), "")


def specs(scaling: Scaling) -> dict[str, dict[str, Any]]:
    return {c.id: c.spec for c in scaling_charts.charts(scaling)}


def rows(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for rows in spec["datasets"].values() for row in rows]


def test_the_text_holds_the_published_figures_and_their_intervals() -> None:
    output = text(examples.scaling())
    for part in (
        "specsdm91.csv: 7 points, 1 to 216 users",
        "Up to 97 users",
        "90.00", "61.25 .. 144.", "0.02773", "0.0001044", "0.00003862 .. 0.0001612", "96.52",
        "Amdahl's law", "< 0.001", "no knee can be told", "a note", "Durbin-Watson of the residuals: 1.90 ",
    ):  # fmt: skip
        assert part in output
    line = next(x.split() for x in output.splitlines() if x.lstrip().startswith("216 "))
    assert line == ["216", "1,702", "1,646", "+3.4", "%", "8.8", "%"]


def test_columns_without_a_figure_are_left_out_and_repeats_are_averaged() -> None:
    table = scaling_document.measured(examples.knees())
    assert [c.head for c in table.columns] == [
        "sessions", "repeats", "calls/s", "predicted", "residual", "efficiency",
        "CPU", "user", "system", "CPU WAIT",
    ]  # fmt: skip
    assert [c.value for c in table.rows[0].cells[:4]] == [
        1,
        3,
        pytest.approx(101),
        pytest.approx(99.99, abs=0.01),
    ]
    assert "at least 14.9" in text(examples.knees())


def test_a_ladder_that_nothing_could_be_fitted_to_is_shown_with_the_reason() -> None:
    bare = replace(
        examples.scaling(),
        fits=(),
        curve=examples.scaling().curve.clear(),
        refused=("three rungs",),
        answers=(),
    )
    bare = replace(
        bare, residuals=bare.residuals.with_columns(predicted=None, residual=None, efficiency=None)
    )
    assert "three rungs" in text(bare)
    assert "three rungs" in page(bare)
    assert set(specs(bare)) == {"fit", "response-model"}
    assert present.scaling_json([bare])["scalings"][0]["best"] is None
    empty = replace(
        bare, ladder=examples.ladder(points=examples.points(())), residuals=bare.residuals.clear()
    )
    assert "no points" in text(empty)
    assert scaling_charts.charts(empty) == []
    assert "no points" in page(empty)


def test_charts_are_valid_and_hold_the_points() -> None:
    drawn = specs(examples.knees())
    assert set(drawn) == {"fit", "efficiency", "response-model", "residuals", "cpu"}
    for spec in drawn.values():
        alt.LayerChart.from_dict(spec, validate=True)
        json.dumps(spec, allow_nan=False)
    measured = [r for r in rows(drawn["fit"]) if "response_s" in r and "repeat" in r]
    assert len(measured) == 27


def test_knees_have_labels_in_lines_of_their_own_and_turn_inwards_at_the_edge() -> None:
    spec = specs(examples.knees())["fit"]
    labels = [
        (spec["datasets"][x["data"]["name"]][0]["name"], x["mark"]["align"], x["encoding"]["y"]["value"])
        for x in spec["layer"]
        if x["mark"]["type"] == "text" and "stroke" not in x["mark"]
    ]
    assert labels == [
        ("8 cores", "left", 292), ("16 CPUs", "left", 277),
        ("knee 1: 8", "left", 8), ("knee 2: 16", "right", 23),
    ]  # fmt: skip
    shades = [r for r in rows(spec) if "from" in r]
    assert [(r["from"], r["to"]) for r in shades] == [(7.4, 8.7), (14.9, 20)]


def test_an_outlier_is_drawn_with_its_figure_and_the_legend_names_what_is_drawn() -> None:
    outlying = examples.scaling(examples.ladder(outliers=((50.0, 99_000.0),)))
    chart = scaling_charts.throughput(outlying)
    (ring,) = {(r["load"], r["name"]) for r in rows(chart.spec) if r.get("name") == "99,000"}
    assert ring[0] == 50 and any("outlier" in k.label for k in chart.legend)
    assert not any("outlier" in k.label for k in scaling_charts.throughput(examples.scaling()).legend)
    bare = replace(examples.scaling(), fits=(), curve=examples.scaling().curve.clear())
    assert [k.label for k in scaling_charts.throughput(bare).legend] == ["measured", "perfect scaling"]


def test_loads_that_crowd_at_the_foot_get_a_logarithmic_axis() -> None:
    pairs = tuple((2**k, 100.0 * min(2**k, 4)) for k in range(11))
    base = examples.scaling(examples.ladder(points=examples.points(pairs)))
    wide = specs(replace(base, curve=base.curve.filter(pl.col("load") < 216)))["fit"]
    scales = [x["encoding"]["x"]["scale"] for x in wide["layer"] if "scale" in x["encoding"].get("x", {})]
    assert scales and all(s["type"] == "log" for s in scales)
    assert "type" not in specs(examples.scaling())["fit"]["layer"][-1]["encoding"]["x"]["scale"]


def test_response_times_are_measured_or_by_littles_law_and_say_which() -> None:
    charts = {c.id: c for c in scaling_charts.charts(examples.knees())}
    assert "less 0.002 s of think time" in charts["response-model"].caption
    first = next(r for r in rows(charts["response-model"].spec) if "what" in r)
    assert first["time"] == pytest.approx(1e3 * (1 / 100 - 0.002))
    measured = examples.ladder(points=examples.points(response_s=0.001, response_p95_s=0.003))
    chart = next(c for c in scaling_charts.charts(examples.scaling(measured)) if c.id == "response-model")
    assert chart.caption.startswith("Measured")
    assert [k.label for k in chart.legend] == ["mean", "95 %", "Universal Scalability Law"]


def test_the_page_is_whole_escapes_texts_and_loads_nothing() -> None:
    one, two = page(examples.scaling()), page(examples.scaling(), examples.knees())
    assert "&lt;beyond&gt; it falls" in one and "<beyond>" not in one
    for word in ("http://", "https://", "src="):
        assert word not in one
    assert one.count('class="chart card') == 4 and two.count('class="chart card') == 9
    assert 'id="scaling-1-cpu"' in two
    assert set(json.loads(one.split('id="specs">')[1].split("</script>")[0])) == {
        f"scaling-0-{name}" for name in ("fit", "efficiency", "response-model", "residuals")
    }


def test_the_section_of_a_run_holds_all_charts() -> None:
    section = scaling_document.section([examples.scaling(), examples.knees()])
    assert section is not None
    page = as_html([section])
    specs = {b.id: b.spec for b in walk([section]) if isinstance(b, Chart)}
    # Without the chart of CPU, which the stack of session time shows, and of response times as measured.
    assert len(specs) == 8 and page.count("<section") == 1
    assert all(f'id="{name}"' in page for name in specs)
    assert scaling_document.section([]) is None


def test_sections_left_out_of_the_terminal_are_folded_in_the_page() -> None:
    document = present.scaling([examples.scaling()])
    folded = [b for b in walk(document.blocks) if isinstance(b, Section) and b.folded]
    assert [f.title for f in folded] == ["Figures of the other models"]
    assert "Figures of the other models" not in as_text(document) and "<details>" in html.page(document)


def test_json_holds_all_fits_and_no_number_that_json_lacks() -> None:
    document = json.loads(
        json.dumps(present.scaling_json([examples.scaling(), examples.knees()]), allow_nan=False)
    )
    first, second = document["scalings"]
    assert first["best"] == "usl"
    assert first["fits"][0]["parameters"][2] == {
        "name": "kappa", "value": examples.KAPPA, "unit": "ratio", "low": 3.862e-5, "high": 1.6118e-4,
        "method": "profile likelihood", "std_err": 1.98767e-5, "note": "",
    }  # fmt: skip
    assert len(first["points"]) == len(first["residuals"]) == 7
    assert second["curve"][0]["high"] is None


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        present.write(present.scaling([examples.scaling()]), tmp_path / "no" / "page.html")


PLATEAU = Ladder(
    "plateau",
    examples.points(tuple((n, 100.0 * min(n, 8) + (-1) ** n * 0.3) for n in (1, 2, 3, 4, 6, 8, 12, 16))),
    machine=Machine(cpus=8),
    think_s=0.0,
)


@pytest.fixture(scope="module")
def plateau() -> Scaling:
    return scaled(PLATEAU)


def test_questions_to_the_model_are_answered_and_guesses_are_called_so(plateau: Scaling) -> None:
    answers = asked(plateau, (4, 40), (0.02,), (350.0, 1e6)).answers[:5]
    values = [a.value.value if a.value else None for a in answers]
    assert values[:4] == [pytest.approx(v, rel=0.01) for v in (400, 800, 16, 3.5)]
    assert values[4] is None
    assert "Warning" in answers[1].slots["note"] and "Warning" not in answers[0].slots["note"]
    assert answers[3].slots["response"] == "10.0 ms"


def test_the_model_that_is_asked_for_comes_first_with_what_the_data_say(plateau: Scaling) -> None:
    assert plateau.best is not None and plateau.best.model in ("plateau", "queue", "repairman")
    forced = scaled(PLATEAU, model="amdahl")
    assert forced.best is not None and forced.best.model == "amdahl"
    assert forced.best.weight < 0.05
    assert "was requested" in forced.notes[0]
    assert "Requested model: Amdahl" in text(forced) and "Best model: " in text(plateau)
    assert [f.model for f in forced.fits].count("amdahl") == 1
    with pytest.raises(UsageError, match="no model 'x'"):
        scaled(PLATEAU, model="x")
    assert sum(a.id == "paragraph" for a in plateau.answers) == 1


def run(*words: str, text: str | None = None) -> Any:
    return CliRunner().invoke(app, ["analyze", *words], input=text)


CSV = "clients,tps\n" + "".join(f"{n},{100 * min(n, 8)}.{n}\n" for n in (1, 2, 4, 8, 16, 32))


def test_the_command_reads_standard_input_and_prints_json() -> None:
    out = run("-", "--json", "--cores", "4", "--threads-per-core", "2", "--load-unit", "users", text=CSV)
    assert out.exit_code == 0, out.output
    scaling = json.loads(out.output)["scalings"][0]
    assert scaling["name"] == "standard input"
    assert scaling["machine"] == {"cpus": 8, "cores": 4, "threads_per_core": 2, "model": None, "quota": False}
    assert scaling["load_unit"] == "users" and scaling["throughput_unit"] == "transactions/s"
    assert scaling["fits"][0]["model"] == scaling["best"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("no.csv",), "cannot read"),
        (("-", "--cpus", "4", "--cores", "8"), "4 CPUs of 8 cores"),
        (("-", "--cpus", "16", "--cores", "4", "--threads-per-core", "2"), "are 8 CPUs, not 16"),
        (("-", "--cpus", "7", "--threads-per-core", "2"), "not a whole number of cores"),
        (("-", "--where", "db"), "not a condition"),
        (("-", "--response-unit", "parsec"), "not a unit of time"),
        (("-", "--load", "tps", "--throughput", "2"), "tps cannot be both --load and --throughput"),
        (("fifo",), "it is a FIFO"),
        (("/dev/null",), "it is a device"),
        (("-", "--think", "long"), "not a duration"),
        (("-", "--response-target", "0"), "not a time above 0"),
        (("-", "--predict", "-1"), "-1"),
        (("last", "--cpus", "4"), "to files only"),
    ],
)
def test_wrong_words_of_analyze_are_refused(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    out = run(*words, text=CSV)
    assert isinstance(out.exception, UsageError), out.output
    assert message in str(out.exception)


def test_intervals_and_numbers_are_written_with_as_many_digits_as_count() -> None:
    assert figures.interval(Estimate("x", 1.0, low=0.5, high=2.0)) == "0.5000 .. 2"
    assert figures.interval(Estimate("x", 1.0, high=1234.56)) == "at most 1,235"
    assert figures.interval(Estimate("x", 1.0)) == ""
    assert [figures.number(v) for v in (None, float("nan"), 0.0, 1.5e-9, 12.0, 3.14159)] == [
        "?", "?", "0", "1.500e-09", "12", "3.142",
    ]  # fmt: skip


def test_a_model_that_bic_prefers_is_not_ruled_out_by_far(plateau: Scaling) -> None:
    best, second, *rest = plateau.fits
    alone = (best, *(replace(f, weight=0.001, weight_bic=0.0) for f in (second, *rest)))
    preferred = (replace(best, weight_bic=0.1), replace(alone[1], weight_bic=1.0), *alone[2:])
    assert "by far" in paragraph(replace(plateau, fits=alone))
    unsure = paragraph(replace(plateau, fits=preferred))
    assert "by far" not in unsure and f"{shape(second)} cannot be ruled out" in unsure


def test_no_model_is_called_the_best_if_none_describes_the_loads(plateau: Scaling) -> None:
    values = {"p": "p = 0.01", "shape": "a plateau", "error": "3 %", "tried": "four"}
    veto = claim("model-veto", values, case="pattern")
    shown = text(replace(plateau, answers=(*plateau.answers, veto)))
    assert "Best model" not in shown and "Closest model, not accepted: " in shown
