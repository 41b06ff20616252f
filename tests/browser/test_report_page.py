"""The report in a real browser, the network cut: drawn, readable on a phone, light and dark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import report_results as made
from chromium import Page

from dbdyno import report

pytestmark = pytest.mark.browser
Open = Callable[..., Page]
CHARTS = [
    "throughput", "response", "percentiles", "stack-aas", "stack-share", "cpu", "helpers", "spread",
    "distribution",
]  # fmt: skip
FIGURES = """Array.from(document.querySelectorAll("figure.chart"), function (node) {
  function all(selector) { return Array.from(node.querySelectorAll(selector)); }
  return {
    id: node.id, drawn: node.dataset.drawn, wanted: Number(node.dataset.marks), text: node.innerText,
    marks: all(".mark-symbol.role-mark > *, .mark-rect.role-mark > *").length,
    lines: all(".mark-line.role-mark > *").length,
    width: node.querySelector("svg").getBoundingClientRect().width,
    room: node.querySelector(".plot").getBoundingClientRect().width,
    labels: all(".role-axis-label text").map(function (t) { return t.textContent; }),
    ink: all(".role-axis-label text").map(function (t) { return t.getAttribute("fill"); }),
    paint: all(".role-mark > path").map(function (p) { return p.outerHTML; })
  };
})"""
TOO_WIDE = """Array.from(document.querySelectorAll("body *")).filter(function (node) {
  return !node.closest(".scroll") && node.getBoundingClientRect().right > innerWidth + 1;
}).map(function (node) { return node.outerHTML.slice(0, 200); })"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    worlds = {
        "small": made.results(),
        "large": made.results(made.LARGE),
        "repeated": made.results(made.REPEATED),
        "remote": made.results(made.REMOTE),
        "hostile": made.hostile(),
        "single": made.results(made.World(rungs=(1,))),
    }
    return {name: report.write_html(results, folder / f"{name}.html") for name, results in worlds.items()}


def figures(page: Page) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.evaluate(FIGURES)
    return found


@pytest.mark.parametrize("name", ["small", "large", "repeated", "remote", "hostile", "single"])
def test_the_page_draws_all_its_charts_and_loads_nothing(
    pages: dict[str, Path], open_page: Open, name: str
) -> None:
    page = open_page(pages[name])
    assert page.errors() == []
    assert [u for u in page.requests() if not u.startswith("data:")] == [pages[name].as_uri()]
    found = figures(page)
    assert len(found) >= 8
    for figure in found:
        assert figure["drawn"] == "yes", figure
        assert figure["marks"] >= figure["wanted"] > 0, figure
        assert figure["labels"], figure
        assert not [p for p in figure["paint"] if "var(" in p], figure


def test_the_charts_are_those_that_the_report_promises(pages: dict[str, Path], open_page: Open) -> None:
    found = figures(open_page(pages["small"]))
    assert [f["id"].split("-", 2)[2] for f in found] == CHARTS
    assert [f["lines"] for f in found[:2]] == [2, 4]  # perfect and measured; mean and three percentiles
    assert "CPU WAIT" in found[3]["text"]


@pytest.mark.parametrize("name", ["small", "large", "repeated", "hostile"])
@pytest.mark.parametrize("width", [390, 820, 1280])
def test_nothing_is_wider_than_the_window(
    pages: dict[str, Path], open_page: Open, name: str, width: int
) -> None:
    page = open_page(pages[name], width=width)
    assert page.evaluate("innerWidth") == width
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    assert page.evaluate(TOO_WIDE) == []
    for figure in figures(page):
        assert 0.9 * figure["room"] <= figure["width"] <= figure["room"] + 1


def test_the_page_follows_the_systems_colours(pages: dict[str, Path], open_page: Open) -> None:
    page = open_page(pages["small"])
    light, ink = colours(page), figures(page)[0]["ink"]
    page.prefer("dark")
    page.wait(f"document.querySelector('.role-axis-label text').getAttribute('fill') !== '{ink[0]}'")
    dark = colours(page)
    assert light["background"] > 0.8 > 0.2 > dark["background"]
    assert light["text"] < 0.2 < 0.8 < dark["text"]
    assert page.errors() == []


def test_a_dark_system_gets_a_dark_page_at_once(pages: dict[str, Path], open_page: Open) -> None:
    assert colours(open_page(pages["small"], dark=True))["background"] < 0.2


def test_the_button_turns_the_colours_over(pages: dict[str, Path], open_page: Open) -> None:
    page = open_page(pages["small"])
    ink = figures(page)[0]["ink"]
    page.evaluate("document.getElementById('theme').click()")
    page.wait(f"document.querySelector('.role-axis-label text').getAttribute('fill') !== '{ink[0]}'")
    assert colours(page)["background"] < 0.2


def test_the_scale_turns_logarithmic(pages: dict[str, Path], open_page: Open) -> None:
    page = open_page(pages["large"])
    before = figures(page)[1]
    page.evaluate("document.querySelector('button.log').click()")
    page.wait(f"{FIGURES}[1].labels.join() !== {','.join(before['labels'])!r}")
    assert page.errors() == []
    assert figures(page)[1]["marks"] == before["marks"]


def test_tables_wider_than_a_phone_scroll_and_take_the_focus(pages: dict[str, Path], open_page: Open) -> None:
    page = open_page(pages["small"], width=390)
    wide = page.evaluate("""(function () {
      var box = document.querySelector("#rungs .scroll");
      box.focus();
      return {scrolls: box.scrollWidth > box.clientWidth, focused: document.activeElement === box,
              name: box.getAttribute("aria-label")};
    })()""")
    assert wide == {"scrolls": True, "focused": True, "name": "Per rung; the table scrolls sideways"}


def colours(page: Page) -> dict[str, float]:
    style = "getComputedStyle(document.body)"
    return {
        "background": luminance(page.evaluate(f"{style}.backgroundColor")),
        "text": luminance(page.evaluate(f"{style}.color")),
    }


def luminance(colour: str) -> float:
    """0 black to 1 white of ``rgb(r, g, b)``, without gamma: enough to tell light from dark."""
    red, green, blue = (int(c) for c in colour.removeprefix("rgb(").removesuffix(")").split(","))
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255
