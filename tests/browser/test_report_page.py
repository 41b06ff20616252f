"""The report in a real browser, the network cut: drawn, readable on a phone, light and dark."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import report_observation as observed
import report_results
from chromium import Page
from tests.clusters import shared_file

from dbdyno import present
from dbdyno.model.results.results import Results

pytestmark = pytest.mark.browser
Open = Callable[..., Page]
PageOf = Callable[[str], Path]
CHARTS = [
    "throughput",
    "stack-aas",
    "response",
    "stack-share",
    "calls-over-time",
    "response-over-time",
    "spread",
    "percentiles",
    "distribution",
    "cpu",
    "helpers",
]
FIGURES = """Array.from(document.querySelectorAll("figure.chart")).filter(
  f => f.offsetWidth > 0
).map(function (node) {
  function all(selector) { return Array.from(node.querySelectorAll(selector)); }
  return {
    id: node.id, drawn: node.dataset.drawn, wanted: Number(node.dataset.marks), text: node.innerText,
    marks: all(".mark-symbol.role-mark > *, .mark-rect.role-mark > *").length,
    lines: all(".mark-line.role-mark > *").length,
    width: node.querySelector("svg").getBoundingClientRect().width,
    room: node.querySelector(".plot").getBoundingClientRect().width,
    labels: all(".role-axis-label text").map(function (t) { return t.textContent; }),
    ink: all(".role-axis-label text").map(function (t) { return getComputedStyle(t).fill; }),
    paint: all(".role-mark > path, .role-legend-symbol path").map(function (p) {
      return [getComputedStyle(p).fill, getComputedStyle(p).stroke];
    })
  };
})"""
INK = "getComputedStyle(document.querySelector('.role-axis-label text')).fill"
DRAWN = "Array.from(document.querySelectorAll('figure.chart')).every(f => !f.offsetWidth || f.dataset.drawn)"
TOO_WIDE = """Array.from(document.querySelectorAll("body *")).filter(function (node) {
  return !node.closest(".scroll, .toc ol") && node.getBoundingClientRect().right > innerWidth + 1;
}).map(function (node) { return node.outerHTML.slice(0, 200); })"""


WORLDS: dict[str, Callable[[], Results]] = {
    "small": report_results.results,
    "large": lambda: report_results.results(report_results.LARGE),
    "repeated": lambda: report_results.results(report_results.REPEATED),
    "remote": lambda: report_results.results(report_results.REMOTE),
    "hostile": report_results.hostile,
    "single": lambda: report_results.results(report_results.World(rungs=(1,))),
    "observation": observed.results,
}


@pytest.fixture(scope="session")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> PageOf:
    """Returns a function that writes the page of a world, once for all workers."""
    return lambda name: shared_file(
        tmp_path_factory, f"{name}.html", lambda path: present.write_report(WORLDS[name](), path)
    )


def figures(page: Page) -> list[dict[str, Any]]:
    """Returns all shown figures, after opening what is folded."""
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.wait(
        "Array.from(document.querySelectorAll('figure.chart')).every(f => !f.offsetWidth || f.dataset.drawn)"
    )
    figures: list[dict[str, Any]] = page.evaluate(FIGURES)
    return figures


@pytest.mark.parametrize("name", ["small", "large", "repeated", "remote", "hostile", "single"])
def test_the_page_draws_all_its_charts_and_loads_nothing(page_of: PageOf, open_page: Open, name: str) -> None:
    page = open_page(page_of(name))
    assert page.errors() == []
    assert [u for u in page.requests() if not u.startswith("data:")] == [page_of(name).as_uri()]
    charts = figures(page)
    assert len(charts) >= 8
    for figure in charts:
        assert figure["drawn"] == "yes", figure
        assert figure["marks"] >= figure["wanted"] > 0, figure
        assert figure["labels"], figure
        assert not [p for p in figure["paint"] if set(p) == {"none"}], figure


def test_the_charts_are_those_that_the_report_promises(page_of: PageOf, open_page: Open) -> None:
    charts = figures(open_page(page_of("small")))
    assert [re.sub(r"^([a-z]+-\d+|c\d+)-", "", f["id"]) for f in charts] == CHARTS
    assert [f["lines"] for f in charts[:3:2]] == [2, 4]  # perfect and measured; mean and three percentiles
    assert "CPU WAIT under LWLock" not in charts[1]["text"]


@pytest.mark.parametrize(("name", "number"), [("small", 1), ("observation", 0)])
def test_cpu_wait_is_divided_by_a_button_and_whole_on_paper(
    page_of: PageOf, open_page: Open, name: str, number: int
) -> None:
    page = open_page(page_of(name))
    whole = figures(page)[number]
    assert "CPU WAIT under" not in whole["text"]
    node = f"document.getElementById({whole['id']!r})"
    page.evaluate(f"{node}.querySelector('button.switch').click()")
    page.wait(f"{node}.querySelectorAll('.form:not([hidden]) svg').length === 1")
    shown = f"Array.from({node}.querySelectorAll('.form')).map(f => f.offsetWidth > 0)"
    assert page.evaluate(shown) == [False, True]
    assert "CPU WAIT under LWLock" in page.evaluate(f"{node}.innerText")
    page.on_paper()
    assert page.evaluate(shown) == [True, False]
    assert page.errors() == []


@pytest.mark.parametrize(
    ("name", "width"),
    [
        *((name, 390) for name in ("small", "large", "repeated", "hostile", "observation")),
        *(("small", 820), ("hostile", 820), ("large", 1280), ("observation", 1280)),
    ],
)
def test_nothing_is_wider_than_the_window(page_of: PageOf, open_page: Open, name: str, width: int) -> None:
    page = open_page(page_of(name), width=width)
    assert page.evaluate("innerWidth") == width
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    assert page.evaluate(TOO_WIDE) == []
    for figure in figures(page):
        assert 0.9 * figure["room"] <= figure["width"] <= figure["room"] + 1


def test_the_page_follows_the_systems_colours(page_of: PageOf, open_page: Open) -> None:
    page = open_page(page_of("small"))
    light, ink = colours(page), figures(page)[0]["ink"]
    page.prefer("dark")
    page.wait(f"{INK} !== '{ink[0]}'")
    dark = colours(page)
    assert light["background"] > 0.8 > 0.2 > dark["background"]
    assert light["text"] < 0.2 < 0.8 < dark["text"]
    assert page.errors() == []


def test_a_dark_system_gets_a_dark_page_at_once(page_of: PageOf, open_page: Open) -> None:
    assert colours(open_page(page_of("small"), dark=True))["background"] < 0.2


def test_the_button_turns_the_colours_over(page_of: PageOf, open_page: Open) -> None:
    page = open_page(page_of("small"))
    ink = figures(page)[0]["ink"]
    page.evaluate("document.getElementById('theme').click()")
    page.wait(f"{INK} !== '{ink[0]}'")
    assert colours(page)["background"] < 0.2


def test_the_scale_turns_logarithmic(page_of: PageOf, open_page: Open) -> None:
    page = open_page(page_of("large"))
    before = figures(page)[2]
    page.evaluate("document.querySelector('button.log').click()")
    page.wait(f"{FIGURES}[2].labels.join() !== {','.join(before['labels'])!r}")
    assert page.errors() == []
    assert figures(page)[2]["marks"] == before["marks"]


def test_tables_wider_than_a_phone_scroll_and_take_the_focus(page_of: PageOf, open_page: Open) -> None:
    page = open_page(page_of("small"), width=390)
    wide = page.evaluate("""(function () {
      var box = document.querySelector("#rungs .scroll");
      box.focus();
      return {scrolls: box.scrollWidth > box.clientWidth, focused: document.activeElement === box,
              name: box.getAttribute("aria-label")};
    })()""")
    assert wide == {"scrolls": True, "focused": True, "name": "table"}


STRIPED = """Array.from(document.querySelectorAll("figure[id$=stack-aas] .mark-rect path")).filter(
  function (p) { return (p.getAttribute("fill") || "").indexOf("url(#hatch-") === 0; }
).map(function (p) { return {
  pattern: document.querySelector(p.getAttribute("fill").slice(4, -1)) !== null,
  high: p.getBoundingClientRect().height
}; })"""


def test_a_table_wider_than_its_box_has_an_edge_that_shows_so(page_of: PageOf, open_page: Open) -> None:
    """Two covers move with the table. Two shades stay at the edges and show where no cover is."""
    page = open_page(page_of("small"), width=390)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    boxes = page.evaluate(
        "Array.from(document.querySelectorAll('.scroll')).map(n => [n.scrollWidth > n.clientWidth + 1,"
        " getComputedStyle(n).backgroundAttachment.split(',')[0].trim(),"
        " getComputedStyle(n).backgroundImage.split('linear-gradient').length - 1])"
    )
    assert any(wide for wide, *_ in boxes)
    assert all((moves, shades) == ("local", 4) for _, moves, shades in boxes)


CUT_HEADS = """Array.from(document.querySelectorAll(".scroll")).flatMap(function (box) {
  var end = box.getBoundingClientRect().left + box.clientLeft + box.clientWidth;
  return Array.from(box.querySelectorAll("thead th")).filter(function (head) {
    var text = document.createRange();
    text.selectNodeContents(head);
    var r = text.getBoundingClientRect();
    return r.left < end - 1 && r.right > end + 1;
  }).map(head => head.innerText);
})"""


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_no_heading_is_cut_at_the_edge_of_a_table(page_of: PageOf, open_page: Open, name: str) -> None:
    page = open_page(page_of(name), width=1280)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.wait(f"{CUT_HEADS}.length === 0")
    page.show(width=1100, height=900, dark=False)  # and after the window was made smaller
    page.wait(f"innerWidth === 1100 && {CUT_HEADS}.length === 0")


def divide(page: Page) -> None:
    """Divides CPU WAIT by wait in the stack of session time."""
    stack = "document.querySelector('figure[id$=stack-aas]')"
    page.evaluate(f"{stack}.querySelector('button.switch').click()")
    page.wait(f"{stack}.querySelectorAll('.form:not([hidden]) svg').length === 1")


def test_time_in_the_run_queue_is_striped(page_of: PageOf, open_page: Open) -> None:
    page = open_page(page_of("small"))
    divide(page)
    bars = page.evaluate(STRIPED)
    assert len(bars) > 6
    assert all(f["pattern"] for f in bars)
    assert max(f["high"] for f in bars) > 10


def hover(page: Page, selector: str, x: float = 0.5, y: float = 0.5) -> None:
    """Moves the mouse over a place of an element; 0 to 1 from its left and its top."""
    where = page.evaluate(f"""(function () {{
      var node = document.querySelector({selector!r});
      node.scrollIntoView({{block: "center"}});
      var r = node.getBoundingClientRect();
      return [r.left, r.top, r.width, r.height];
    }})()""")
    page.move(where[0] + x * where[2], where[1] + y * where[3])


def test_hovering_over_the_stack_gives_number_interval_and_witness(page_of: PageOf, open_page: Open) -> None:
    page = open_page(page_of("small"))
    divide(page)
    page.evaluate("""Array.from(
      document.querySelectorAll("figure[id$=stack-aas] path[fill='url(#hatch-sleep-3)']")
    ).pop().id = "striped" """)
    hover(page, "#striped")
    page.wait("document.querySelector('#vg-tooltip-element.visible') !== null")
    text = page.evaluate("document.getElementById('vg-tooltip-element').innerText")
    assert "CPU WAIT under LWLock" in text
    assert "CPU WAIT in all" in text
    assert "wait event word, estimated" in text
    assert re.search(r"interval\s+[\d.]+ to [\d.]+", text), text


def test_the_strip_is_drawn_and_read_out(page_of: PageOf, open_page: Open) -> None:
    page = open_page(page_of("small"))
    parts = page.evaluate(
        "Array.from(document.querySelectorAll('.of:not([hidden]) .strip path')).map(p => p.dataset.part)"
    )
    assert parts == ["CPU", "CPU WAIT", "IO", "LWLock", "Lock", "client"]
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.of:not([hidden]) .strip path')).fill")
        == "rgb(0, 114, 178)"
    )
    hover(page, ".of:not([hidden]) .strip svg", x=0.45, y=(3 + 0.5) / 8)  # ten pieces, eight sessions
    page.wait("!document.getElementById('tip').hidden")
    text = page.evaluate("document.getElementById('tip').innerText")
    assert text.startswith("session 3, 4 to 5 s")
    assert "CPU WAIT " in text and text.rstrip().endswith("%")


def test_the_strip_is_read_with_the_keyboard(page_of: PageOf, open_page: Open) -> None:
    page = open_page(page_of("small"))
    page.evaluate("""(function () {
      var strip = document.querySelector(".of:not([hidden]) .strip svg");
      strip.focus();
      ["ArrowDown", "ArrowRight"].forEach(function (key) {
        strip.dispatchEvent(new KeyboardEvent("keydown", { key: key }));
      });
    })()""")
    assert page.evaluate("document.getElementById('tip').innerText").startswith("session 1, 1 to 2 s")


CHOSEN = """Array.from(document.querySelectorAll("[data-pick]"))
  .filter(function (n) { return n.offsetHeight > 0 && n.querySelector("caption"); })
  .map(function (n) { return n.querySelector("caption").innerText; })"""
SELECTORS = "Array.from(document.querySelectorAll('select')).map(s => s.selectedOptions[0].text)"


def test_one_selector_chooses_the_rung_everywhere(page_of: PageOf, open_page: Open) -> None:
    page = open_page(page_of("small"))
    shown = figures(page)
    before = page.evaluate(CHOSEN)
    assert len(before) == 5 and all("8 sessions" in c for c in before), before
    label = "document.querySelector('.of:not([hidden]) .strip svg').getAttribute('aria-label')"
    assert page.evaluate(label).startswith("Heat strip of 8 sessions")
    page.evaluate("""(function () {
      var select = document.getElementById("pick");
      select.value = Array.from(select.options).filter(o => o.text === "3 sessions")[0].value;
      select.dispatchEvent(new Event("change"));
    })()""")
    after = page.evaluate(CHOSEN)
    assert len(after) == 5 and all("3 sessions" in c for c in after), after
    assert page.evaluate(SELECTORS) == ["3 sessions"]
    assert page.evaluate(label).startswith("Heat strip of 3 sessions")
    others = figures(page)  # its own charts are drawn now
    assert len(others) == len(shown) and {f["drawn"] for f in others} == {"yes"}
    assert page.errors() == []


@pytest.mark.parametrize(
    ("name", "width", "height"),
    [("small", 1280, 900), ("hostile", 1280, 900), ("small", 390, 1400), ("repeated", 390, 1400)],
)
def test_the_first_chart_stands_early(
    page_of: PageOf, open_page: Open, name: str, width: int, height: int
) -> None:
    page = open_page(page_of(name), width=width)
    assert page.evaluate("document.querySelector('.plot').getBoundingClientRect().top") < height


KEYS = """Array.from(document.querySelectorAll("SELECTOR")).map(function (legend) {
  return Array.from(legend.children).map(k => k.firstChild.className + k.firstChild.dataset.style);
})"""


@pytest.mark.parametrize("name", WORLDS)
def test_links_lead_somewhere_and_legends_are_short(page_of: PageOf, open_page: Open, name: str) -> None:
    page = open_page(page_of(name))
    lost = "Array.from(document.querySelectorAll('a[href]')).filter(a => !document.querySelector(a.hash))"
    assert page.evaluate(f"{lost}.map(a => a.outerHTML)") == []
    ids = page.evaluate("Array.from(document.querySelectorAll('[id]')).map(n => n.id)")
    assert len(ids) == len(set(ids))
    shown, keys = (
        page.evaluate(KEYS.replace("SELECTOR", s)) for s in (":not([hidden]) > .legend", ".legend")
    )
    assert shown and max(map(len, shown)) <= 8
    assert all(len(set(k)) == len(k) for k in keys), keys  # no two entries look alike
    assert page.evaluate("document.querySelectorAll('main a.to, header a.to').length") > 0


def test_a_claims_link_leads_to_its_row(page_of: PageOf, open_page: Open) -> None:
    page = open_page(page_of("small"))
    page.evaluate("Array.from(document.querySelectorAll('.tiles a'))[1].click()")
    assert page.evaluate("document.querySelector('tr:target th').innerText") == "2"  # sessions at the peak


@pytest.mark.parametrize("width", [390, 1280])
def test_the_contents_stay_visible(page_of: PageOf, open_page: Open, width: int) -> None:
    page = open_page(page_of("small"), width=width)
    assert page.evaluate("document.querySelectorAll('.toc a[href^=\"#\"]').length") > 8
    page.evaluate("document.getElementById('sessions').scrollIntoView()")
    page.wait("scrollY > 1000")
    seen = page.evaluate("document.querySelector('.toc').getBoundingClientRect().toJSON()")
    assert seen["top"] == 0 and 0 < seen["bottom"] <= 900
    assert width > 390 or seen["bottom"] < 120
    page.wait("document.querySelector('.toc a[aria-current]') !== null")
    assert page.evaluate("document.querySelector('.toc a[aria-current]').hash") == "#sessions"
    assert page.evaluate("document.getElementById('sessions').getBoundingClientRect().top") >= (
        0 if width > 390 else seen["bottom"] - 1
    )


@pytest.mark.parametrize("name", ["small", "repeated", "hostile", "observation"])
def test_a_printed_page_is_short_and_nothing_is_cut(page_of: PageOf, open_page: Open, name: str) -> None:
    pages_, wide = open_page(page_of(name)).printed()
    assert 1 <= pages_ <= 12
    assert wide == []


@pytest.mark.parametrize("by_hand", [False, True])
def test_paper_is_light_whatever_the_screen(page_of: PageOf, open_page: Open, *, by_hand: bool) -> None:
    light = figures(open_page(page_of("small")))
    page = open_page(page_of("small"), dark=not by_hand)
    if by_hand:
        page.evaluate("document.getElementById('theme').click()")
    dark = figures(page)
    page.on_paper()
    printed = figures(page)
    for name in ("ink", "paint"):
        assert [f[name] for f in printed] == [f[name] for f in light] != [f[name] for f in dark]


def test_hovering_over_a_microstate_shows_its_interval(page_of: PageOf, open_page: Open) -> None:
    page = open_page(page_of("small"))
    title = page.evaluate("document.querySelector('#microstates td span[title]').title")
    assert title.endswith(" %") and " to " in title


def test_an_observation_is_drawn_over_time_with_its_gap(page_of: PageOf, open_page: Open) -> None:
    page = open_page(page_of("observation"))
    assert page.errors() == []
    timeline, *_ = figures(page)
    assert timeline["id"].endswith("timeline") and timeline["drawn"] == "yes"
    assert timeline["marks"] > timeline["wanted"] > 0  # the gap is one more
    assert page.evaluate("document.querySelectorAll('.of:not([hidden]) .strip path').length") == 6
    assert page.evaluate("document.querySelectorAll('#rungs, #charts').length") == 0


def colours(page: Page) -> dict[str, float]:
    style = "getComputedStyle(document.body)"
    return {
        "background": luminance(page.evaluate(f"{style}.backgroundColor")),
        "text": luminance(page.evaluate(f"{style}.color")),
    }


def luminance(colour: str) -> float:
    """Returns 0 for black to 1 for white, without gamma, which is enough to distinguish light and dark."""
    red, green, blue = (int(c) for c in colour.removeprefix("rgb(").removesuffix(")").split(","))
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255


POLICY = "document.querySelector('meta[http-equiv=Content-Security-Policy]').content"


def test_the_policy_permits_this_page_s_own_code_and_styles_alone(page_of: PageOf, open_page: Open) -> None:
    page = open_page(page_of("small"))
    assert "unsafe" not in page.evaluate(POLICY)
    bars = "Array.from(document.querySelectorAll('i[data-style^=width]')).map(i => getComputedStyle(i).width)"
    assert any(w not in ("0px", "auto") for w in page.evaluate(bars))
    assert page.errors() == []
    page.evaluate("""(function () {
      var code = document.createElement("script");
      code.textContent = "window.ran = 1";
      document.body.appendChild(code);
      var box = document.createElement("div");
      box.innerHTML = '<img src="x:" onerror="window.ran = 2"><p id="styled" style="color: rgb(1, 2, 3)">';
      document.body.appendChild(box);
      setTimeout("window.ran = 3", 0);
    })()""")
    page.evaluate("new Promise(function (done) { setTimeout(done, 50); })")
    assert page.evaluate("String(window.ran)") == "undefined"
    assert page.evaluate("getComputedStyle(document.getElementById('styled')).color") != "rgb(1, 2, 3)"
    assert any("Content Security Policy" in e for e in page.errors())
