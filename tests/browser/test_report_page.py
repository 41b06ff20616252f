"""The report in a real browser, the network cut: drawn, readable on a phone, light and dark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import report_results as made

from dbdyno import report

pytestmark = pytest.mark.browser
Open = Callable[..., dict[str, Any]]
CHARTS = [
    "throughput", "response", "percentiles", "stack-aas", "stack-share", "cpu", "helpers", "spread",
    "distribution",
]  # fmt: skip


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    worlds = {
        "small": made.results(),
        "large": made.results(made.LARGE),
        "repeated": made.results(made.REPEATED),
        "remote": made.results(made.REMOTE),
        "hostile": made.hostile(),
    }
    return {name: report.write_html(results, folder / f"{name}.html") for name, results in worlds.items()}


@pytest.mark.parametrize("name", ["small", "large", "repeated", "remote", "hostile"])
def test_the_page_draws_all_its_charts_and_loads_nothing(
    pages: dict[str, Path], open_page: Open, name: str
) -> None:
    found = open_page(pages[name])
    assert found["errors"] == []
    assert found["resources"] == []
    assert len(found["figures"]) >= 8
    for figure in found["figures"]:
        assert figure["drawn"] == "yes", figure
        assert figure["marks"] >= figure["wanted"] > 0, figure
        assert figure["labels"], figure
        assert not [f for f in figure["fills"] if "var(" in f], figure


def test_the_charts_are_those_that_the_report_promises(pages: dict[str, Path], open_page: Open) -> None:
    figures = open_page(pages["small"])["figures"]
    assert [f["id"].split("-", 2)[2] for f in figures] == CHARTS
    assert {f["lines"] for f in figures[:2]} == {2, 4}  # measured and perfect; mean and three percentiles
    assert "CPU WAIT" in figures[3]["text"]


@pytest.mark.parametrize("name", ["small", "large", "repeated", "hostile"])
@pytest.mark.parametrize("width", [390, 820, 1280])
def test_nothing_is_wider_than_the_window(
    pages: dict[str, Path], open_page: Open, name: str, width: int
) -> None:
    found = open_page(pages[name], width=width)
    assert found["innerWidth"] == width
    assert found["scrollWidth"] <= width
    assert found["wide"] == []
    for figure in found["figures"]:
        assert 0.9 * figure["room"] <= figure["width"] <= figure["room"] + 1


def test_the_page_follows_the_systems_colours(pages: dict[str, Path], open_page: Open) -> None:
    light, dark = (open_page(pages["small"], dark=d) for d in (False, True))
    assert (light["dark"], dark["dark"]) == (False, True)
    assert luminance(light["background"]) > 0.8 > 0.2 > luminance(dark["background"])
    assert luminance(light["colour"]) < 0.2 < 0.8 < luminance(dark["colour"])
    assert light["figures"][0]["label"] != dark["figures"][0]["label"]  # the charts' texts too


def test_the_button_turns_the_colours_over(pages: dict[str, Path], open_page: Open) -> None:
    before = open_page(pages["small"])
    after = open_page(pages["small"], act='document.getElementById("theme").click();')
    assert luminance(before["background"]) > 0.8
    assert luminance(after["background"]) < 0.2
    assert before["figures"][0]["label"] != after["figures"][0]["label"]
    assert after["errors"] == []


def test_the_scale_turns_logarithmic(pages: dict[str, Path], open_page: Open) -> None:
    act = 'document.querySelectorAll("button.log").forEach(function (b) { b.click(); });'
    linear, log = open_page(pages["large"]), open_page(pages["large"], act=act)
    assert log["errors"] == []
    assert linear["figures"][1]["labels"] != log["figures"][1]["labels"]
    assert log["figures"][1]["marks"] >= log["figures"][1]["wanted"]


def luminance(colour: str) -> float:
    """0 black to 1 white of ``rgb(r, g, b)``, without gamma: enough to tell light from dark."""
    red, green, blue = (int(c) for c in colour.removeprefix("rgb(").removesuffix(")").split(","))
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255
