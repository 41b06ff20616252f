"""The documentation's site: its navigation, the pages that it is made of, the check of the built pages."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from tools import build_site, check_site

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def navigation() -> list[tuple[str, str]]:
    """Returns titles, empty where the page's heading serves, and pages of the navigation, in its order."""
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    return re.findall(r"^ +- (?:(.+): )?([\w./-]+\.md)$", nav, re.MULTILINE)


def test_the_navigation_has_every_page_once_and_nothing_else() -> None:
    """Decisions are reached from their list, and the code of conduct from the page on contributing."""
    pages = {p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md") if p.parent.name != "decisions"}
    others = {to for path, to in build_site.OUTSIDE.items() if (ROOT / path).exists()} - {
        "code-of-conduct.md"
    }
    assert Counter(page for _, page in navigation()) == Counter({*pages, *others, "decisions/index.md"})


def test_the_navigation_calls_a_page_by_words_of_its_heading() -> None:
    sources = {to: path for path, to in build_site.OUTSIDE.items()}
    for name, page in navigation():
        if name and page not in ("index.md", "decisions/index.md"):
            heading = build_site.title((ROOT / sources.get(page, f"docs/{page}")).read_text("utf-8"))
            words = [re.findall(r"[\w.-]+", text.casefold()) for text in (name, heading)]
            assert set(words[0]) <= set(words[1]), f"{page}: {name!r}, but its heading is {heading!r}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small repository: two pages, one decision, a page and a program outside of docs, a picture."""
    for name, text in {
        "docs/index.md": "# Home\n\n[guides/up.md](guides/up.md), ![chart](chart.svg), [more](decisions)",
        "docs/guides/up.md": "# Up\n\n[home](../index.md#home), [security](../../SECURITY.md), "
        "[why](../../tools/why.py), [elsewhere](https://example.org/a.md), [below](#up), `[code](x.md)`\n\n"
        "```\n[block](y.md)\n- a\n```\n\nBefore:\n- a list\n",
        "docs/chart.svg": "<svg/>",
        "docs/gallery/run.html": "<p>A page of a run",
        "docs/decisions/0001-a.md": "# 1. First\n",
        "SECURITY.md": "# Security\n\n[up](docs/guides/up.md), [readme](README.md), [data](data.json)",
        "README.md": "# Readme",
        "tools/why.py": "pass",
        "data.json": "{}",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_site_has_docs_and_what_they_link_to(root: Path) -> None:
    assert sorted(build_site.gather(root)) == [
        *(
            "chart.svg",
            "decisions/0001-a.md",
            "decisions/index.md",
            "gallery/run.html",
            "guides/up.md",
            "index.md",
        ),
        *("security.md", "source/data.json", "source/tools/why.py.txt"),
    ]


def test_links_fit_the_site(root: Path) -> None:
    files = {name: content.decode() for name, content in build_site.gather(root).items()}
    assert files["index.md"].splitlines()[-1] == (
        "[Up](guides/up.md), ![chart](chart.svg), [more](decisions/index.md)"
    )
    assert files["guides/up.md"].startswith("---\nsearch:\n  boost: 4\n---\n\n# Up\n")  # found first
    assert files["guides/up.md"].splitlines()[7:] == [
        "[home](../index.md#home), [security](../security.md), [why](../source/tools/why.py.txt), "
        "[elsewhere](https://example.org/a.md), [below](#up), `[code](x.md)`",
        *("", "```", "[block](y.md)", "- a", "```", "", "Before:", "", "- a list"),
    ]
    assert files["security.md"].endswith("[up](guides/up.md), [readme](index.md), [data](source/data.json)")
    assert files["decisions/index.md"].endswith("# Decisions\n\n- [1\\. First](0001-a.md)\n")
    assert files["decisions/0001-a.md"].startswith("---\nsearch:\n")  # at the end of what is found


def test_a_picture_leads_to_the_whole_page_if_that_is_there(root: Path) -> None:
    (root / "docs" / "gallery.md").write_text("# Gallery\n\n![a](gallery/run.png)\n\n![b](gallery/not.png)\n")
    for name in ("run", "not"):
        (root / "docs" / "gallery" / f"{name}.png").write_bytes(b"")
    page = build_site.gather(root)["gallery.md"].decode()
    assert page.endswith("[![a](gallery/run.png)](gallery/run.html)\n\n![b](gallery/not.png)\n")


def test_a_page_without_a_place_is_refused(root: Path) -> None:
    (root / "docs" / "index.md").write_text("# Home\n[more](../NOTES.md)")
    (root / "NOTES.md").write_text("# Notes")
    with pytest.raises(ValueError, match=r"^NOTES\.md: name its place"):
        build_site.gather(root)


def test_equations_are_replaced_in_the_built_page() -> None:
    page = (
        r'<p>For <span class="arithmatex">\(a &lt; b\)</span>:</p><div class="arithmatex">\['
        "\nc\n"
        r"\]</div>"
    )
    assert build_site.with_mathml(page, lambda tex, display: f"<math {display}>{tex}</math>") == (
        '<p>For <span class="arithmatex"><math inline>a < b</math></span>:</p>'
        '<div class="arithmatex"><math block>c</math></div>'
    )


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A built site without a fault."""
    site = tmp_path / "site"
    (site / "guides").mkdir(parents=True)
    head = '<link rel="stylesheet" href="{}a.css"><link rel="canonical" href="https://example.org/">'
    (site / "index.html").write_text(
        f'{head.format("")}<h1 id="top">Home</h1><a href="guides/up.html#how-%C3%A4">up</a>'
        '<a href="#top">top</a>'
        '<a href="https://example.org">elsewhere</a><img src="data:image/png;base64,AA==">'
        '<img srcset="a.png 1x, a.png 2x">'
    )
    (site / "guides" / "up.html").write_text(
        f'{head.format("../")}<h2 id="how-ä">How</h2><a href="../">home</a>'
    )
    (site / "a.css").write_text("p { background: url('a.png') }")
    (site / "a.png").write_bytes(b"")
    (site / "search.json").write_text(
        json.dumps(
            {
                "items": [
                    {"location": ""},
                    {"location": "guides/up.html"},
                    {"location": "guides/up.html#how-ä"},
                ]
            }
        )
    )
    return site


def test_a_good_site_has_no_fault(site: Path) -> None:
    assert check_site.faults(site) == []


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        ('<script src="https://cdn.example.org/a.js"></script>', "loads https://cdn.example.org/a.js"),
        ('<link rel="stylesheet" href="//fonts.example.org/a">', "loads //fonts.example.org/a"),
        ('<link rel="preconnect" href="HTTPS://fonts.example.org">', "loads HTTPS://fonts.example.org"),
        (
            '<img src="a.png" srcset="a.png 1x, http://example.org/b.png 2x">',
            "loads http://example.org/b.png",
        ),
        ('<p style="background: url(https://example.org/c.png)">', "loads https://example.org/c.png"),
        ('<style>@import "https://example.org/d.css";</style>', "loads https://example.org/d.css"),
        ('<iframe src="https://example.org/e"></iframe>', "loads https://example.org/e"),
        ('<a href="no-such.html">', "no-such.html leads nowhere"),
        ('<a href="../outside.html">', "../outside.html leads nowhere"),
        ('<img src="no-such.png">', "no-such.png leads nowhere"),
        ('<a href="guides/up.html#why">', "guides/up.html#why: no such place in guides/up.html"),
        ('<a href="#why">', "#why: no such place in index.html"),
    ],
)
def test_a_fault_of_a_page_is_reported(site: Path, part: str, fault: str) -> None:
    with (site / "index.html").open("a") as page:
        page.write(part)
    (site.parent / "outside.html").write_text("")
    assert check_site.faults(site) == [f"index.html: {fault}"]


def test_a_style_sheet_loads_nothing_from_elsewhere(site: Path) -> None:
    (site / "a.css").write_text("@font-face { src: url(https://fonts.example.org/a.woff2) }")
    assert check_site.faults(site) == ["a.css: loads https://fonts.example.org/a.woff2"]


def test_a_page_that_the_search_lacks_is_reported(site: Path) -> None:
    (site / "new.html").write_text("")
    (site / "gallery").mkdir()
    (site / "gallery" / "run.html").write_text("")
    assert check_site.faults(site) == ["new.html: not in the search"]
