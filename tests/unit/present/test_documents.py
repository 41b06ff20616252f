"""Documents: what every medium makes of every kind of block, and a golden text of each kind of document."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import altair as alt
import pytest
from hypothesis import given
from hypothesis import strategies as some
from syrupy.assertion import SnapshotAssertion
from tests.unit import scaling_made
from tests.unit.cli.test_machines import argument
from tests.unit.compare_runs import noisy
from tests.unit.present.test_regression import _two_regimes as two_regimes
from tests.unit.report_results import World
from tests.unit.shown import as_html, as_text

from dbdyno import present
from dbdyno.conclude.compare import compare_variants
from dbdyno.conclude.regression import cpu_per_work
from dbdyno.model.results.claim import Claim
from dbdyno.present.charts.chart import channel, encoded, finished, layer
from dbdyno.present.document.document import (
    Cell,
    Chart,
    Choice,
    Column,
    Document,
    Drawing,
    KeyFigure,
    Option,
    Paragraph,
    Row,
    Section,
    Statement,
    Statements,
    Strip,
    Table,
    Verbatim,
    facts,
    known,
    numeric,
    word,
)
from dbdyno.present.document.page import charts_code
from dbdyno.present.media import html, markdown, text
from dbdyno.present.scaling import scaling_document

HOSTILE = "<script>alert(1)</script>|`x`"
SPEC = finished([encoded(layer([{"n": 1}], "point"), x=channel("n:Q"))], "one point")
TABLE = Table(
    "rates",
    (Column("who"), Column("rate", number=True, rank=1), Column("p", number=True, rank=2), Column("verdict")),
    [
        Row([word("a"), known(1.5, str, "1/s"), known(None, str), word("better")], "good"),
        Row([word(HOSTILE), known(20.25, str, "1/s"), known(0.04, str), word("undecided")], minor=True),
    ],
)
DOCUMENT = Document(
    "a title",
    [
        Section(
            "charts only",
            [Chart("c", "chart", "what to see", SPEC), Drawing("<svg></svg>", "lines")],
            "charts",
        ),
        Section("figures", [TABLE, Paragraph("a remark", "muted")], "figures"),
        Section("claims", [Statements([Statement("it is so", "why", "seen", "note", "so")])], "claims"),
        Section("details", [Paragraph("folded away")], folded=True),
    ],
    lead=[Paragraph("the answer", lead=True)],
    figures=[KeyFigure("peak", Cell("12", 12.0, "calls/s"), "11 .. 13")],
    footer="made by hand",
)


class Elements(HTMLParser):
    """Every element with its id and class; those that stay open are left in ``open``."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, str | None, str | None]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.elements.append((tag, given.get("id"), given.get("class")))
        if tag not in {"meta", "link", "br", "wbr"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page(shown: Document) -> str:
    """Returns the page without the charts' code, which is no markup of ours."""
    return html.page(shown).replace(charts_code(), "")


STRIP = Strip(
    "s", "over time", "what", [("CPU", "run"), ("unknown", "")], ["a"], [[[100, 0], None]], 0.0, 2.0
)
CHOSEN = Document(
    "choices",
    [
        Choice(
            "Load",
            [Option(f"c{n}", f"{n} sessions", [TABLE, Paragraph(f"of {n}"), STRIP]) for n in (8, 4)],
            "2 are left out",
        ),
        facts("machine", [("CPU", "fast"), ("limit", None)]),
        Section("script", [Verbatim("select 1;\n  select 2;")], detail=True),
        Table("bars", (Column(""),), [Row([Cell("", bar=[(0.25, "run")])])]),
    ],
    more=[Paragraph("the rest is there", "muted")],
)


def test_a_choice_is_the_first_option_but_on_a_page() -> None:
    terminal, marked, written = as_text(CHOSEN, 80), markdown.page(CHOSEN), page(CHOSEN)
    assert "of 8" in terminal and "of 4" not in terminal
    assert "of 8" in marked and "of 4" not in marked and "4 sessions" in marked
    assert "of 8" in written and "of 4" in written and written.count("<option") == 2
    assert written.count("data-pick=") == 2 and 'data-pick="c4" hidden' in written


def test_details_are_where_there_is_room_and_the_terminal_has_a_footer() -> None:
    terminal, marked = as_text(CHOSEN, 80), markdown.page(CHOSEN)
    assert terminal.endswith("the rest is there") and "select 2" not in terminal
    assert "```\nselect 1;\n  select 2;\n```" in marked and "the rest" not in marked
    assert "<pre>select 1;" in page(CHOSEN)


def test_facts_have_no_head_and_absent_values_no_line() -> None:
    lines = as_text([facts("machine", [("CPU", "fast"), ("limit", None)])]).splitlines()
    assert lines == ["machine", "CPU  fast"]


def test_strips_and_bars_are_drawn_on_a_page_alone() -> None:
    written = page(CHOSEN)
    assert Elements(written).open == [] and written.count('data-strip="s"') == 2
    assert 'id="strips"' in written and "width:25.0%" in written
    assert "over time" not in as_text(CHOSEN, 80) + markdown.page(CHOSEN)


def test_rows_that_come_one_by_one_stand_in_their_columns() -> None:
    columns = (
        Column("n", number=True, width=3),
        Column("name", width=6, shortens=True),
        Column("x", rank=1, width=9),
    )
    table = text.Running(columns, 12)
    assert table.head().text == "  n  name"
    assert table.row(Row([word("7"), word("a long name"), word("y")])).text == "  7  a lon…"


def test_a_terminal_has_title_answer_tables_and_claims_and_no_drawings() -> None:
    lines = [(n.text, n.style) for n in text.document(DOCUMENT, 80)]
    assert lines[:2] == [("a title", "bold"), ("the answer", "")]
    words = "\n".join(t for t, _ in lines)
    assert "charts only" not in words and "folded away" not in words and HOSTILE not in words
    assert ("a     1.5  ?  better", "green") in lines and ("- it is so  (seen)", "") in lines
    assert ("1 smaller row not shown.", "dim") in lines


def test_columns_go_by_rank_and_are_named() -> None:
    wide, narrow = (as_text([TABLE], width).splitlines() for width in (40, 13))
    assert wide[1].split() == ["who", "rate", "p", "verdict"]
    assert narrow[1].split() == ["who", "verdict"]
    assert " ".join(narrow[3:]).startswith("Not shown at this width: rate, p.")


@given(
    some.lists(
        some.tuples(some.integers(1, 30), some.integers(0, 3), some.booleans()), min_size=1, max_size=8
    ),
    some.integers(1, 120),
)
def test_no_figure_is_cut_and_what_can_go_makes_room(
    columns: list[tuple[int, int, bool]], width: int
) -> None:
    """Each cell is there whole or its column is named; figures without a rank go last, and a line is too long
    only where nothing more may go."""
    heads = [Column(f"h{n}", number, rank if n else 0) for n, (_, rank, number) in enumerate(columns)]
    cells = [word(chr(65 + n) * size) for n, (size, _, _) in enumerate(columns)]
    lines = as_text([Table("", heads, [Row(cells)])], width).splitlines()
    shown = lines[1].split()
    left_out = set(re.findall(r"h\d", " ".join(lines[2:])))
    assert {c.text for c, h in zip(cells, heads, strict=True) if h.head not in left_out} == set(shown)
    ranked = {h.head for h in heads if h.rank}
    figures = [h.head for h in heads[1:] if h.number and not h.rank]  # the first of them stays
    assert left_out <= ranked or (ranked <= left_out and left_out - ranked <= {*figures[1:]})
    if len(lines[1]) > width:
        assert left_out == ranked | {*figures[1:]}


def test_a_page_is_whole_with_answers_first_and_folded_details() -> None:
    written = page(DOCUMENT)
    elements = Elements(written)
    assert elements.open == []
    assert {("section", "figures", None), ("section", "claims", None), ("figure", "c", "chart card")} <= set(
        elements.elements
    )
    assert 'data-claim="so"' in written and written.count("<details>") == 1
    assert written.index("the answer") < written.index('class="tiles"') < written.index('id="charts"')
    assert HOSTILE not in written and "&lt;script&gt;" in written
    assert 'http-equiv="Content-Security-Policy"' in written


def test_a_page_without_charts_has_the_switch_but_not_the_code_of_charts() -> None:
    written = html.page(replace(DOCUMENT, blocks=DOCUMENT.blocks[1:]))
    assert 'id="theme"' in written and charts_code() not in written


def test_a_column_of_one_text_becomes_a_line_below_the_table() -> None:
    columns = [Column("event"), numeric("waits"), Column("source"), Column("why", name="reason")]
    rows = [
        [word("a"), word("1"), word("trace"), word("x")],
        [word("b"), word("1"), word("trace"), word("y")],
    ]
    shown = Table("", columns, [Row(r) for r in rows])
    written = html.parts([shown])
    assert "source: trace</p>" in written and ">source</th>" not in written
    assert ">reason</th>" in written and ">waits</th>" in written  # numbers, and what differs, stay
    assert ">source</th>" in html.parts([replace(shown, rows=shown.rows[:1])])


def test_the_title_block_stands_below_the_answer_on_pages_and_in_markdown_alone() -> None:
    about = [("Workload", f"reads {HOSTILE}"), ("Repeats", "3")]
    shown = replace(DOCUMENT, about=about)
    written = html.page(shown)
    assert written.index("</h1>") < written.index("the answer") < written.index("<dt>Workload</dt>")
    assert "<dd>3</dd>" in written and HOSTILE not in written
    marked = markdown.page(shown)
    assert marked.index("the answer") < marked.index("- Repeats: 3")
    assert [n.text for n in text.document(shown, 80)] == [n.text for n in text.document(DOCUMENT, 80)]


def test_markdown_has_every_table_and_escapes() -> None:
    written = markdown.page(DOCUMENT)
    assert written.startswith("# a title\n") and "charts only" not in written
    assert "| who | rate | p | verdict |\n|:--|--:|--:|:--|\n| a | 1.5 | ? | better |" in written
    assert "\\<script\\>alert(1)\\</script\\>\\|\\`x\\`" in written and "## details\n\nfolded away" in written


def test_data_that_layers_share_are_in_a_chart_once() -> None:
    rows = [{"n": 1, "m": None}]
    spec = finished([layer(rows, "point"), layer([{"n": 2}], "rule"), layer(rows, "line")], "three layers")
    alt.LayerChart.validate(spec)
    assert spec["datasets"] == {"data-0": rows, "data-1": [{"n": 2}]}
    assert [x["data"]["name"] for x in spec["layer"]] == ["data-0", "data-1", "data-0"]


@cache
def documents() -> dict[str, Document]:
    """Returns a document of each kind, with claims written by hand: those have tests of their own."""
    comparison = compare_variants(noisy(World(rungs=(1, 4), repeats=6, variants=("base", "second", "third"))))
    per_work = scaling_document.per_work(
        [replace(r, notes=()) for r in cpu_per_work(two_regimes(), knees=(4.0,))]
    )
    assert per_work is not None
    pair = replace(
        argument(repeats=3, noise=0.01, response=True), claims=(Claim(id="a", text="B is faster."),), notes=()
    )
    return {
        "regression": Document("CPU per unit of work", [per_work]),
        "machines": present.comparison(None, [pair]),
        "comparison": present.comparison(
            comparison.model_copy(update={"conclusions": (Claim(id="rank", text="B is slower."),)})
        ),
        "scaling": present.scaling([replace(scaling_made.scaling(), answers=(), notes=())]),
    }


@pytest.mark.parametrize("kind", ["regression", "machines", "comparison", "scaling"])
def test_golden_texts(kind: str, snapshot: SnapshotAssertion) -> None:
    shown = documents()[kind]
    assert as_text(shown, 80) == snapshot
    assert max(map(len, as_text(shown, 80).splitlines())) <= 80
    assert Elements(as_html(shown.blocks)).open == []
